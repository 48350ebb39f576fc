"""Parts that no registry knows take part in a comparison as those with names do."""

import copy
import dataclasses
import math

import numpy as np
import pytest
import torch
from torch import nn

import probssl
from probssl.comparing import schedule
from probssl.comparing.grid import candidates
from probssl.data import Table
from probssl.energies import Cosine
from probssl.errors import InputError
from probssl.grids.store import Store
from probssl.objectives import InfoNCE
from probssl.parts.facts import Facts
from tests.comparing.losses import PushAndPull, Shifted

TABLE = Facts("table", (5,), 120)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Rounds of a few steps."""
    monkeypatch.setattr(schedule, "LENGTHS", {math.inf: (5, 10, 20)})


@pytest.fixture(scope="module")
def table():
    random = np.random.default_rng(0)
    labels = random.integers(0, 2, 120)
    features = random.normal(size=(120, 5)) + labels[:, None]
    return Table("shifted", features, tuple("abcde"), labels=labels, classes=("a", "b"), label_name="side")


def net():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3))


def test_what_objects_are_called():
    given = [InfoNCE(Cosine(0.4)), InfoNCE(Cosine(0.2)), InfoNCE(Cosine(0.2)), "infonce", PushAndPull(push=2.0)]
    parts, grid = candidates(TABLE, objectives=given, energies=[Cosine(0.3)], pairings=["weak", Shifted(0.2)])
    found = {(c.objective, c.energy, c.pairing) for c in grid}
    named = {
        ("infonce", "cosine(temperature=0.4)"),
        ("infonce #2", "cosine(temperature=0.2)"),
        ("infonce #3", "cosine(temperature=0.3)"),
        ("PushAndPull(push=2.0)", "cosine(temperature=1.0)"),
    }
    assert found == {(*name, pairing) for name in named for pairing in ("weak", "Shifted(width=0.2)")}
    assert all(parts.resolve(c).energy.settings()["temperature"] == float(c.energy[-4:-1]) for c in grid)


def test_objects_are_raced_in_other_processes_and_never_trained(table, tmp_path):
    mine, encoder = PushAndPull(push=0.5), net()
    before = copy.deepcopy(encoder.state_dict())
    options = {"pairings": [Shifted()], "encoder": encoder, "trials": 9, "jobs": 2, "out": tmp_path / "c"}
    result = probssl.compare(table, objectives=[mine, InfoNCE(Cosine(0.1))], **options)
    assert [s.failure for s in result.leaderboard] == [None, None]
    assert {s.candidate.dim for s in result.leaderboard} == {3}
    assert not mine.bound
    assert all(torch.equal(value, before[name]) for name, value in encoder.state_dict().items())
    run = result.best
    assert run.model.embed(table).shape == (120, 3)
    assert type(run.model.pairing) is Shifted
    assert result.families["PushAndPull(push=0.5)"] == "of my own"
    with Store(result.folder / "store.sqlite", read_only=True) as store:
        stored = {trial.key for trial in store.trials()}
    again = probssl.compare(table, objectives=[mine, InfoNCE(Cosine(0.1))], resume=True, **options)
    assert again.leaderboard == result.leaderboard
    options["jobs"] = 1
    probssl.compare(table, objectives=[PushAndPull(push=0.6), InfoNCE(Cosine(0.1))], resume=True, **options)
    with Store(result.folder / "store.sqlite", read_only=True) as store:
        new = {trial.key for trial in store.trials()} - stored
    assert len(new) == len(stored) / 2, "another setting is another trial, and what has not changed is kept"


def test_an_object_that_cannot_be_told_from_others_is_refused():
    mine = PushAndPull()
    mine.chance = torch.Generator()
    with pytest.raises(InputError, match=r"PushAndPull\.chance holds a Generator"):
        candidates(TABLE, objectives=[mine])


def test_images_and_worlds_take_objects(tmp_path):
    images = np.random.default_rng(0).integers(0, 255, (30, 1, 8, 8), dtype=np.uint8)
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
    result = probssl.compare(
        images, objectives=[PushAndPull()], pairings=[Shifted()], encoder=encoder, trials=1, jobs=1, out=tmp_path / "i"
    )
    assert result.winner.means["recovered"] <= 1
    assert result.best.dim == 3
    world = probssl.compare("world:normal3", objectives=[PushAndPull()], trials=1, jobs=1, out=tmp_path / "w")
    assert world.criterion.name == "r2"
    assert world.best.source.seed == world.best.recipe.seed
    data = world.best.data()
    assert dataclasses.asdict(world.best.source)["test"] == 0.2
    assert data.test.sum() == world.final.rows
