"""Rows, tables and curves that the pages of the studies of identifiability share; nothing here decides a number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from probssl.report import figures
from probssl.report import page as html
from probssl.studies.base import Results, Row
from probssl.studies.comparison import references, verdict


def grouped(results: Results) -> dict[str, Results]:
    """The trials of each setting, in the order of the grid."""
    found: dict[str, Results] = {}
    for config, result in results:
        found.setdefault(config["setting"], []).append((config, result))
    return found


def summary(study: str, results: Results, measures: Mapping[str, str]) -> list[Row]:
    """Mean and standard deviation over seeds of every measure (key of the result -> its name) that a setting has."""
    known = references(study)
    rows = []
    for setting, group in grouped(results).items():
        for key, metric in measures.items():
            values = [result[key] for _, result in group if result.get(key) is not None]
            if values:
                mean, spread = float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
                reference = known.get((setting, metric))
                found = verdict(mean, spread, len(values), reference)
                rows.append(Row(setting, metric, mean, spread, reference.value if reference else None, found))
    return rows


def numbers(rows: list[Row], metrics: Sequence[str]) -> str:
    """A table of settings by metrics, the published number behind ours where there is one."""
    cells = {(row.setting, row.metric): row for row in rows}
    body = []
    for setting in dict.fromkeys(row.setting for row in rows):
        line = [setting]
        for metric in metrics:
            row = cells.get((setting, metric))
            if row is None or row.value is None:
                line.append("–")
            else:
                beside = f" ({row.published:.3g})" if row.published is not None else ""
                line.append(f"{row.value:.3f}{beside}")
        body.append(line)
    return html.table(["setting", *metrics], body)


def curves(axis: Any, results: Results, colours: Mapping[str, str], *, key: str = "r2", x: str = "step") -> None:
    """A measure while training, one line a trial, coloured by setting."""
    labelled: set[str] = set()
    for setting, group in grouped(results).items():
        if setting not in colours:
            continue
        for _, result in group:
            points = [(point[x], point[key]) for point in result["curve"] if point.get(key) is not None]
            label = None if setting in labelled else setting
            labelled.add(setting)
            axis.plot(*zip(*points, strict=True), color=colours[setting], linewidth=1.3, label=label)


def dress(axis: Any, title: str, x: str, y: str) -> None:
    """Title and names of the axes, in the house style."""
    axis.set_title(title, fontsize=9, color=figures.INK, loc="left")
    axis.set_xlabel(x, fontsize=8)
    axis.set_ylabel(y, fontsize=8)


def palette(settings: Sequence[str]) -> dict[str, str]:
    """A colour for every setting."""
    return {setting: figures.PALETTE[number % len(figures.PALETTE)] for number, setting in enumerate(settings)}
