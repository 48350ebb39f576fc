"""The report of a comparison: what won, whether that is worth anything, and what predicts it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import probssl
from probssl.files import write_text
from probssl.report import compare_figures, figures
from probssl.report import page as html
from probssl.report.compare_console import number

if TYPE_CHECKING:
    from probssl.comparing import CompareResult
    from probssl.comparing.standings import Standing

TOP = 20
"""Rows of the leaderboard that are shown at once."""


def write(result: CompareResult) -> Path:
    """Write the page of a comparison and say where it is."""
    write_text(result.page, render(result))
    return result.page


def render(result: CompareResult) -> str:
    """The page as text."""
    trained = f"{len(result.outcomes):,} models of {len(result.leaderboard):,} configurations in {result.seconds:.0f} s"
    lead = f"{_badge(result)} &nbsp;{html.escape(result.about)}; {trained}"
    sections = [_findings(result), _overview(result)]
    if result.final is not None:
        sections.append(_test(result))
    if result.predictors:
        sections.append(_predictors(result))
    sections += [_leaderboard(result), _how(result)]
    return html.page(f"{result.source}: which loss suits it", lead, sections)


def _badge(result: CompareResult) -> str:
    if result.final is None:
        return html.badge("ranked without a label" if result.label is None else "not tested", good=result.label is None)
    name, raw, _ = result.beside
    worse = [n for n in (name, raw) if n in result.final.others and result.final.ahead_of(n).mean < 0]
    if worse:
        return html.badge(f"not better than {' or '.join(worse)}", good=False)
    ahead = result.final.ahead_of(name)
    return html.badge("better than PCA" if ahead.clear else "about as good as PCA", good=ahead.clear)


def _findings(result: CompareResult) -> str:
    items = "".join(f"<li>{html.escape(line)}.</li>" for line in result.findings)
    notes = "".join(f"<li>{html.escape(note[0].upper() + note[1:])}.</li>" for note in result.notes)
    report = result.folder / "best" / "report.html"
    its = '<a href="best/report.html">its report</a>' if report.is_file() else "<code>probssl report</code> draws it"
    link = f"<p>The winning model is a run of its own in <code>best/</code>; {its}.</p>"
    return html.section("What it says", f"<ul>{items}{notes}</ul>{link}")


def _overview(result: CompareResult) -> str:
    return html.section(
        "Every loss, energy and dimension",
        figures.svg(compare_figures.overview(result)),
        f"{result.rounds[0].lengths[-1]:,} steps each in the first round, losses of equal dimension from the same "
        "initial weights, measured on the same rows as the baselines. Orange is the winner.",
    )


def _test(result: CompareResult) -> str:
    final = result.final
    assert final is not None
    body = [["winner", f"{final.winner.mean:.3f}", ""]]
    for name, tested in final.others.items():
        ahead = final.ahead_of(name)
        body.append([name, f"{tested.mean:.3f}", f"{ahead.mean:+.3f} ± {ahead.error:.3f}"])
    spread = ", ".join(f"{value:.3f}" for value in final.seeds)
    return html.section(
        "On rows kept aside",
        html.table(["", result.criterion.title, "winner ahead by"], body),
        f"Fitted on {final.fitted_rows:,} rows, tested on {final.rows:,} that no encoder trained on and no choice was "
        f"made by; ± is the standard error over these rows. The winner from each of its seeds: {spread}.",
    )


def _predictors(result: CompareResult) -> str:
    body = [
        [
            p.score.title,
            f"{p.correlation:.2f} [{p.low:.2f}, {p.high:.2f}]",
            number(p.within_dimension, 2),
            f"{p.chosen_value:.3f}",
        ]
        for p in result.predictors
    ]
    head = ["score", "ρ [95%]", "equal dim.", "its choice"]
    meaning = "".join(
        f"<li><b>{html.escape(p.score.title)}</b>: {html.escape(p.score.about)}</li>" for p in result.predictors
    )
    return html.section(
        "Which score predicts it without the label",
        html.pair(figures.svg(compare_figures.predictors(result)), html.table(head, body))
        + f"<details><summary>What each score is, and what it cannot tell</summary><ul>{meaning}</ul></details>",
        f"Spearman's rank correlation with the {result.criterion.title} over the configurations of the first round, "
        "signed so that 1 is perfect, with an interval by bootstrap over configurations; the same among models of "
        "equal dimension; and what the configuration is worth that the score would have chosen. Other data may differ.",
    )


def _leaderboard(result: CompareResult) -> str:
    arrow = {1: "↑", -1: "↓"}
    titles = [f"{score.short or score.title} {arrow[score.sign]}" for score in result.scores]
    head = ["configuration", "steps", "seeds", *titles]
    rows = [
        [_name(s), f"{s.steps:,}", f"{s.seeds}", *(_cell(result, s, score.name) for score in result.scores)]
        for s in result.leaderboard
    ]
    beside = [
        [name, "–", "–", *(number(values.get(score.name)) for score in result.scores)]
        for name, values in result.final_baselines.items()
    ]
    more = html.table(head, rows[TOP:]) if len(rows) > TOP else ""
    rest = f"<details><summary>the other {len(rows) - TOP:,}</summary>{more}</details>" if more else ""
    return html.section(
        "Leaderboard",
        html.table(head, [*rows[:TOP], *beside], strong_column=3) + rest,
        "Those who came furthest first, each with the scores of its last round; ± is the standard deviation over "
        "seeds. CLID is relative to the models of a round. All of it is in leaderboard.csv.",
    )


def _how(result: CompareResult) -> str:
    head = ["round", "configurations", "steps each", "seeds", "models trained"]
    rows = [
        [f"{r.number}", f"{r.configurations:,}", r.steps, f"{r.seeds}", f"{result.finished(r.number):,}"]
        for r in result.rounds
    ]
    given = "" if result.minutes is None else f" of {60 * result.minutes:.0f}"
    return html.section(
        "How it was done",
        html.table(head, rows) + f"<p>{html.escape(result.protocol)}.</p>",
        f"{result.seconds:.0f} s{given}; time decides how many configurations are reached, and never how long one "
        f"trains. probssl {probssl.__version__}.",
    )


def _name(standing: Standing) -> str:
    c = standing.candidate
    flaw = " (failed)" if standing.failure else " (collapsed)" if standing.collapsed else ""
    pairing = f" · {c.pairing}" if c.pairing else ""
    return f"{standing.rank}. {c.objective} · {c.energy} · {c.dim}{pairing}{flaw}"


def _cell(result: CompareResult, standing: Standing, name: str) -> str:
    """A score; what is ranked by comes with its spread."""
    if name == result.criterion.name:
        return standing.shown(name)
    return number(standing.means.get(name), {"rankme": 1, "clid": 1, "alignment": 2, "uniformity": 2}.get(name, 3))
