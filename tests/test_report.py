"""The page of a run: one file, complete, without a network, without labels, without the extra, safe from its data."""

import re
import sys
from html.parser import HTMLParser

import numpy as np
import pytest

from probssl.data import Table
from probssl.recipe import Recipe
from probssl.report import run_page
from probssl.runs import Run, assess, train

SECTIONS = [
    "How far from the best possible",
    "What the representation is worth",
    "How well it undoes augmentations",
    "The representation",
    "Loss and its terms",
    "Rank while training",
    "Spectrum of the representation",
    "Configuration",
]
EVIL = "</script><script>alert('pwned')</script><b>$\\bad"


class Page(HTMLParser):
    """Headings, visible text, tags, and every address that a browser would follow by itself or by a click."""

    def __init__(self, text):
        super().__init__()
        self.headings, self.words, self.addresses, self.tags, self.scripts, self._open = [], [], [], [], [], ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self._open = tag
        names = ("src", "href", "xlink:href", "srcset", "data", "action")
        self.addresses += [value for name, value in attributes if name in names]

    def handle_endtag(self, tag):
        self._open = ""

    def handle_data(self, data):
        if self._open in ("script", "style"):
            self.scripts.append(data)
            return
        self.words.append(data)
        if self._open == "h2":
            self.headings.append(data)


def make_run(folder, *, labelled=True, name="plain", columns=4, finish=True, **options):
    random = np.random.default_rng(0)
    kind = random.integers(0, 2, 60)
    table = Table(
        f"{name}.csv",
        random.normal(size=(60, columns)) + 2 * kind[:, None],
        tuple(f"{name}{i}" for i in range(columns)),
        labels=kind if labelled else None,
        classes=(f"{name} no", f"{name} yes") if labelled else (),
        label_name=f"{name} class" if labelled else None,
    )
    recipe = Recipe(steps=40).with_options(**options)
    model, fitted = train(table, recipe, folder)
    if finish and fitted.failure is None:
        assess(model, table, folder)
    return Run(folder)


def render(run, finite=True):
    text = run_page.render(run)
    page = Page(text)
    assert text.startswith("<!doctype html>")
    assert [address for address in page.addresses if not address.startswith(("data:image/png;base64,", "#"))] == []
    assert not {"link", "iframe", "object", "embed", "base"} & set(page.tags)
    assert "@import" not in text[: text.index("</style>")]
    assert "url(" not in text[: text.index("</style>")]
    words = " ".join(page.words).replace("asymmetry none", "")  # a setting, and not a number that is missing
    assert not finite or not re.search(r"\b(nan|inf|none|infinity)\b", words, re.IGNORECASE)
    return text, page


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """Runs on honest data, with and without labels; read only."""
    folder = tmp_path_factory.mktemp("plain")
    return {labelled: make_run(folder / str(labelled), labelled=labelled) for labelled in (True, False)}


@pytest.fixture(params=["altair", "matplotlib"])
def drawer(request, monkeypatch):
    """With and without the `report` extra."""
    if request.param == "matplotlib":
        monkeypatch.setitem(sys.modules, "altair", None)
    else:
        pytest.importorskip("altair")
        pytest.importorskip("vl_convert")
    return request.param


@pytest.mark.usefixtures("layout")
@pytest.mark.parametrize("labelled", [True, False])
def test_every_section_is_there(drawer, labelled, plain):
    text, page = render(plain[labelled])
    assert page.headings == SECTIONS
    words = " ".join(page.words)
    assert "healthy" in words
    assert ("Linear probe accuracy" in words) == labelled
    assert ("coloured by label" if labelled else "no labels given") in words
    assert ("vega" in text) == (drawer == "altair")
    assert ("img" in page.tags) == (drawer == "matplotlib")


def test_written_beside_the_run_or_where_told(tmp_path):
    run = make_run(tmp_path / "run")
    assert run_page.write(run) == tmp_path / "run" / "report.html"
    assert run_page.write(run, tmp_path / "deep" / "p.html") == tmp_path / "deep" / "p.html"
    assert (tmp_path / "deep" / "p.html").read_text(encoding="utf-8") == run_page.render(run)


@pytest.mark.usefixtures("layout")
def test_names_are_escaped(drawer, plain, tmp_path):
    text, page = render(make_run(tmp_path, name=EVIL))
    _, honest = render(plain[True])
    assert page.tags.count("script") == honest.tags.count("script")
    assert "<script>alert" not in text
    assert not any(script.strip().startswith("alert('pwned')") for script in page.scripts)
    assert page.headings == SECTIONS
    assert f"{EVIL}.csv" in page.words


@pytest.mark.parametrize(("columns", "dim"), [(1, 1), (1, 3), (7, 2)])
def test_any_number_of_dimensions(columns, dim, tmp_path):
    _, page = render(make_run(tmp_path, columns=columns, dim=dim))
    assert page.headings[-len(SECTIONS) :] == SECTIONS


def test_collapsed_run_shows_findings(drawer, tmp_path):
    run = make_run(tmp_path, optimiser="sgd", lr=0.1, weight_decay=2.0, warmup=0, steps=60)
    _, page = render(run)
    words = " ".join(page.words)
    assert page.headings == ["What is wrong, and what to try", *SECTIONS]
    assert "needs attention" in words
    assert "representation collapse" in words
    assert page.tags.count("li") > 0


def test_failed_and_unfinished_runs_have_a_page(tmp_path):
    _, failed = render(make_run(tmp_path / "failed", optimiser="sgd", lr=1e30), finite=False)
    assert "not finite" in " ".join(failed.words)
    unfinished = make_run(tmp_path / "unfinished", finish=False)
    (unfinished.folder / "model.safetensors").unlink()
    _, page = render(unfinished)
    assert page.headings == [
        "What is wrong, and what to try",
        "Loss and its terms",
        "Rank while training",
        "Configuration",
    ]
