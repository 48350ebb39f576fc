"""The shape of the house: who may import whom, what is never imported, and what every public class must say."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import probssl
from probssl import energies, errors, objectives, pairings
from probssl.energies import Energy
from probssl.objectives import Objective
from probssl.pairings import Pairing
from tests.objectives.members import COUNTED, ENERGIES, OBJECTIVES, PAIRINGS, SAMPLED, SAMPLED_ROWS

SOURCE = Path(probssl.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))

ANYTHING = None
ALLOWED: dict[str, set[str] | None] = {
    "errors": set(),
    "layout": {"errors"},
    "files": {"errors"},
    "schema": {"errors"},
    "memory": {"errors"},
    "parts.part": {"layout", "errors"},
    "parts": {
        "schema",
        "parts.part",
        "energies",
        "encoders",
        "objectives",
        "pairings",
        "training",
        "worlds",
        "layout",
        "errors",
    },
    "pairings": {"parts.part", "layout", "errors"},
    "encoders": {"parts.part", "layout", "errors"},
    "energies": {"parts.part", "encoders", "layout", "errors"},
    "kernels": {"files"},
    "samplers": {"errors"},
    "metrics": {"encoders", "errors"},
    "theory": {"errors"},
    "symbolic": {"errors"},
    "data": {"files", "schema", "worlds", "memory", "layout", "errors"},
    "worlds": {"pairings", "theory", "memory", "layout", "errors"},
    "objectives": {
        "schema",
        "parts.part",
        "pairings",
        "energies",
        "encoders",
        "samplers",
        "symbolic",
        "kernels",
        "layout",
        "errors",
    },
    "training": {
        "files",
        "schema",
        "parts.part",
        "samplers",
        "objectives",
        "encoders",
        "energies",
        "pairings",
        "metrics",
        "theory",
        "kernels",
        "errors",
    },
    "report": {
        "files",
        "schema",
        "objectives",
        "metrics",
        "theory",
        "data",
        "training",
        "model",
        "runs",
        "parts",
        "parts.part",
        "errors",
    },
    "model": {
        "files",
        "schema",
        *("parts", "parts.part", "data", "encoders", "energies", "objectives", "pairings", "samplers", "worlds"),
        *("training", "metrics", "layout", "errors"),
    },
    "runs": ANYTHING,
    "estimators": ANYTHING,
    "comparing": ANYTHING,
    "grids": {"files", "schema", "memory", "training", "kernels", "errors"},
    "studies": ANYTHING,
    "cli": ANYTHING,
    "__main__": ANYTHING,
    "__init__": ANYTHING,  # lazily, as the test of `import probssl` below makes sure
}
DOWNSTREAM_ONLY = {
    "studies": {"studies", "cli", "__main__", "__init__"},
    "cli": {"cli", "__main__"},
    "__main__": {"__main__"},
}
"""Rooms that only these may import, whatever else these may."""


def name_of(path: Path) -> str:
    """The dotted name of a module; packages keep their `__init__`."""
    return ".".join(("probssl", *path.relative_to(SOURCE).with_suffix("").parts))


def room_of(name: str) -> str:
    """The part of the library that a module is of; the contract of parts and their names are a room below all."""
    parts = name.split(".")
    if parts[1:3] in (["parts", "part"], ["parts", "registry"]):
        return "parts.part"
    return parts[1] if len(parts) > 1 else "__init__"


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Every module that a file imports when it runs, wherever in the file it does so, by its full dotted name."""
    package = name_of(path).split(".")[:-1]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for_types = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for statement in node.body
        for inner in ast.walk(statement)
    }
    for node in ast.walk(tree):
        if node in for_types:
            continue
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                yield node.lineno, f"{module}.{alias.name}"
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in ("import_module", "__import__") and isinstance(node.args[0].value, str):
                yield node.lineno, node.args[0].value


