"""Runs on objects, resumed and started from: parts and rows that no file holds are handed in again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import probssl
from probssl.energies import Cosine, Energy, Euclidean
from probssl.errors import InputError
from probssl.objectives import InfoNCE
from probssl.objectives.base import PairObjective
from probssl.pairings import Views
from probssl.parts.facts import Facts
from probssl.parts.recipe import Recipe
from probssl.parts.resolve import resolve

X = np.random.default_rng(0).normal(size=(60, 4))
Y = np.arange(60) % 2
FEW = {"steps": 6, "evaluate": "none"}


class Own(nn.Module):
    """A network of a user's."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


class Hinge(PairObjective):
    """L = mean relu(δ(x, x̃) − δ(x, x̃') + m).

    Settings:
        margin: m, whose type is not said.
    """

    def __init__(self, energy: Energy | None = None, margin=1) -> None:
        super().__init__(Euclidean() if energy is None else energy)
        self.margin = margin

    def terms(self, encoder: nn.Module, views: Views) -> dict[str, torch.Tensor]:
        a, b = self.embed_pair(encoder, views)
        return {"hinge": (self.energy.paired(a, b) - self.energy.paired(a, b.roll(1, 0)) + self.margin).relu().mean()}


@pytest.mark.parametrize("data", [(X, Y), torch.utils.data.TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))])
def test_rows_with_labels_are_resumed(data: object, tmp_path: Path) -> None:
    first = probssl.fit(data, out=tmp_path / "run", **FEW)
    assert first.dataset.labels is not None
    again = probssl.fit(data, out=tmp_path / "run", resume=True, steps=9, evaluate="none")
    assert again.step == 9


def test_training_begins_with_a_run_of_an_own_network(tmp_path: Path) -> None:
    base = probssl.fit(X, encoder=Own(), out=tmp_path / "base", **FEW)
    later = probssl.fit(X, encoder=Own(), start_from=tmp_path / "base", out=tmp_path / "later", lr=1e-12, **FEW)
    torch.testing.assert_close(later.model.encoder.layer.weight, base.model.encoder.layer.weight)
    with pytest.raises(InputError, match="name it again"):
        probssl.fit(X, start_from=tmp_path / "base", **FEW)


def test_objectives_that_were_objects_are_resumed(tmp_path: Path) -> None:
    """Though a recipe names the energy that an object brings."""
    for number, loss in enumerate((InfoNCE(Cosine(0.3)), Hinge())):
        run = probssl.fit(X, objective=loss, out=tmp_path / str(number), **FEW)
        again = probssl.fit(X, objective=loss, out=run.folder, resume=True, steps=9, evaluate="none")
        assert again.step == 9
    with pytest.raises(InputError, match=r"objective\.margin = 1"):
        probssl.fit(X, objective=Hinge(margin=2), out=run.folder, resume=True, steps=12)
    whole = Recipe(objective=f"{__name__}:Hinge").with_settings({"objective.margin": 2})
    assert isinstance(resolve(whole, Facts("table", (4,), 60)).objective.margin, int)
    with pytest.raises(InputError, match="leave energy out"):
        probssl.fit(X, objective=Hinge(), energy="cosine", **FEW)


def test_files_are_given_by_text_or_path(tmp_path: Path) -> None:
    run = probssl.fit(X, dim=3, out=tmp_path / "run", **FEW)
    for path in (f"{run.folder}/recipe.toml", run.folder / "recipe.toml"):
        assert probssl.fit(X, recipe=path, **FEW).model.dim == 3
    for path in (f"{tmp_path}/model.safetensors", tmp_path / "model.safetensors"):
        run.model.save(path)
        assert probssl.Model.load(path).dim == 3


def test_a_file_decides_no_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "evil.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    probssl.fit(X, out=tmp_path / "run", **FEW)
    recipe = tmp_path / "run" / "recipe.toml"
    recipe.write_text(recipe.read_text().replace('name = "mlp"', 'name = "evil:Net"'))
    with pytest.raises(InputError, match="another package: name it again"):
        probssl.fit(X, out=tmp_path / "run", resume=True, steps=9)
    with pytest.raises(InputError, match="another package: name it again"):
        probssl.fit(X, recipe=probssl.Recipe.from_toml(recipe), **FEW)


def test_a_refused_training_leaves_the_run_that_it_was_to_replace(tmp_path: Path) -> None:
    run = probssl.fit(X, out=tmp_path / "run", **FEW)
    frozen = {"plan.freeze": ["0", "1", "2"]}
    with pytest.raises(InputError, match=r"plan\.freeze keeps all of them"):
        probssl.fit(X, out=tmp_path / "run", overwrite=True, settings=frozen, **FEW)
    assert (run.folder / "model.safetensors").is_file()


def test_what_is_not_a_model_or_a_name_is_refused_in_a_sentence(tmp_path: Path) -> None:
    run = probssl.fit(X, out=tmp_path / "run", **FEW)
    with pytest.raises(InputError, match="evaluate takes a model"):
        probssl.evaluate(run, X)  # type: ignore[arg-type]
    assert probssl.examine(tmp_path / "run").facts == probssl.examine(run).facts
    with pytest.raises(
        InputError, match=r"label names a column or several, and is ndarray: give rows and labels together"
    ):
        probssl.load(X, label=Y)  # type: ignore[arg-type]


def test_test_rows_are_an_object_too(tmp_path: Path) -> None:
    held = X[:10] + 1, Y[:10]
    run = probssl.fit((X, Y), test=held, out=tmp_path / "run", **FEW)
    np.testing.assert_allclose(run.dataset.take(run.dataset.rows("test")).values, held[0])
