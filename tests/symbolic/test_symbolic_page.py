"""The page docs/symbolic.md: its examples print what it says."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import re
from pathlib import Path

import pytest

from probssl import symbolic

PAGE = (Path(__file__).parents[2] / "docs" / "symbolic.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", PAGE, flags=re.DOTALL)
NUMBER = re.compile(r"-?\d+(?:\.\d*)?(?:e-?\d+)?")


def test_the_page_has_its_examples() -> None:
    assert len(EXAMPLES) == PAGE.count("```python") == 3


@pytest.mark.parametrize(("code", "told"), EXAMPLES, ids=["constraint", "digits", "compiled"])
def test_examples_print_what_the_page_says(code: str, told: str) -> None:
    if "from_formula" in code and importlib.util.find_spec("pysdd") is None:
        pytest.skip("needs the extra symbolic")
    names: dict[str, object] = {}
    if "import torch" not in code:  # the page has imported it above
        exec("import torch", names)
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(code, "symbolic.md", "exec"), names)
    assert NUMBER.sub("#", out.getvalue()) == NUMBER.sub("#", told)
    found, expected = ([float(number) for number in NUMBER.findall(text)] for text in (out.getvalue(), told))
    assert found == pytest.approx(expected, rel=1e-3, abs=0.03)


def test_every_name_of_the_room_that_it_shows_exists() -> None:
    for name in re.findall(r"^- `(\w+)\(", PAGE, flags=re.MULTILINE):
        assert name in symbolic.__all__
    for name in re.findall(r"^\| `\.(\w+)\(", PAGE, flags=re.MULTILINE):
        assert callable(getattr(symbolic.Constraint, name))
