import shutil

import numpy as np
import pytest

from tests.cli.shell import COLLAPSING, succeed


@pytest.fixture(scope="session")
def room(tmp_path_factory):
    """A folder with a table of 60 rows, columns a, b, c, d and a class, and a run trained on it."""
    folder = tmp_path_factory.mktemp("room")
    random = np.random.default_rng(0)
    kind = random.integers(0, 2, 60)
    values = random.normal(size=(60, 4)) + 2 * kind[:, None]
    lines = [",".join([*(f"{v:.6f}" for v in row), "cat" if k else "dog"]) for row, k in zip(values, kind, strict=True)]
    (folder / "table.csv").write_text("\n".join(["a,b,c,d,kind", *lines]) + "\n")
    succeed("fit", folder / "table.csv", "--label", "kind", "--steps", 30, "--out", folder / "run", "-q")
    return folder


@pytest.fixture(scope="session")
def table(room):
    return room / "table.csv"


@pytest.fixture(scope="session")
def run(room):
    """A finished run; read only."""
    return room / "run"


@pytest.fixture
def copy(run, tmp_path):
    """A finished run to damage."""
    return shutil.copytree(run, tmp_path / "copy")


@pytest.fixture(scope="session")
def collapsed(room):
    """What a run that collapses prints with --json, and its folder."""
    folder = room / "collapsed"
    return folder, succeed("fit", room / "table.csv", "--label", "kind", *COLLAPSING, "--out", folder, "--json")


@pytest.fixture(autouse=True)
def scratch(tmp_path, monkeypatch):
    """Commands without --out write below the working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
