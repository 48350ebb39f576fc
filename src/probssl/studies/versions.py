"""The version of the code that decides a study's numbers: a hash of what it does, not of how it is written down."""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.metadata
import importlib.util
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import probssl
from probssl.errors import InputError

if TYPE_CHECKING:
    from probssl.studies.base import Study

LIBRARY = Path(__file__).resolve().parents[1]
CODE = (".py", ".c", ".h", ".cpp")

WITHOUT_INFLUENCE = (
    "__init__.py",
    "__main__.py",
    "errors.py",
    "runs/folder.py",
    "runs/listing.py",
    "runs/reading.py",
    "runs/starting.py",
    "runs/workflow.py",
    "runs/doctor.py",
    "cli",
    "report",
    "comparing",
    "studies",
    "training/progress.py",
)
"""What no trial's numbers depend on. Everything else counts, so that a new room counts before anyone thinks of it."""


def code_version(study: Study) -> str:
    """A hash of the library's code and of the modules that the study names, free of comments, docstrings and layout."""
    return version_of(study.code or (type(study).__module__,), study.name)


def version_of(modules: Sequence[str], asking: str) -> str:
    """The same of modules by name; who is asking is named where one has no file."""
    own = sorted(_of_file(_source(name, asking)) for name in modules)  # a script's name depends on how it is run
    return hashlib.sha256("\0".join((_library(), *own)).encode()).hexdigest()[:16]


@functools.cache
def environment() -> str:
    """What else a number may depend on in its last digits: recorded with every trial, and not part of its key."""
    versions = [f"{name} {importlib.metadata.version(name)}" for name in ("torch", "numpy", "scipy", "scikit-learn")]
    ours = f"probssl {probssl.__version__}, python {platform.python_version()}"
    return ", ".join((ours, *versions, f"{platform.system()} {platform.machine()}"))


@functools.cache
def _library() -> str:
    digest = hashlib.sha256()
    for path in sorted(path for path in LIBRARY.rglob("*") if path.suffix in CODE):
        place = path.relative_to(LIBRARY).as_posix()
        if not any(place == part or place.startswith(f"{part}/") for part in WITHOUT_INFLUENCE):
            digest.update(f"\0{place}\0{_of_file(path)}".encode())
    return digest.hexdigest()


def _source(name: str, asking: str) -> Path:
    """The file of a module, without importing it."""
    module = sys.modules.get(name)
    file = getattr(module, "__file__", None)
    if file is None and module is None:
        found = importlib.util.find_spec(name)
        file = None if found is None else found.origin
    if file is None or not Path(file).is_file():
        raise InputError(f"the study {asking!r} needs its code in a file, and {name} has none")
    return Path(file)


@functools.cache
def _of_file(path: Path) -> str:
    source = path.read_text(encoding="utf-8")
    return fingerprint(source) if path.suffix == ".py" else hashlib.sha256(source.encode()).hexdigest()


def fingerprint(source: str) -> str:
    """A hash of what Python code does: equal for sources that differ in comments, docstrings and layout only.

    It does not depend on the version of Python either: fields of the syntax tree that are empty are left out, for new
    versions add such.
    """
    parts: list[str] = []
    _write(ast.parse(source), parts)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _write(node: object, parts: list[str]) -> None:
    if isinstance(node, ast.AST):
        parts.append(type(node).__name__)
        for name in node._fields:
            value = getattr(node, name, None)
            if value is not None and value != []:
                parts.append(name)
                _write(value, parts)
    elif isinstance(node, list):
        kept = [entry for entry in node if not _is_bare_text(entry)]
        parts.append(str(len(kept)))
        for entry in kept:
            _write(entry, parts)
    else:
        parts.append(repr(node))


def _is_bare_text(node: object) -> bool:
    """A docstring, or text that stands alone: it does nothing."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
