"""Dask and Ray: real clusters of this machine give the numbers that processes give, and fail in one sentence."""

import sys

import pytest

from probssl.errors import InputError, MissingExtra
from probssl.grids import backends, engine
from probssl.grids.store import Store
from probssl.studies import experiments
from tests.grids.cheap import Cheap


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    return engine.run(
        experiments.grid(Cheap(), "smoke"), tmp_path_factory.mktemp("expected") / "store.sqlite", jobs=1
    ).results


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store.sqlite"


class Breaking(Cheap):
    name = "tests/breaking"

    def trial(self, config):
        if config["number"] == 5:
            raise ValueError("five")
        return super().trial(config)


def check(path, expected, **options):
    """A study of which one trial fails: the others are as they should be, and no claim is left."""
    found = engine.run(experiments.grid(Breaking(), "smoke"), path, **options)
    assert repr(found.results) == repr([entry for entry in expected if entry[0]["number"] != 5])
    assert found.failures == [({"number": 5, "draws": 40}, "ValueError: five")]
    with Store(path) as store:
        assert store.claimed(list(experiments.grid(Breaking(), "smoke").trials)) == set()


def test_a_dask_cluster_that_is_there(path, expected):
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        check(path, expected, backend="dask", address=cluster.scheduler_address)


def test_a_dask_cluster_of_its_own(path, expected):
    pytest.importorskip("distributed")
    check(path, expected, backend="dask", jobs=2)


def test_a_ray_cluster_of_its_own(path, expected, tmp_path, monkeypatch):
    ray = pytest.importorskip("ray")
    monkeypatch.setenv("HOME", str(tmp_path))  # Ray keeps a token there
    check(path, expected, backend="ray", jobs=2)
    assert not ray.is_initialized()


def test_no_cluster_at_the_address(path, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr(backends, "PATIENCE", 1)
    with pytest.raises(InputError, match=r"no Dask scheduler at tcp://127\.0\.0\.1:9"):
        engine.run(experiments.grid(Cheap(), "smoke"), path, backend="dask", address="tcp://127.0.0.1:9")


@pytest.mark.parametrize(("backend", "package"), [("dask", "distributed"), ("ray", "ray")])
def test_without_the_extra(path, monkeypatch, backend, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=rf"probssl\[{backend}\]"):
        engine.run(experiments.grid(Cheap(), "smoke"), path, backend=backend)