def imported_rooms(path: Path) -> Iterator[tuple[int, str]]:
    rooms = {room_of(name_of(module)) for module in MODULES}
    for line, name in imports(path):
        if name.startswith("probssl.") and room_of(name) in rooms:
            yield line, room_of(name)  # neither `import probssl` nor `from probssl import __version__` enters a room


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_run_one_way(path: Path) -> None:
    room = room_of(name_of(path))
    assert room in ALLOWED, f"{room} is a new room: say in this test what it may import"
    allowed = ALLOWED[room]
    wrong = [
        f"{path.name}:{line} imports {other}"
        for line, other in imported_rooms(path)
        if other != room
        and ((allowed is not None and other not in allowed) or room not in DOWNSTREAM_ONLY.get(other, {room}))
    ]
    assert not wrong, f"{room} may not do that: {'; '.join(wrong)}"


def test_the_reader_of_imports_reads_every_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "room"
    folder.mkdir()
    file = folder / "module.py"
    file.write_text(
        "import a.b\nfrom probssl.c import d\nfrom . import e\nfrom ..f import g\n"
        "def late():\n    import h\n    importlib.import_module('i.j')\n"
    )
    monkeypatch.setattr(sys.modules[__name__], "SOURCE", tmp_path)
    expected = ["a.b", "probssl.c.d", "probssl.room.e", "probssl.f.g", "h", "i.j"]
    assert sorted(name for _, name in imports(file)) == sorted(expected)


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_torchvision_is_never_imported(path: Path) -> None:
    assert not [line for line, name in imports(path) if name.split(".")[0] == "torchvision"]


def test_importing_the_package_does_not_import_torch() -> None:
    code = "import sys, probssl; print(sorted({'torch', 'sklearn', 'matplotlib'} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(SOURCE.parent), "PATH": ""},
    )
    assert done.stdout.strip() == "[]"


def public_classes(module, base: type) -> list[type]:
    found = [value for name, value in vars(module).items() if inspect.isclass(value) and not name.startswith("_")]
    return [value for value in found if issubclass(value, base) and not inspect.isabstract(value)]


PUBLIC = [
    *public_classes(energies, Energy),
    *public_classes(pairings, Pairing),
    *public_classes(objectives, Objective),
]


@pytest.mark.parametrize("cls", PUBLIC, ids=lambda cls: cls.__name__)
def test_docstrings_give_a_formula(cls: type) -> None:
    text = cls.__dict__.get("__doc__") or ""
    assert " = " in text or "∝" in text, f"{cls.__name__} does not say what it computes"


def concrete(base: type) -> set[type]:
    """All concrete classes of a family that the library defines, but for references of losses and parts of studies."""
    found = set()
    for cls in base.__subclasses__():
        ours = cls.__module__.startswith("probssl.")
        if ours and not cls.__module__.startswith(("probssl.objectives.reference", "probssl.studies.")):
            found |= concrete(cls)
            if not inspect.isabstract(cls) and not cls.__name__.startswith("_"):
                found.add(cls)
    return found


@pytest.mark.parametrize(
    ("base", "members"),
    [(Energy, ENERGIES), (Pairing, [*PAIRINGS, *SAMPLED, *SAMPLED_ROWS, *COUNTED]), (Objective, OBJECTIVES)],
    ids=lambda v: "",
)
def test_every_class_is_in_the_catalogue(base: type, members: list) -> None:
    missing = concrete(base) - {type(member.built()) for member in members}
    assert not missing, f"add to tests/objectives/members.py: {', '.join(sorted(cls.__name__ for cls in missing))}"


def test_members_have_names_of_their_own() -> None:
    for members in (ENERGIES, PAIRINGS, OBJECTIVES):
        names = [member.name for member in members]
        assert len(set(names)) == len(names)


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_errors_end_without_a_full_stop(path: Path) -> None:
    ours = {name for name, value in vars(errors).items() if inspect.isclass(value)}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ours and node.args:
            message = node.args[0]
            last = message.values[-1] if isinstance(message, ast.JoinedStr) else message
            text = last.value if isinstance(last, ast.Constant) else ""
            assert not (isinstance(text, str) and text.endswith(".")), f"{path.name}:{node.lineno}"
