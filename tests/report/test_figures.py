"""Pieces that figures are made of: panels and their axes, lines by name."""

from __future__ import annotations

import numpy as np

from probssl.report import figures


def test_outer_panels_name_the_axes() -> None:
    _, axes = figures.panels(["a", "b", "c"], 1.0, 1.0, 2, x="step", y="R²")
    assert [axis.get_title(loc="left") for axis in axes] == ["a", "b", "c"]
    assert [axis.get_xlabel() for axis in axes] == ["", "step", "step"]
    assert [axis.get_ylabel() for axis in axes] == ["R²", "", "R²"]


def test_lines_of_a_name_share_a_colour_and_a_line_of_the_legend() -> None:
    _, (axis,) = figures.panels([""], 2.0, 2.0)
    figures.lines(axis, {"a": [[(0, 1.0), (1, 2.0)], [(0, 3.0)]], "b": [[(0, 0.0)]], "none": []}, marker="o")
    drawn = axis.get_lines()
    assert [line.get_color() for line in drawn] == [figures.PALETTE[n] for n in (0, 0, 1)]
    assert [text.get_text() for text in axis.get_legend().get_texts()] == ["a", "b"]
    np.testing.assert_array_equal(drawn[0].get_xydata(), [[0, 1], [1, 2]])


def test_lines_without_a_legend() -> None:
    _, (axis,) = figures.panels([""], 2.0, 2.0)
    figures.lines(axis, {"a": [[(0, 1.0)]]}, {"a": figures.INK}, legend=False, color=figures.MUTED, linestyle="--")
    assert axis.get_legend() is None
    assert axis.get_lines()[0].get_color() == figures.MUTED
