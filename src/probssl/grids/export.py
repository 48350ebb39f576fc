"""Trials as a table: one row each, configuration and result flattened to columns; CSV, TSV or Parquet."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from probssl.errors import InputError
from probssl.grids.keys import text

if TYPE_CHECKING:
    from probssl.grids.store import Trial

ABOUT = ("study", "key", "code", "seconds", "finished", "environment")
ENDINGS = (".csv", ".tsv", ".parquet")


def check_export(path: Path) -> None:
    """Refuse a path that cannot be written, before anything is read."""
    if path.suffix not in ENDINGS:
        raise InputError(f"{path} must end in {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}")
    if path.is_dir():
        raise InputError(f"{path} is a folder")


def write_trials(path: Path, trials: Sequence[Trial]) -> None:
    """Write trials to a file, which appears whole or not at all."""
    from probssl.files import atomic_path

    check_export(path)
    table = columns(trials)
    with atomic_path(path) as temporary:
        if path.suffix == ".parquet":
            import pyarrow
            import pyarrow.parquet

            pyarrow.parquet.write_table(pyarrow.table(table), temporary)
            return
        with temporary.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, delimiter="\t" if path.suffix == ".tsv" else ",", lineterminator="\n")
            writer.writerow(table)
            writer.writerows(zip(*table.values(), strict=True))


def columns(trials: Sequence[Trial]) -> dict[str, list[Any]]:
    """Column -> a value a trial. What a trial does not have is None.

    Settings come first, then results, then about the trial itself. A dict inside is spread over columns (`a.b`), a list
    is one column of JSON. A name that comes up twice is told apart as `config.NAME` and `result.NAME`.
    """
    configs = [_flat(trial.config) for trial in trials]
    results = [_flat(trial.result) for trial in trials]
    settings = list(dict.fromkeys(name for config in configs for name in config))
    findings = list(dict.fromkeys(name for result in results for name in result))
    twice = (set(settings) & set(findings)) | ((set(settings) | set(findings)) & set(ABOUT))
    table = {f"config.{n}" if n in twice else n: _one_type([c.get(n) for c in configs]) for n in settings}
    table |= {f"result.{n}" if n in twice else n: _one_type([r.get(n) for r in results]) for n in findings}
    return table | {name: [getattr(trial, name) for trial in trials] for name in ABOUT}


def _flat(value: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, entry in value.items():
        if isinstance(entry, dict) and entry:
            found |= _flat(entry, f"{above}{name}.")
        else:
            found[above + name] = text(entry) if isinstance(entry, (list, dict)) else entry
    return found


def _one_type(values: list[Any]) -> list[Any]:
    """A column of one type, as files of columns want it: whole numbers among fractions are fractions, the rest text."""
    kinds = {type(value) for value in values if value is not None}
    if kinds == {int, float}:
        return [None if value is None else float(value) for value in values]
    if kinds == {int} and any(abs(value) >= 2**63 for value in values if value is not None):
        return [None if value is None else str(value) for value in values]
    if len(kinds) > 1:
        return [value if value is None or isinstance(value, str) else text(value) for value in values]
    return values
