"""The code version: changed by what changes numbers, and by nothing else."""

import ast

import pytest

from probssl import studies
from probssl.errors import InputError
from probssl.grids import versions
from probssl.grids.versions import code_version, fingerprint
from tests.grids.cheap import Cheap

CODE = '''
"""A module."""
import math  # for pi


class Circle:
    """Round."""

    radius: float = 1.0
    """How far out."""

    def area(self, scale: float = 1.0):
        """π r²."""
        # the formula
        return math.pi * self.radius**2 * scale
'''
SAME = {
    "docstrings": CODE.replace("Round.", "Very round."),
    "no docstrings": CODE.replace('"""π r²."""', "").replace('    """Round."""\n', ""),
    "comments": CODE.replace("# the formula", "# known for long").replace("  # for pi", ""),
    "layout": CODE.replace("math.pi * self.radius**2 * scale", "(\n  math.pi\n  *self . radius ** 2 * scale\n )"),
    "quotes": CODE.replace('"""A module."""', "'A module, in other quotes.'"),
}
OTHER = {
    "a number": CODE.replace("**2", "**3"),
    "an operator": CODE.replace("* scale", "+ scale"),
    "a default": CODE.replace("scale: float = 1.0", "scale: float = 2.0"),
    "a name": CODE.replace("math.pi", "math.tau"),
    "an order": CODE.replace("math.pi * self.radius**2", "self.radius**2 * math.pi"),
    "text that is used": CODE.replace("return ", "return 'x' and "),
}


@pytest.mark.parametrize("change", SAME)
def test_how_it_is_written_down_does_not_count(change):
    assert SAME[change] != CODE
    assert fingerprint(SAME[change]) == fingerprint(CODE)


@pytest.mark.parametrize("change", OTHER)
def test_what_it_does_counts(change):
    assert fingerprint(OTHER[change]) != fingerprint(CODE)


def test_empty_functions_and_nesting_are_told_apart():
    assert fingerprint("def f():\n 'says'") == fingerprint("def f():\n 'says so'")
    assert fingerprint("if a:\n b()\nc()") != fingerprint("if a:\n b()\n c()")
    assert fingerprint("f(a, b)") != fingerprint("f([a, b])")
    assert fingerprint("x = 'a'") != fingerprint("x = 'b'")
    assert fingerprint("x = 1") != fingerprint("x = 1.0")


@pytest.fixture
def house(tmp_path, monkeypatch):
    """A small library in place of ours."""
    for place in ("energies.py", "objectives/kernel.c", "report/page.py", "cli/app.py", "studies/base.py", "errors.py"):
        file = tmp_path / place
        file.parent.mkdir(exist_ok=True)
        file.write_text("x = 1\n")
    monkeypatch.setattr(versions, "LIBRARY", tmp_path)

    def version():
        versions._library.cache_clear()
        versions._of_file.cache_clear()
        return code_version(Cheap())

    yield tmp_path, version
    versions._library.cache_clear()
    versions._of_file.cache_clear()


def test_maths_counts_and_reports_do_not(house):
    folder, version = house
    first = version()
    for place in ("report/page.py", "cli/app.py", "studies/base.py", "errors.py"):
        (folder / place).write_text("x = 2\n")
    (folder / "notes.md").write_text("words")
    (folder / "energies.py").write_text("# a comment\nx = 1\n")
    assert version() == first
    (folder / "energies.py").write_text("x = 2\n")
    second = version()
    (folder / "objectives" / "kernel.c").write_text("int x = 2;\n")
    third = version()
    (folder / "new_room").mkdir()
    (folder / "new_room" / "maths.py").write_text("x = 1\n")
    assert len({first, second, third, version()}) == 4


def test_a_study_counts_for_itself(monkeypatch):
    class Elsewhere(Cheap):
        code = ("tests.grids.test_versions",)

    class Both(Cheap):
        code = ("tests.grids.cheap", "tests.grids.test_versions")

    class Named(Cheap):
        code = ("tests.grids.cheap",)

    assert code_version(Named()) == code_version(Cheap())
    assert len({code_version(study) for study in (Cheap(), Elsewhere(), Both())}) == 3


def test_code_that_is_in_no_file():
    class Lost(Cheap):
        code = ("no_such_module",)

    with pytest.raises(InputError, match="no_such_module"):
        code_version(Lost())


def test_files_are_read_once(monkeypatch):
    first = code_version(Cheap())
    monkeypatch.setattr(versions, "fingerprint", None)
    assert code_version(Cheap()) == first


def test_studies_name_all_of_their_code():
    """What a study's trials import of the studies' room is named too, but for the frame that decides no number."""
    frame = {f"probssl.studies.{name}" for name in ("base", "comparison", "keys", "pictures", "versions")}
    for study in studies.catalogue():
        assert study.code, study.name
        for name in study.code:
            tree = ast.parse(versions._source(name, study.name).read_text(encoding="utf-8"))
            found = set()
            for node in ast.walk(tree):
                if isinstance(node, ast.ImportFrom) and node.module == "probssl.studies":
                    found |= {f"probssl.studies.{alias.name}" for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("probssl.studies."):
                    found.add(node.module)
            assert found <= frame | set(study.code), f"{study.name}: {name} imports {found - frame - set(study.code)}"
