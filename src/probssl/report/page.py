"""One self-contained HTML page: sections of text, tables and figures, no network."""

from __future__ import annotations

import html
from collections.abc import Collection, Sequence

STYLE = """
:root { --ink: #1f2430; --muted: #6b7285; --line: #e3e6ee; --paper: #ffffff; --wash: #f6f7fb; --accent: #3b6fd4; }
* { box-sizing: border-box; }
body { margin: 0; background: var(--wash); color: var(--ink); font: 15px/1.55 system-ui, sans-serif; }
main { max-width: 1020px; margin: 0 auto; padding: 28px 20px 60px; }
h1 { font-size: 26px; margin: 0 0 4px; letter-spacing: -0.01em; overflow-wrap: anywhere; }
h2 { font-size: 17px; margin: 0 0 10px; }
.lead { color: var(--muted); margin: 0 0 22px; } .verdict { color: var(--ink); margin: 10px 0 0; }
section { background: var(--paper); border: 1px solid var(--line); border-radius: 10px; }
section { padding: 20px 22px; margin: 16px 0; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(380px, 100%), 1fr)); gap: 16px; }
.pair section { margin: 0; min-width: 0; } .pair table { font-size: 13px; } .pair th, .pair td { padding: 6px 5px; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 14px; font-variant-numeric: tabular-nums; }
th, td { padding: 6px 10px; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
.text td, td.text { text-align: left; white-space: normal; overflow-wrap: anywhere; }
.text th { text-align: left; } .text td:first-child { width: 45%; } .text td.strong { white-space: nowrap; }
tr.strong td, td.strong, th.strong { font-weight: 650; }
.note { color: var(--muted); font-size: 13px; margin: 10px 0 0; }
.badge { display: inline-block; border-radius: 999px; padding: 3px 12px; font-size: 13px; font-weight: 650; }
.good { background: #e2f4ec; color: #1c6b4f; } .bad { background: #fdeede; color: #97500f; }
svg, img { max-width: 100%; height: auto; display: block; }
code { font: 13px/1.5 ui-monospace, monospace; background: var(--wash); border-radius: 4px; padding: 1px 5px; }
details summary { cursor: pointer; color: var(--muted); font-size: 13px; margin-top: 12px; }
@media (max-width: 640px) {
  main { padding: 18px 8px 40px; } section { padding: 14px 12px; } table { font-size: 12px; }
  th, td { padding: 5px 4px; white-space: normal; } td:first-child { min-width: 96px; }
}
"""


def escape(text: object) -> str:
    """Text that is safe inside HTML."""
    return html.escape(str(text))


def page(title: str, lead: str, sections: Sequence[str]) -> str:
    """The whole document. `lead` and `sections` are HTML."""
    return (
        "<!doctype html>\n"
        f'<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{STYLE}</style></head><body><main><h1>{escape(title)}</h1>"
        f'<div class="lead">{lead}</div>{"".join(sections)}</main></body></html>\n'
    )


def section(title: str, body: str, note: str = "") -> str:
    """A card with a title, HTML inside it, and a quiet note below."""
    below = f'<p class="note">{escape(note)}</p>' if note else ""
    return f"<section><h2>{escape(title)}</h2>{body}{below}</section>"


def pair(*sections: str) -> str:
    """Cards side by side where the window is wide enough."""
    return f'<div class="pair">{"".join(sections)}</div>'


def table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    strong_column: int | None = None,
    strong: Sequence[Collection[int]] = (),
    text: bool = False,
) -> str:
    """A table of text cells; the first column is left-aligned, all are with `text`.

    Set off are one column, or of each row the columns in `strong`.
    """

    def cell(tag: str, bold: bool, text: str) -> str:
        kind = ' class="strong"' if bold else ""
        return f"<{tag}{kind}>{escape(text)}</{tag}>"

    header = "".join(cell("th", column == strong_column, text) for column, text in enumerate(head))
    body = ""
    for number, row in enumerate(rows):
        bold = strong[number] if strong else (strong_column,)
        body += "<tr>" + "".join(cell("td", column in bold, text) for column, text in enumerate(row)) + "</tr>"
    kind = ' class="text"' if text else ""
    return f'<div class="scroll"><table{kind}><thead><tr>{header}</tr></thead><tbody>{body}</tbody></table></div>'


def badge(text: str, good: bool) -> str:
    """A coloured word."""
    return f'<span class="badge {"good" if good else "bad"}">{escape(text)}</span>'
