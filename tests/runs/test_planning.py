"""Memory is estimated before anything is allocated: close to what is measured, and refused where it is not there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import Tensor, nn

import probssl
from probssl import SiameseEncoder, memory
from probssl.encoders import MLP
from probssl.errors import InputError
from probssl.parts.facts import Facts
from probssl.parts.recipe import Recipe
from probssl.parts.resolve import resolve
from probssl.runs.planning import needed
from probssl.training.distributed import processes
from probssl.training.files import load_tensors, save_tensors

MEASURED = """
import ctypes, json, sys
import numpy as np
import probssl
from probssl.runs import planning, workflow

def memory(key):
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith(key))

def estimate(resolved, data, evaluate):
    global start, expected
    expected = planning.needed(resolved, len(data), evaluate).total - planning.AROUND
    ctypes.CDLL(None).malloc_trim(0)  # what earlier runs freed goes back to the system
    open("/proc/self/clear_refs", "w").write("5")  # the peak begins anew
    start = memory("VmRSS")

random, found = np.random.default_rng(0), {}
workflow.check_memory = estimate
def run(name, data, **choices):
    probssl.fit((data, random.integers(0, 3, len(data))), steps=3, test=0.1, out=sys.argv[1], overwrite=True, **choices)
    found[name] = [expected, memory("VmHWM") - start]

small = random.integers(0, 256, (60, 3, 8, 8), dtype=np.uint8)
run("", random.normal(size=(60, 4)))  # what libraries set up when they are first used
run("", small)
pixels = random.integers(0, 256, (300, 3, 32, 32), dtype=np.uint8)
layers = {"encoder.hidden": [5000]}
run("table", random.normal(size=(600, 1500)), settings=layers, evaluate="none")
run("images", pixels, batch_size=256, settings={"encoder.widths": [48, 96]}, evaluate="none")
run("evaluation", random.normal(size=(1500, 800)), settings={"encoder.hidden": [16]}, dim=8)
print(json.dumps(found))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="memory is measured by files of Linux")
def test_the_estimate_is_within_a_factor_of_two(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", MEASURED, str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    for name, (expected, measured) in json.loads(done.stdout.splitlines()[-1]).items():
        assert not name or 0.5 < expected / measured < 2, (name, expected / 1e6, measured / 1e6)


def table(rows: int, columns: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(rows, columns))


def refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, data: object, gigabytes: float = 8, **choices: object
) -> str:
    monkeypatch.setattr(memory, "available", lambda: gigabytes * 10**9)
    with pytest.raises(InputError) as error:
        probssl.fit(data, out=tmp_path / "run", **choices)
    assert not (tmp_path / "run").exists()
    return str(error.value)


def test_absurd_sizes_are_refused_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    large: Any = {"dim": 10_000, "settings": {"encoder.hidden": [40_000]}}
    assert refused(monkeypatch, tmp_path, table(60, 20_000), **large) == (
        "training on 60 observations of 20,000 numbers, mostly the weights, their gradients and moments, "
        "would need about 39 GB of memory, and 8.0 GB are free: choose a smaller dim or encoder.hidden"
    )
    assert "would need about 288 TB of memory" in refused(monkeypatch, tmp_path, table(60, 4), dim=10**12)
    assert "choose a smaller dim" in refused(monkeypatch, tmp_path, table(60, 4), dim=10**30)
    hidden = {"encoder.hidden": [10**9]}
    assert "smaller dim or encoder.hidden" in refused(monkeypatch, tmp_path, table(60, 4), settings=hidden)
    wide = {"encoder.widths": [10**9, 10**9]}
    images = np.zeros((60, 1, 16, 16), np.uint8)
    assert "smaller dim, encoder.hidden or encoder.widths" in refused(monkeypatch, tmp_path, images, settings=wide)
    chains = {"objective": "gedi", "settings": {"objective.chains": 10**12}}
    assert "dim, encoder.hidden, objective.chains or objective.clusters" in refused(
        monkeypatch, tmp_path, table(60, 4), **chains
    )


