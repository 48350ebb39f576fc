"""The page docs/theory.md and the room: examples print what it says, and every test and function it names exists."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

from probssl import theory

HERE = Path(__file__).parent
PAGE = (HERE.parents[1] / "docs" / "theory.md").read_text(encoding="utf-8")
NUMBER = re.compile(r"-?\d+(?:\.\d*)?")
MODULES = [name for _, name, _ in pkgutil.iter_modules(theory.__path__) if not name.startswith("_")]


def test_examples_print_what_the_page_says():
    blocks = re.findall(r"```(python|text)\n(.*?)```", PAGE, flags=re.DOTALL)
    names: dict[str, object] = {}
    printed, compared = "", 0
    for kind, body in blocks:
        if kind == "python":
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(compile(body, "theory.md", "exec"), names)
            printed = out.getvalue()
        else:
            assert NUMBER.sub("#", printed) == NUMBER.sub("#", body)
            found, expected = ([float(n) for n in NUMBER.findall(text)] for text in (printed, body))
            assert found == pytest.approx(expected, rel=0.1, abs=0.02), printed
            compared += 1
    assert compared == 7


def test_every_test_it_names_exists():
    named = re.findall(r"`(test_\w+\.py)::(test_\w+)`", PAGE)
    assert len(named) > 20
    for file, test in named:
        assert f"\ndef {test}(" in (HERE / file).read_text(encoding="utf-8"), f"{file} has no {test}"


def test_every_function_of_its_table_exists():
    for row in re.findall(r"^\|.*`test_.*\|$", PAGE, flags=re.MULTILINE):
        first, *rest = re.findall(r"`(\w+(?:\.\w+)?)`", re.split(r"(?<!\\)\|", row)[3])
        module, name = first.split(".")
        for function in (name, *rest):
            assert callable(getattr(importlib.import_module(f"probssl.theory.{module}"), function))


def test_the_map_of_the_room_is_complete():
    assert sorted(theory.__all__) == dir(theory) == MODULES
    assert theory.__doc__ is not None
    assert sorted(re.findall(r"^- `(\w+)`: ", theory.__doc__, flags=re.MULTILINE)) == MODULES
    assert all(inspect.ismodule(getattr(theory, name)) for name in MODULES)
    with pytest.raises(AttributeError, match="no attribute 'cube'"):
        theory.cube  # noqa: B018


@pytest.mark.parametrize("name", MODULES)
def test_every_public_name_says_what_it_is(name):
    module = importlib.import_module(f"probssl.theory.{name}")
    for label, value in vars(module).items():
        if getattr(value, "__module__", "") == module.__name__ and not label.startswith("_"):
            assert inspect.getdoc(value), f"{name}.{label} says nothing"


def test_importing_the_room_imports_nothing_heavy():
    code = "import sys, probssl.theory; print(sorted({'torch', 'scipy', 'numpy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
