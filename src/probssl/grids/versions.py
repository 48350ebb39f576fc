"""The version of what decides a trial's numbers: a hash of the code that it runs and of the arithmetic under it."""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.metadata
import importlib.util
import platform
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import probssl
from probssl.errors import InputError

LIBRARY = Path(__file__).resolve().parents[1]

WITHOUT_INFLUENCE = (
    "probssl.errors",
    "probssl.files",
    "probssl.schema",
    "probssl.runs.folder",
    "probssl.runs.listing",
    "probssl.runs.reading",
    "probssl.runs.starting",
    "probssl.runs.workflow",
    "probssl.runs.doctor",
    "probssl.cli",
    "probssl.report",
    "probssl.grids",
    "probssl.studies.base",
    "probssl.studies.comparison",
    "probssl.studies.page",
    "probssl.studies.pictures",
    "probssl.training.progress",
)
"""What no trial's numbers depend on, although what computes them imports it."""


def code_version(modules: Iterable[str]) -> str:
    """A hash of modules, of all of the library that they import, and of the numeric path.

    Comments, docstrings and layout do not count, nor does what is imported for type checkers alone.
    """
    code = sorted(_of_file(path) for path in _closure(modules))
    return hashlib.sha256("\0".join((numeric_path(), *code)).encode()).hexdigest()[:16]


@functools.cache
def numeric_path() -> str:
    """What the last digits of a training on one thread depend on beside its code."""
    import torch

    from probssl import kernels

    return f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}, kernel {kernels.variant()}"


@functools.cache
def environment() -> str:
    """Where a trial was computed: recorded with it, and not part of its key."""
    versions = [f"{name} {importlib.metadata.version(name)}" for name in ("torch", "numpy", "scipy", "scikit-learn")]
    ours = f"probssl {probssl.__version__}, python {platform.python_version()}"
    return ", ".join((ours, *versions, f"{platform.system()} {platform.machine()}"))


# What a module imports


def _closure(modules: Iterable[str]) -> set[Path]:
    """The files of modules, and those of the library that they import, directly or not; with C sources beside them."""
    found: set[Path] = set()
    waiting = [_source(name) for name in modules]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found |= {path, *path.parent.glob("*.[ch]")}
            waiting += _imported(path)
    return found


@functools.cache
def _imported(path: Path) -> tuple[Path, ...]:
    """The files of the library that a file imports names from: through a package, those that define the names."""
    wanted: list[Path] = []
    for node in _executed(_tree(path)):
        match node:
            case ast.Import():
                wanted += [file for alias in node.names for file in _defining(alias.name, None)]
            case ast.ImportFrom(level=0):
                wanted += [file for alias in node.names for file in _defining(node.module or "", alias.name)]
            case ast.Attribute(value=ast.Name(id="probssl")):
                wanted += _defining("probssl", node.attr)
    return tuple(dict.fromkeys(wanted))


@functools.cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _executed(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those that only type checkers see."""
    waiting = [tree]
    for node in waiting:
        match node:
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                waiting += node.orelse
            case _:
                yield node
                waiting += ast.iter_child_nodes(node)


@functools.cache
def _defining(module: str, name: str | None) -> tuple[Path, ...]:
    """The files that define a name of a module, or all of the module, if it is of the library and has influence."""
    if name is not None and _file(f"{module}.{name}") is not None:
        module, name = f"{module}.{name}", None
    file = _file(module)
    if file is None or any(f"{module}.".startswith(f"{other}.") for other in WITHOUT_INFLUENCE):
        return ()
    if file.name != "__init__.py":
        return (file,)
    if name is None:
        return _imported(file)
    imports = [node for node in ast.walk(_tree(file)) if isinstance(node, ast.ImportFrom)]
    sources = [node for node in imports if any((alias.asname or alias.name) == name for alias in node.names)]
    return tuple(path for node in sources for path in _defining(node.module or "", name))


def _file(module: str) -> Path | None:
    """The file of a module of the library."""
    package, _, rest = module.partition(".")
    if package != "probssl":
        return None
    place = LIBRARY.joinpath(*rest.split(".")) if rest else LIBRARY
    return next((file for file in (place.with_suffix(".py"), place / "__init__.py") if file.is_file()), None)


def _source(name: str) -> Path:
    """The file of a module, without importing it."""
    module = sys.modules.get(name)
    file = getattr(module, "__file__", None)
    if file is None and module is None:
        found = importlib.util.find_spec(name)
        file = None if found is None else found.origin
    if file is None or not Path(file).is_file():
        raise InputError(f"what computes trials must be in a file, and {name} is not")
    return Path(file).resolve()


# What code does


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
