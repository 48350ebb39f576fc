"""Pieces that figures are made of: panels and their axes, lines by name, measured numbers beside published ones."""

from __future__ import annotations

from dataclasses import dataclass

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


@dataclass(frozen=True)
class Number:
    value: float | None
    spread: float | None = None
    published: float | None = None


def test_what_is_published_is_hollow_and_dashed() -> None:
    _, (axis,) = figures.panels([""], 2.0, 2.0)
    rows = [Number(0.5, 0.1, 0.6), Number(None), Number(0.7, None, 0.8)]
    figures.measured(axis, [1, 2, 3], {"a": rows, "absent": [Number(None)] * 3}, {"a": "#112233", "absent": "#445566"})
    ours, *bars, published = (one for one in axis.get_lines() if len(one.get_xdata()))
    np.testing.assert_array_equal(ours.get_xydata(), [[1, 0.5], [3, 0.7]])
    np.testing.assert_array_equal(published.get_xydata(), [[1, 0.6], [3, 0.8]])
    assert (published.get_linestyle(), published.get_markerfacecolor()) == ("--", "none")
    assert bars[0].get_ydata()[0] == 0.4


def test_marks_of_a_group_stand_side_by_side() -> None:
    _, (axis,) = figures.panels([""], 2.0, 2.0)
    colours = {"x": "#112233", "y": "#445566"}
    figures.marks(axis, {"first": {"x": [1.0, 2.0], "y": [3.0]}, "second": {}}, colours, {("first", "y"): 4.0})
    x, y, published = (one for one in axis.get_lines() if len(one.get_xdata()))
    assert x.get_xdata()[0] == x.get_xdata()[1] < 0 < y.get_xdata()[0] == published.get_xdata()[0] < 0.5
    assert (published.get_ydata()[0], published.get_markerfacecolor()) == (4, "none")
    assert [text.get_text() for text in axis.get_xticklabels()] == ["first", "second"]


def test_what_was_logged_under_a_name() -> None:
    history = [
        {"step": 1, "loss": 2.0},
        {"step": 2, "rankme": 1.0},
        {"step": 3, "loss": None},
        {"step": 4, "loss": 1.0},
    ]
    assert figures.logged(history, "loss") == [(1, 2.0), (4, 1.0)]


def test_a_legend_names_colours_and_styles() -> None:
    figure, _ = figures.panels([""], 2.0, 2.0)
    figures.legend(figure, {"ours": "#112233", "published": figures.HOLLOW})
    ours, published = figure.legends[0].get_lines()
    assert (ours.get_color(), published.get_markerfacecolor()) == ("#112233", "none")


def test_ticks_of_a_logarithmic_axis() -> None:
    _, (axis,) = figures.new_figure(3, 2)
    figures.log_ticks(axis, "x", [0.1, 10], ["low", "high"])
    figures.log_ticks(axis, "y", [1, 100])
    assert (axis.get_xscale(), axis.get_yscale()) == ("log", "log")
    assert [text.get_text() for text in axis.get_xticklabels()] == ["low", "high"]
    assert [text.get_text() for text in axis.get_yticklabels()] == ["1", "100"]
    assert not len(axis.xaxis.get_minorticklocs())
