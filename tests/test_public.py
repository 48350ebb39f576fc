"""What is public stays as it is unless somebody changes it on purpose."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from types import GenericAlias
from typing import Any

import pytest

import probssl
from tests.public import lines, values

SNAPSHOT = Path(__file__).with_name("public.txt")


def test_public_names_and_signatures_are_those_of_the_snapshot() -> None:
    recorded = SNAPSHOT.read_text(encoding="utf-8").splitlines()
    found = list(lines())
    gone, new = sorted(set(recorded) - set(found)), sorted(set(found) - set(recorded))
    assert not gone, f"public names that changed or went, unless on purpose (python -m tests.public): {gone}"
    assert not new, f"public names that came or changed: say so with python -m tests.public > tests/public.txt: {new}"


def test_every_public_name_is_documented() -> None:
    without = [name for name in probssl.__all__ if name != "__version__" and not getattr(probssl, name).__doc__]
    assert not without


@pytest.mark.parametrize("cls", sorted({v for v in values() if inspect.isclass(v)}, key=lambda v: v.__qualname__))
def test_every_parameter_of_a_constructor_is_documented(cls: type[Any]) -> None:
    """In the docstring of the class or of one that it inherits from, or in a comment at its field."""
    ours = [base for base in cls.__mro__ if base.__module__.startswith("probssl")]
    docs = "".join(f"{base.__doc__}\n{base.__init__.__doc__}\n" for base in ours)
    fields = "".join(inspect.getsource(base) for base in ours)
    for name, parameter in _parameters(cls).items():
        named = re.search(rf"\b{name}\b", docs)
        commented = re.search(rf"^    {name}: [^#\n]*(# |\n    \"\"\")", fields, re.MULTILINE)
        assert named or commented or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD), (
            f"say in the docstring of {cls.__qualname__} what {name} is"
        )


def _parameters(cls: type[Any]) -> dict[str, inspect.Parameter]:
    try:
        return {} if isinstance(cls, GenericAlias) else dict(inspect.signature(cls).parameters)
    except ValueError:  # a class whose metaclass makes it, such as an enumeration
        return {}
