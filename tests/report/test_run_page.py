"""The page of a run: one file, complete, without a network, with or without labels, safe from its data."""

import re
import warnings
from html.parser import HTMLParser

import numpy as np
import pytest

import probssl
from probssl.data import Table
from probssl.errors import CollapseWarning, NonFiniteLoss
from probssl.metrics import METRICS
from probssl.report import run_page
from probssl.report.console import best
from probssl.report.scatter import scatter
from probssl.runs import Run

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
WRECKING = {"plan.optimiser": "sgd", "plan.weight_decay": 2.0, "plan.warmup": 0}


class Page(HTMLParser):
    """Headings, visible text, bold cells, tags, and every address that a browser would follow."""

    def __init__(self, text):
        super().__init__()
        self.headings, self.words, self.addresses, self.tags, self.scripts = [], [], [], [], []
        self.rows, self._open, self._strong = [], "", False
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self._open, self._strong = tag, ("class", "strong") in attributes
        names = ("src", "href", "xlink:href", "srcset", "data", "action")
        self.addresses += [value for name, value in attributes if name in names]
        if tag == "tr":
            self.rows.append([])

    def handle_endtag(self, tag):
        self._open = ""

    def handle_data(self, data):
        if self._open in ("script", "style"):
            self.scripts.append(data)
            return
        self.words.append(data)
        if self._open == "h2":
            self.headings.append(data)
        if self._open == "td":
            self.rows[-1].append((data, self._strong))


def made_up(name="plain", columns=4, labelled=True, ids=None):
    random = np.random.default_rng(0)
    kind = random.integers(0, 2, 60)
    return Table(
        f"{name}.csv",
        random.normal(size=(60, columns)) + 2 * kind[:, None],
        tuple(f"{name}{i}" for i in range(columns)),
        labels=kind if labelled else None,
        classes=(f"{name} no", f"{name} yes") if labelled else (),
        label_name=f"{name} class" if labelled else None,
        ids=ids,
    )


def make_run(folder, *, evaluate="quick", settings=None, steps=40, lr=None, dim=None, **data):
    options = {"evaluate": evaluate, "settings": settings, "steps": steps, "lr": lr, "dim": dim}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CollapseWarning)
        return probssl.fit(made_up(**data), out=folder, **options)


def render(run, finite=True):
    text = run_page.render(run)
    page = Page(text)
    assert text.startswith("<!doctype html>")
    assert [address for address in page.addresses if not address.startswith(("data:image/png;base64,", "#"))] == []
    assert not {"link", "iframe", "object", "embed", "base"} & set(page.tags)
    assert not re.search(r"@import|url\((?!#)", text)
    assert not finite or not re.search(r"\b(nan|inf|infinity|None|True|False)\b", " ".join(page.words))
    return text, page


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """Runs on honest data, with and without labels; read only."""
    folder = tmp_path_factory.mktemp("plain")
    return {labelled: make_run(folder / str(labelled), labelled=labelled) for labelled in (True, False)}


@pytest.mark.usefixtures("layout")
@pytest.mark.parametrize("labelled", [True, False])
def test_every_section_is_there(labelled, plain):
    text, page = render(plain[labelled])
    assert page.headings == SECTIONS
    words = " ".join(page.words)
    assert "healthy" in words
    assert ("Linear probe accuracy" in words) == labelled
    assert ("coloured by label" if labelled else "no labels given") in words
    assert "12 rows that training never saw, probes fitted on 48 rows" in words
    assert text.count("<circle ") == 12
    assert page.tags.count("input") == (2 if labelled else 0)
    assert "img" not in page.tags


def test_the_best_of_each_row_is_bold_and_nothing_else(plain):
    _, page = render(plain[True])
    comparison = plain[True].comparison
    cells = {row[0][0].strip(): row[1:] for row in page.rows if len(row) == 5}
    present = comparison.rows["trained encoder"]
    for metric in [metric for metric in METRICS if metric.name in present]:
        arrow = {"higher": "↑", "lower": "↓", "neither": " "}[metric.direction]
        shown = cells[f"{arrow} {metric.title}".strip()]
        values = [codes[metric.name] for codes in comparison.rows.values()]
        assert {place for place, (_, strong) in enumerate(shown) if strong} == best(values, metric.direction)


