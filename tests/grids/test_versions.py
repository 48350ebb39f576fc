"""The code version: changed by what changes numbers, and by nothing else."""

import pytest

from probssl import studies
from probssl.errors import InputError
from probssl.grids import versions
from probssl.grids.versions import code_version, fingerprint
from probssl.studies import experiments
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


HOUSE = {
    "probssl/__init__.py": "from probssl.objectives import InfoNCE",
    "probssl/energies.py": "x = 1",
    "probssl/errors.py": "x = 1",
    "probssl/objectives/__init__.py": """
from probssl.objectives.infonce import InfoNCE
from probssl.objectives.snl import SNL
""",
    "probssl/objectives/infonce.py": "from probssl.energies import x",
    "probssl/objectives/snl.py": "x = 1",
    "probssl/kernels/__init__.py": "from probssl.kernels.pairs import sums",
    "probssl/kernels/pairs.py": "x = 1",
    "probssl/kernels/pairs.c": "int x = 1;",
    "probssl/hints.py": "x = 1",
    "probssl/report/page.py": "x = 1",
    "trials_of_the_house.py": """
from typing import TYPE_CHECKING
from probssl.objectives import InfoNCE
from probssl.report import page

if TYPE_CHECKING:
    from probssl.hints import x

def trial():
    from probssl import kernels
""",
    "by_attribute.py": "import probssl\nprobssl.InfoNCE()",
}


@pytest.fixture
def house(tmp_path, monkeypatch):
    """A small library in place of ours, and the version of a module that uses it."""
    for place, text in HOUSE.items():
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).write_text(text)
    monkeypatch.setattr(versions, "LIBRARY", tmp_path / "probssl")
    monkeypatch.syspath_prepend(tmp_path)

    def forget():
        for function in (versions._of_file, versions._tree, versions._imported, versions._defining):
            function.cache_clear()

    def version(module="trials_of_the_house"):
        forget()
        return code_version([module])

    yield tmp_path / "probssl", version
    forget()


COUNTS = ("energies.py", "objectives/infonce.py", "kernels/pairs.py", "kernels/pairs.c")
DOES_NOT = ("objectives/snl.py", "report/page.py", "errors.py", "hints.py")


@pytest.mark.parametrize("place", [*COUNTS, *DOES_NOT])
def test_what_a_module_imports_counts_and_nothing_else(house, place):
    folder, version = house
    before = version()
    (folder / place).write_text(HOUSE[f"probssl/{place}"] + "\ny = 2")
    assert (version() == before) == (place in DOES_NOT)


def test_names_of_the_package_count_as_what_defines_them(house):
    folder, version = house
    before = version("by_attribute")
    (folder / "objectives" / "snl.py").write_text("x = 2")
    assert version("by_attribute") == before
    (folder / "energies.py").write_text("x = 2")
    assert version("by_attribute") != before


def test_the_numeric_path_counts(monkeypatch):
    before = code_version(["tests.grids.cheap"])
    monkeypatch.setattr(versions, "numeric_path", lambda: "torch 9, AVX9")
    assert code_version(["tests.grids.cheap"]) != before


def test_modules_count():
    ours, other = "tests.grids.cheap", "tests.grids.test_versions"
    assert len({code_version(modules) for modules in ([ours], [other], [ours, other])}) == 3
    assert experiments.version_of(Cheap()) == code_version([ours])


def test_code_that_is_in_no_file():
    with pytest.raises(InputError, match="no_such_module"):
        code_version(["no_such_module"])


def test_what_a_study_computes_with_is_in_its_version():
    """The modules that a study names, and what they import, hold all functions that its trials call."""
    for study in studies.catalogue():
        known = {path.stem for path in versions._closure(study.code)}
        for method in (type(study).trial, type(study).run_batch):
            called = [method.__globals__.get(name) for name in method.__code__.co_names]
            modules = {getattr(value, "__module__", None) or getattr(value, "__name__", "") for value in called}
            used = {name.rpartition(".")[2] for name in modules if name.startswith("probssl.")}
            assert used <= known, f"{study.name} computes with {used - known}, which its code does not name"
