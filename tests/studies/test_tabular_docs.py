"""The docs of the tabular study are filled from runs, and only between their marks."""

import importlib.util
import json
from pathlib import Path

import pytest

from probssl import studies
from probssl.errors import InputError
from probssl.report import figures

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "papers" / "siamese-tabular.md"
spec = importlib.util.spec_from_file_location("tabular", DOCS / "tabular.py")
tabular_docs = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tabular_docs)


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "result.json").write_text(json.dumps({"experiment": "siamese/tabular-dimension"}))
    (folder / "claims.md").write_text("| a | table |\n")
    figure, (axis,) = figures.new_figure(2, 2)
    axis.plot([0, 1], [1, 0])
    for name in ("figure10", "figure4", "deaugmenting"):
        (folder / f"{name}.png").write_bytes(figures.png_bytes(figure))
    return folder


def test_fills_and_fills_again(run, tmp_path):
    images = tmp_path / "docs" / "images"
    images.mkdir(parents=True)
    page = tmp_path / "docs" / "papers" / "page.md"
    page.parent.mkdir()
    page.write_text(
        "before\n<!-- begin siamese/tabular-dimension -->\nold\n<!-- end siamese/tabular-dimension -->\nafter\n"
    )
    for _ in range(2):
        tabular_docs.main([str(run), "--page", str(page), "--images", str(images)])
    assert page.read_text().splitlines() == [
        "before",
        "<!-- begin siamese/tabular-dimension -->",
        "| a | table |",
        "",
        "![Figure 4](../images/tabular-figure4.png)",
        "![Figure 10](../images/tabular-figure10.png)",
        "![Undoing augmentations](../images/tabular-deaugmenting-dimension.png)",
        "<!-- end siamese/tabular-dimension -->",
        "after",
    ]
    for picture in images.iterdir():
        assert picture.read_bytes().startswith(b"\x89PNG")
    assert len(list(images.iterdir())) == 3


def test_refusals(run, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("no marks")
    with pytest.raises(InputError, match="no place for siamese/tabular-dimension"):
        tabular_docs.publish(run, page, tmp_path)
    with pytest.raises(InputError, match="no finished run"):
        tabular_docs.publish(tmp_path, page, tmp_path)


def test_the_page_has_a_place_for_each_sweep():
    text = PAGE.read_text(encoding="utf-8")
    for study in (study.name for study in studies.catalogue() if "tabular" in study.name):
        assert tabular_docs.filled(text, study, "x") != text