def test_large_batches_evaluations_and_data_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pictures = np.random.default_rng(0).integers(0, 256, (400, 1, 16, 16), dtype=np.uint8)
    text = refused(monkeypatch, tmp_path, pictures, 0.1, batch_size=400, encoder="resnet18", evaluate="none")
    assert "mostly the layers of a batch" in text
    assert "choose a smaller batch_size, dim or encoder.width" in text
    assert "the pairs of a batch" in refused(
        monkeypatch, tmp_path, table(20_000, 2), 0.1, objective="chi-squared", batch_size=20_000
    )
    narrow = {"dim": 2, "settings": {"encoder.hidden": [2]}}
    assert "--evaluate none" in refused(monkeypatch, tmp_path, table(400, 3000), 0.06, **narrow)
    assert "fewer rows or columns" in refused(monkeypatch, tmp_path, table(5000, 90), 0.055, **narrow, evaluate="none")


def test_processes_of_one_machine_share_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    resolved = resolve(Recipe(objective="chi-squared"), Facts("table", (6,), 1000))
    alone = needed(resolved, 1000)
    monkeypatch.setattr(processes, "count", lambda: 4)
    for here in (4, 2):
        monkeypatch.setenv("LOCAL_WORLD_SIZE", str(here))
        found = needed(resolved, 1000)
        for part in ("around", "weights", "rows", "pairs", "data"):
            assert getattr(found, part) == here * getattr(alone, part) > 0
        assert found.batch == here / 4 * alone.batch > 0
        assert found.evaluation == alone.evaluation + (here - 1) * (alone.rows + alone.weights)


def test_estimators_plan_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available", lambda: 10**9)
    with pytest.raises(InputError, match="would need about"):
        SiameseEncoder(dim=10**9).fit(table(20, 4))


class LooksAtNumbers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.layer(x)
        return found if float(found.detach().sum()) else -found


@pytest.mark.parametrize("encoder", [MLP.of([6, 50, 3]), nn.Sequential(nn.Linear(6, 50), nn.ReLU(), nn.Linear(50, 3))])
def test_networks_of_ones_own_are_counted(encoder: nn.Module) -> None:
    resolved = resolve(Recipe(encoder=encoder), Facts("table", (6,), 100))
    found = needed(resolved, 100)
    assert found.weights == 8 * 4 * (6 * 50 + 50 + 50 * 3 + 3)
    assert found.batch == 2 * 4 * 100 * 2 * (6 + 50 + 6)  # what the first and the second layer are given


def test_a_network_that_looks_at_its_numbers_is_counted_by_its_layers() -> None:
    resolved = resolve(Recipe(encoder=LooksAtNumbers()), Facts("table", (6,), 100))
    assert needed(resolved, 100) == needed(resolved, 100, exact=False)


def test_comparisons_plan_for_all_models_that_train_at_a_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(memory, "available", lambda: 8 * 10**9)
    with pytest.raises(InputError) as error:
        probssl.compare(table(60, 40_000), trials=40, jobs=2, out=tmp_path / "comparison")
    assert "training 24 models at a time on" in str(error.value)
    assert "choose smaller --dims, fewer --jobs, or fewer columns" in str(error.value)
    assert not (tmp_path / "comparison").exists()


@pytest.mark.parametrize("dim", [10**12, 10**30])
def test_a_file_that_asks_for_more_weights_than_it_holds(tmp_path: Path, dim: int) -> None:
    probssl.fit(table(20, 4), steps=1, evaluate="none", out=tmp_path)
    path = tmp_path / "model.safetensors"
    tensors, metadata = load_tensors(path)
    metadata["recipe"]["encoder"]["dim"] = dim
    save_tensors(path, tensors, metadata)
    with pytest.raises(InputError, match="does not fit its own recipe"):
        probssl.Model.load(path)
