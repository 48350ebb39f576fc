"""What is public stays as it is unless somebody changes it on purpose."""

from __future__ import annotations

from pathlib import Path

import probssl
from tests.public import lines

SNAPSHOT = Path(__file__).with_name("public.txt")


def test_public_names_and_signatures_are_those_of_the_snapshot() -> None:
    told = SNAPSHOT.read_text(encoding="utf-8").splitlines()
    found = list(lines())
    gone, new = sorted(set(told) - set(found)), sorted(set(found) - set(told))
    assert not gone, f"public names that changed or went, unless on purpose (python -m tests.public): {gone}"
    assert not new, f"public names that came or changed: say so with python -m tests.public > tests/public.txt: {new}"


def test_every_public_name_is_documented() -> None:
    without = [name for name in probssl.__all__ if name != "__version__" and not getattr(probssl, name).__doc__]
    assert not without
