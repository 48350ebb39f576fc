"""Puts runs of the tabular study into its page of the docs, so that no number there is typed.

    python docs/tabular.py RUN [RUN ...]

A run is a folder that `probssl reproduce siamese/tabular-…` wrote. Its claims, scores and figures replace what stands
between the page's marks of that study.
"""

from __future__ import annotations

import argparse
import io
import json
import os
from collections.abc import Sequence
from pathlib import Path

from probssl.errors import InputError
from probssl.files import atomic_path, write_text
from probssl.studies.tabular_page import OURS

DOCS = Path(__file__).parent
COLOURS = 128
"""Enough for lines on white; a picture is a third of the size."""


def filled(text: str, study: str, markdown: str) -> str:
    """The page with what stands between the marks of a study replaced."""
    begin, end = f"<!-- begin {study} -->", f"<!-- end {study} -->"
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise InputError(f"the page has no place for {study}: it lies between {begin} and {end}")
    return f"{before}{begin}\n{markdown.strip()}\n{end}{after}"


def shrunk(picture: bytes) -> bytes:
    """The picture with few colours."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.open(io.BytesIO(picture)).convert("RGB").quantize(COLOURS).save(buffer, format="png", optimize=True)
    return buffer.getvalue()


def publish(run: Path, page: Path, images: Path) -> None:
    """Fill the page from a run, and copy its figures."""
    result = run / "result.json"
    if not result.is_file():
        raise InputError(f"{run} holds no finished run of a study")
    study = json.loads(result.read_text(encoding="utf-8"))["experiment"]
    found = run / "claims.md"
    if not found.is_file():
        raise InputError(f"{run} is a run of {study}, which says nothing of claims")
    lines = [found.read_text(encoding="utf-8").strip(), ""]
    for picture in sorted(run.glob("*.png"), key=lambda path: (path.stem == OURS, len(path.stem), path.stem)):
        name = f"tabular-{picture.stem}" + (f"-{study.rpartition('-')[2]}" if picture.stem == OURS else "")
        with atomic_path(images / f"{name}.png") as temporary:
            temporary.write_bytes(shrunk(picture.read_bytes()))
        title = "Undoing augmentations" if picture.stem == OURS else picture.stem.replace("figure", "Figure ")
        lines.append(f"![{title}]({Path(os.path.relpath(images, page.parent)).as_posix()}/{name}.png)")
    write_text(page, filled(page.read_text(encoding="utf-8"), study, "\n".join(lines)))


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="Put runs of the tabular study into its page of the docs.")
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--page", type=Path, default=DOCS / "papers" / "siamese-tabular.md")
    parser.add_argument("--images", type=Path, default=DOCS / "images")
    chosen = parser.parse_args(arguments)
    for run in chosen.runs:
        publish(run, chosen.page, chosen.images)


if __name__ == "__main__":
    main()
