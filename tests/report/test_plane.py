"""Pictures of models of two features: clusters where they are, a density with its samples, on the page of a run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import make_blobs

import probssl
from probssl.errors import InputError
from probssl.estimators import GEDIClusterer
from probssl.report.plane import DEPTH, POINTS, Plane

pytestmark = pytest.mark.filterwarnings("ignore::probssl.errors.CollapseWarning")


@pytest.fixture(scope="module")
def blobs() -> np.ndarray:
    return make_blobs(200, centers=[[-3, 0], [3, 0]], random_state=0)[0]


def images(plane: Plane, rows: np.ndarray) -> list[np.ndarray]:
    return [np.asarray(axis.images[0].get_array()) for axis in plane.figure(rows).axes[:2] if axis.images]


def test_regions_and_density_are_those_of_the_clusterer(blobs: np.ndarray) -> None:
    clusterer = GEDIClusterer(2, steps=100, settings={"objective.sampler.steps": 1}, random_state=0).fit(blobs)
    regions, density = images(Plane.of_clusterer(clusterer, samples=50), blobs)
    assert regions.shape == (POINTS, POINTS, 4)
    left, right = regions[POINTS // 2, 10, :3], regions[POINTS // 2, -10, :3]
    assert not np.allclose(left, right), "each blob has its colour"
    assert regions[POINTS // 2, 10, 3] > regions[POINTS // 2, POINTS // 2, 3], "paler in between"
    assert density.max() == 0
    middle = [density[POINTS // 2, POINTS // 5], density[0, 0]]
    assert middle[0] > middle[1], "denser among the rows than in the corner"
    assert np.isfinite(density).all()
    assert density.min() < -DEPTH / 4
    without = GEDIClusterer(2, steps=20, generative=0.0, random_state=0).fit(blobs)
    assert len(images(Plane.of_clusterer(without), blobs)) == 1, "no density, no picture of it"
    with pytest.raises(InputError, match="two features, and the clusterer was fitted on 3"):
        Plane.of_clusterer(GEDIClusterer(2, steps=2).fit(np.hstack([blobs, blobs[:, :1]])))


@pytest.mark.usefixtures("layout")
@pytest.mark.parametrize(("objective", "title"), [("gedi", "Clusters and density"), ("swav", "Clusters")])
def test_the_page_of_a_run_shows_them(objective: str, title: str, tmp_path: Path) -> None:
    run = probssl.fit("toy:circles", objective=objective, settings={"objective.clusters": 2}, steps=30, out=tmp_path)
    page = (run.folder / "report.html").read_text(encoding="utf-8")
    assert f"<h2>{title}</h2>" in page
    assert ("500 samples of it" in page) == (objective == "gedi")
    assert ("the least that a term can be" in page) == (objective == "gedi")
    plane = Plane.of_model(run.model)
    assert plane is not None
    np.testing.assert_allclose(plane.probabilities(run.dataset.features).sum(1), 1)


def test_other_models_have_none(tmp_path: Path) -> None:
    assert Plane.of_model(probssl.fit("toy:circles", steps=2, out=tmp_path / "a").model) is None
    iris = probssl.fit("sklearn:iris", objective="swav", steps=2, out=tmp_path / "b")
    assert Plane.of_model(iris.model) is None
    assert "<h2>Clusters" not in (iris.folder / "report.html").read_text(encoding="utf-8")
