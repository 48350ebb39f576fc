"""Update the tables of parts in these pages from the classes: `python docs/tables.py`. A test keeps them current."""

from __future__ import annotations

import re
from pathlib import Path

from probssl.parts.describe import markdown

PAGES = sorted(Path(__file__).parent.glob("*.md"))
TABLE = re.compile(r"(<!-- parts: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def current(text: str) -> str:
    """A page with its tables as the classes would have them."""
    return TABLE.sub(lambda found: f"{found[1]}{markdown(found[2])}{found[3]}", text)


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(current(page.read_text(encoding="utf-8")), encoding="utf-8")