def test_best():
    assert best([0.5, 0.7001, 0.7, None], "higher") == {1, 2}, "what looks alike is as good"
    assert best([0.5, 0.7, 0.7], "lower") == {0}
    assert best([0.5, 0.7], "neither") == best([0.5, None], "higher") == set()


def test_the_configuration_lists_settings_by_their_paths(plain):
    _, page = render(plain[True])
    told = {row[0][0]: row[1][0] for row in page.rows if len(row) == 2}
    assert told["data"] == "plain.csv"
    assert told["objective.name"] == "infonce"
    assert (told["encoder.hidden"], told["encoder.bias"], told["plan.freeze"]) == ("8", "true", "none")
    assert (told["pairing.noise"], told["plan.steps"], told["test"]) == ("0.25", "40", "0.2")


def test_written_beside_the_run_or_where_told(plain, tmp_path):
    run = plain[True]
    assert run_page.write(run) == run.folder / "report.html"
    assert run_page.write(run, tmp_path / "deep" / "p.html") == tmp_path / "deep" / "p.html"
    assert (tmp_path / "deep" / "p.html").read_text(encoding="utf-8") == run_page.render(run)


@pytest.mark.usefixtures("layout")
def test_names_are_escaped(plain, tmp_path):
    ids = np.array([f"{EVIL}{number}" for number in range(60)])
    text, page = render(make_run(tmp_path, name=EVIL, ids=ids))
    _, honest = render(plain[True])
    assert page.tags.count("script") == honest.tags.count("script")
    assert page.tags.count("b") == honest.tags.count("b")
    assert "<script>alert" not in text
    assert not any(script.strip().startswith("alert('pwned')") for script in page.scripts)
    assert page.headings == SECTIONS
    assert f"{EVIL}.csv" in page.words


def test_points_tell_their_rows_or_what_these_are_called():
    points = np.arange(6.0).reshape(3, 2)
    picture = scatter(points, np.array([1, 0, -1]), ["cat", "dog"], np.array([7, 8, 9]), ("z0", "z1"))
    assert re.findall(r"<title>(.*?)</title>", picture) == ["row 8 · cat", "row 9 · cat", "row 7 · dog"]
    named = scatter(points, np.full(3, -1), [], np.array(["a<b", "c", "d"]), ("z0", "z1"))
    assert re.findall(r"<title>(.*?)</title>", named) == ["a&lt;b", "c", "d"]
    places = [float(x) for x in re.findall(r'cx="(.*?)"', named)]
    assert places == sorted(places)
    assert 0 < places[0] < places[-1] < 900
    assert "nan" not in scatter(np.zeros((2, 2)), np.full(2, -1), [], np.arange(2), ("z0", "z1"))


@pytest.mark.parametrize(("columns", "dim"), [(1, 1), (1, 3), (7, 2)])
def test_any_number_of_dimensions(columns, dim, tmp_path):
    _, page = render(make_run(tmp_path, columns=columns, dim=dim))
    assert page.headings[-len(SECTIONS) :] == SECTIONS


def test_a_run_without_metrics_has_a_page(tmp_path):
    _, page = render(make_run(tmp_path, evaluate="none"))
    assert page.headings[-3:] == ["Loss and its terms", "Rank while training", "Configuration"]
    assert "What the representation is worth" not in page.headings


def test_collapsed_run_shows_findings(tmp_path):
    _, page = render(make_run(tmp_path, settings=WRECKING, lr=0.1, steps=60))
    words = " ".join(page.words)
    assert page.headings == ["What is wrong, and what to try", *SECTIONS]
    assert "needs attention" in words
    assert "representation collapse" in words
    assert page.tags.count("li") > 0


def test_failed_and_unfinished_runs_have_a_page(plain, tmp_path):
    with pytest.raises(NonFiniteLoss):
        make_run(tmp_path / "failed", settings={"plan.optimiser": "sgd"}, lr=1e30)
    _, failed = render(Run(tmp_path / "failed"), finite=False)
    assert "not finite" in " ".join(failed.words)
    unfinished = make_run(tmp_path / "unfinished", evaluate="none")
    (unfinished.folder / "model.safetensors").unlink()
    _, page = render(Run(unfinished.folder))
    assert page.headings == [
        "What is wrong, and what to try",
        "Loss and its terms",
        "Rank while training",
        "Configuration",
    ]
