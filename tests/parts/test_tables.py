"""The tables of parts in docs/ are what the classes say."""

from __future__ import annotations

import importlib.util
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_tables_in_the_docs_are_current() -> None:
    spec = importlib.util.spec_from_file_location("tables", DOCS / "tables.py")
    assert spec is not None
    assert spec.loader is not None
    tables = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tables)
    pages = {page.name: page.read_text(encoding="utf-8") for page in tables.PAGES}
    stale = [name for name, text in pages.items() if tables.current(text) != text]
    assert not stale, "run python docs/tables.py"
    assert {"objectives.md", "energies.md", "pairings.md"} <= {n for n, text in pages.items() if "<!-- parts:" in text}
