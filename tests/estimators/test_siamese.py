"""SiameseEncoder: scikit-learn's own checks, and what a person who knows scikit-learn takes for granted."""

from __future__ import annotations

import copy
import math
import pickle
import re
import warnings

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits, load_wine
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

import probssl
from probssl.encoders import MLP, ProjectionHead
from probssl.energies import Cosine
from probssl.errors import CollapseWarning, InputError, NonFiniteLoss
from probssl.estimators import SiameseEncoder, common
from probssl.objectives import SNL, DeepClustering, InfoNCE
from probssl.pairings import GaussianNoise, Views
from probssl.parts.registry import KINDS

CONFIGURED = [
    SiameseEncoder(steps=5, dim=3),
    SiameseEncoder("snl", steps=5),
    SiameseEncoder("nce", steps=5, settings={"encoder.hidden": ()}, dim=2),
    SiameseEncoder("fisher", steps=5),
    SiameseEncoder("simclr", energy="cosine", steps=5),
    SiameseEncoder("spectral", steps=5),
    SiameseEncoder("triplet", energy="pnorm", steps=5),
    SiameseEncoder("simsiam", steps=5),
    SiameseEncoder(energy="anisotropic", steps=5, standardise=False),
]
UNTRAINED = {"steps": 1, "lr": 1e-12}


@parametrize_with_checks(CONFIGURED)
@pytest.mark.filterwarnings("ignore::probssl.errors.CollapseWarning")
def test_scikit_learn(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def wine():
    return load_wine(return_X_y=True)


@pytest.fixture(scope="module")
def digits():
    x, y = load_digits(return_X_y=True)
    return train_test_split(x[:700], y[:700], random_state=0, stratify=y[:700])


@pytest.fixture(scope="module")
def trained(digits):
    return SiameseEncoder(dim=8, steps=150, random_state=0).fit(digits[0])


NEED_MORE = ("ensemble", "latent-regression")
"""Objectives that a table does not suit: of several losses, and of known latents."""


@pytest.mark.parametrize("objective", [name for name in KINDS["objective"] if name not in NEED_MORE])
def test_every_objective(objective, wine):
    encoder = SiameseEncoder(objective, steps=2, dim=2, lr=1e-4, random_state=0).fit(wine[0])
    assert encoder.transform(wine[0]).shape == (178, 2)
    assert math.isfinite(encoder.score(wine[0]))


@pytest.mark.parametrize("energy", [name for name in KINDS["energy"] if name != "asymmetric"])
@pytest.mark.parametrize("objective", ["infonce", "snl", "fisher", "triplet"])
def test_every_energy(objective, energy, wine):
    encoder = SiameseEncoder(objective, energy=energy, steps=2, dim=2, lr=1e-4, random_state=0).fit(wine[0])
    assert encoder.recipe_.energy.name == energy
    assert math.isfinite(encoder.score(wine[0]))


def test_same_weights_as_fit_with_that_seed(wine, tmp_path):
    x, _ = wine
    choices = {"objective": "snl", "energy": "cosine", "steps": 20, "settings": {"pairing.preservation": 0.8}}
    model = probssl.fit(x, **choices, seed=3, test=0, evaluate="none", out=tmp_path / "run").model
    encoder = SiameseEncoder(**choices, random_state=3).fit(x)
    assert encoder.recipe_.as_dict() == model.recipe.as_dict()
    np.testing.assert_allclose(encoder.transform(x.astype(np.float32)), model.embed(x), rtol=1e-3, atol=1e-3)
    for name, weights in model.encoder.state_dict().items():
        torch.testing.assert_close(encoder.encoder_.state_dict()[name], weights, rtol=0, atol=0)


def test_the_model_can_be_saved(trained, digits, tmp_path):
    trained.model_.save(tmp_path / "model.safetensors")
    again = probssl.Model.load(tmp_path / "model.safetensors")
    np.testing.assert_allclose(again.embed(digits[1]), trained.transform(digits[1]), rtol=1e-3, atol=1e-3)


class TestObjects:
    def test_every_part(self, wine):
        objects = {
            "objective": SNL(Cosine(0.2)),
            "pairing": GaussianNoise(0.3),
            "encoder": MLP((8,), 3),
            "head": ProjectionHead(dim=2),
        }
        encoder = SiameseEncoder(**objects, steps=3, random_state=0).fit(wine[0])
        assert encoder.transform(wine[0]).shape == (178, 3)
        assert encoder.objective_.energy.temperature == 0.2
        assert all(getattr(encoder, name) is part for name, part in objects.items())
        assert not any(part.bound for part in objects.values())
        np.testing.assert_array_equal(clone(encoder).fit(wine[0]).transform(wine[0]), encoder.transform(wine[0]))
        np.testing.assert_array_equal(
            pickle.loads(pickle.dumps(encoder)).transform(wine[0]), encoder.transform(wine[0])
        )

    def test_an_energy_as_an_object(self, wine):
        by_object = SiameseEncoder(energy=Cosine(0.1), steps=3, random_state=0).fit(wine[0])
        by_name = SiameseEncoder(energy="cosine", steps=3, random_state=0).fit(wine[0])
        np.testing.assert_array_equal(by_object.transform(wine[0]), by_name.transform(wine[0]))

    def test_a_network_of_your_own_is_copied_and_not_trained(self, wine):
        network = nn.Sequential(nn.Linear(13, 5), nn.Tanh(), nn.Linear(5, 2))
        before = copy.deepcopy(network.state_dict())
        encoder = SiameseEncoder(encoder=network, steps=5, random_state=0).fit(wine[0])
        encoder.partial_fit(wine[0], steps=5)
        for name, weights in before.items():
            assert torch.equal(network.state_dict()[name], weights)
            assert not torch.equal(encoder.encoder_.state_dict()[name], weights)
        assert encoder.transform(wine[0]).shape == (178, 2)
        assert list(encoder.get_feature_names_out()) == ["siameseencoder0", "siameseencoder1"]

    def test_settings_change_a_part_of_that_name(self, wine):
        settings = {"encoder.hidden": np.array([4]), "pairing.noise": np.float64(0.5), "plan.warmup": 0}
        encoder = SiameseEncoder(settings=settings, dim=np.int64(2), steps=2, random_state=0).fit(wine[0])
        assert encoder.encoder_[0].weight.shape == (4, 13)
        assert float(encoder.model_.pairing.noise) == 0.5
        assert encoder.recipe_.plan["warmup"] == 0


class TestData:
    def test_images(self):
        x = (load_digits().data[:120].reshape(-1, 1, 8, 8) * 15).astype(np.uint8)
        encoder = SiameseEncoder(settings={"encoder.widths": (4,)}, dim=3, steps=3, random_state=0).fit(x)
        z = encoder.transform(x)
        assert (z.shape, z.dtype) == ((120, 3), np.float32)
        np.testing.assert_allclose(encoder.transform((x / 255).astype(np.float32)), z, rtol=1e-4, atol=1e-5)
        assert math.isfinite(encoder.score(x))
        with pytest.raises(InputError, match=r"images of shape \(1, 8, 8\), but X is a table"):
            encoder.transform(x.reshape(120, 64))

    def test_data_sets_tensors_and_names(self, wine):
        x, y = wine
        expected = SiameseEncoder(steps=3, random_state=0).fit(x).transform(x)
        for data in ((x, y), torch.from_numpy(x)):
            read = data if isinstance(data, torch.Tensor) else probssl.load(data)
            np.testing.assert_array_equal(SiameseEncoder(steps=3, random_state=0).fit(read).transform(read), expected)
        assert SiameseEncoder(steps=3).fit_transform("sklearn:iris").shape[0] == 150

    def test_test_rows_are_never_trained_on(self, wine):
        data = probssl.load(wine[0], test=0.25)
        encoder = SiameseEncoder(steps=3, random_state=0).fit(data)
        alone = SiameseEncoder(steps=3, random_state=0).fit(wine[0][data.rows("train")])
        np.testing.assert_array_equal(encoder.transform(data), alone.transform(wine[0]))

    def test_columns_are_found_by_name(self, wine, tmp_path):
        frame = load_wine(as_frame=True).data
        encoder = SiameseEncoder(steps=3, random_state=0).fit(frame)
        expected = encoder.transform(frame)
        frame[frame.columns[::-1]].to_csv(tmp_path / "turned.csv", index=False)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            np.testing.assert_allclose(encoder.transform(tmp_path / "turned.csv"), expected)
        again = SiameseEncoder(steps=3, random_state=0).fit(probssl.load(frame))
        assert list(again.feature_names_in_) == list(frame.columns)
        np.testing.assert_array_equal(again.transform(frame), expected)
        with pytest.raises(InputError, match="alcohol"):
            encoder.transform(probssl.load(frame.drop(columns="alcohol")))


class TestRandomState:
    def test_a_whole_number_decides_the_result_and_the_global_state_stays(self, wine):
        before = torch.get_rng_state()
        first, again, other = (
            SiameseEncoder(steps=5, random_state=seed).fit(wine[0]).transform(wine[0]) for seed in (1, np.int64(1), 2)
        )
        np.testing.assert_array_equal(first, again)
        assert not np.allclose(first, other)
        assert torch.equal(torch.get_rng_state(), before)

    def test_a_random_state_is_drawn_from_and_none_differs_each_time(self, wine):
        x, _ = wine
        shared = SiameseEncoder(steps=2, random_state=np.random.RandomState(0))
        first, second = shared.fit(x).transform(x), shared.fit(x).transform(x)
        assert not np.allclose(first, second)
        alike = SiameseEncoder(steps=2, random_state=np.random.RandomState(0)).fit(x).transform(x)
        np.testing.assert_array_equal(first, alike)
        fresh = SiameseEncoder(steps=2)
        assert not np.allclose(fresh.fit(x).transform(x), fresh.fit(x).transform(x))


class TestTransform:
    def test_precision_follows_the_rows(self, trained, digits):
        double = trained.transform(digits[1])
        single = trained.transform(digits[1].astype(np.float32))
        assert (double.dtype, single.dtype) == (np.float64, np.float32)
        np.testing.assert_allclose(single, double, rtol=1e-3, atol=1e-3)
        assert trained.transform(digits[1].astype(int)).dtype == np.float64

    def test_standardise_makes_the_units_of_measurement_irrelevant(self, wine):
        x, _ = wine
        plain = SiameseEncoder(steps=5, random_state=0).fit(x)
        scaled = SiameseEncoder(steps=5, random_state=0).fit(7 * x + 1)
        np.testing.assert_allclose(plain.transform(x), scaled.transform(7 * x + 1), rtol=1e-4, atol=1e-4)
        raw = SiameseEncoder(steps=5, random_state=0, standardise=False).fit(x)
        assert not np.allclose(raw.transform(x), plain.transform(x))

    def test_beats_no_training(self, digits):
        inside, outside, y_inside, y_outside = digits
        accuracy = {}
        for name, options in (("trained", {"steps": 150}), ("untrained", UNTRAINED)):
            encoder = SiameseEncoder(dim=8, random_state=0, **options)
            pipeline = make_pipeline(encoder, LogisticRegression(max_iter=300, tol=1e-2)).fit(inside, y_inside)
            accuracy[name] = pipeline.score(outside, y_outside)
        assert accuracy["trained"] > accuracy["untrained"] + 0.05


class TestScore:
    def test_is_log_n_less_infonce(self, trained, digits):
        x = trained._inputs(probssl.load(digits[1]))
        augmented = trained.model_.pairing.sample(x, torch.Generator().manual_seed(common.SCORE_SEED))
        infonce = InfoNCE(trained.objective_.energy)
        with torch.no_grad():
            loss = infonce(trained.encoder_, Views(x.float(), augmented.float().unsqueeze(0))).total.item()
        assert trained.score(digits[1]) == pytest.approx(math.log(len(x)) - loss, abs=1e-3)

    def test_grows_with_training_and_is_bounded(self, trained, digits):
        untrained = SiameseEncoder(dim=8, random_state=0, **UNTRAINED).fit(digits[0])
        outside = digits[1]
        assert untrained.score(outside) + 1 < trained.score(outside) <= math.log(len(outside))
        assert trained.score(outside) == trained.score(outside)

    def test_an_uninformative_augmentation_scores_at_most_zero(self, wine):
        encoder = SiameseEncoder(settings={"pairing.preservation": 0.0}, steps=50, random_state=0).fit(wine[0])
        assert encoder.score(wine[0]) <= 0.02

    def test_blocks_keep_memory_and_bound(self, trained, digits, monkeypatch):
        monkeypatch.setattr(common, "SCORE_ROWS", 20)
        inside = digits[0][:201]  # eleven blocks of 18 or 19 rows
        assert trained.score(inside) <= math.log(19)
        monkeypatch.undo()
        assert trained.score(inside) > math.log(19)

    def test_many_rows(self):
        x = np.random.default_rng(0).normal(size=(20_000, 4))
        score = SiameseEncoder(steps=5, random_state=0).fit(x).score(x)
        assert score <= math.log(common.SCORE_ROWS)


class TestPartialFit:
    def test_goes_on_improving(self, digits):
        inside, outside = digits[:2]
        encoder = SiameseEncoder(dim=4, random_state=0, lr=1e-3)
        scores = [encoder.partial_fit(inside, steps=40).score(outside) for _ in range(4)]
        assert scores == sorted(scores)
        losses = [row["loss"] for row in encoder.history_ if "loss" in row]
        assert np.mean(losses[-2:]) < np.mean(losses[:2])
        assert encoder.n_steps_ == 160
        assert [row["step"] for row in encoder.history_ if "event" not in row] == list(range(0, 161, 20))
        assert {row["lr"] for row in encoder.history_ if "loss" in row} == {1e-3}

    def test_first_call_fixes_scaling_and_later_calls_see_other_draws(self, wine):
        x, _ = wine
        encoder = SiameseEncoder(steps=3, random_state=0).partial_fit(x)
        scaling = encoder.preparation_
        first = encoder.transform(x)
        encoder.partial_fit(x[:50] * 2)
        assert encoder.preparation_ is scaling
        assert encoder.n_steps_ == 6
        again = SiameseEncoder(steps=3, random_state=0).partial_fit(x)
        np.testing.assert_array_equal(again.transform(x), first)
        assert again.fit(x).n_steps_ == 3

    def test_fit_starts_anew(self, wine):
        encoder = SiameseEncoder(steps=3, random_state=0)
        first = encoder.fit(wine[0]).transform(wine[0])
        np.testing.assert_array_equal(encoder.partial_fit(wine[0]).fit(wine[0]).transform(wine[0]), first)


class TestSelection:
    def test_grid_search_by_its_own_score(self, wine):
        grid = {
            "lr": np.array([1e-6, 1e-2]),
            "objective": np.array(["infonce", "snl"]),
            "settings": [{"encoder.hidden": ()}, {"encoder.hidden": (8,)}],
        }
        encoder = SiameseEncoder(steps=30, dim=3, random_state=0)
        search = GridSearchCV(encoder, grid, cv=3, error_score="raise").fit(wine[0])
        assert search.best_params_["lr"] == 1e-2
        assert 0 < search.best_score_ <= math.log(60)
        assert search.transform(wine[0]).shape == (178, 3)

    def test_grid_search_in_a_pipeline_with_labels(self, wine):
        pipeline = make_pipeline(SiameseEncoder(steps=30, random_state=0), LogisticRegression())
        search = GridSearchCV(pipeline, {"siameseencoder__dim": [1, 6]}, cv=3, error_score="raise").fit(*wine)
        assert search.best_params_ == {"siameseencoder__dim": 6}
        assert search.best_score_ > 0.9

    @pytest.mark.parametrize("backend", ["threading", "loky"])
    def test_threads_and_processes_give_the_same_numbers(self, backend, wine):
        encoder = SiameseEncoder(steps=20, random_state=0)
        alone = cross_val_score(encoder, wine[0], cv=4)
        state = torch.get_rng_state()
        with joblib.parallel_config(backend, n_jobs=2):
            together = cross_val_score(encoder, wine[0], cv=4)
        np.testing.assert_allclose(together, alone, rtol=1e-5)
        assert torch.equal(torch.get_rng_state(), state)


class TestCopies:
    def test_clone_has_parameters_and_no_weights(self, trained):
        copied = clone(trained)
        assert copied.get_params() == trained.get_params()
        with pytest.raises(NotFittedError):
            copied.transform(np.zeros((2, 64)))
        with pytest.raises(NotFittedError):
            copied.score(np.zeros((2, 64)))
        with pytest.raises(NotFittedError):
            copied.get_feature_names_out()

    def test_pickle_and_joblib(self, trained, digits, tmp_path):
        joblib.dump(trained, tmp_path / "encoder.joblib")
        for copied in (pickle.loads(pickle.dumps(trained)), joblib.load(tmp_path / "encoder.joblib")):
            np.testing.assert_array_equal(copied.transform(digits[1]), trained.transform(digits[1]))
            assert copied.score(digits[1]) == trained.score(digits[1])
            assert copied.partial_fit(digits[0], steps=1).n_steps_ == trained.n_steps_ + 1


def test_data_frames(wine):
    frame = load_wine(as_frame=True).data
    encoder = SiameseEncoder(steps=2, dim=2, random_state=0).set_output(transform="pandas")
    out = encoder.fit_transform(frame)
    assert isinstance(out, pd.DataFrame)
    assert list(out.columns) == ["siameseencoder0", "siameseencoder1"] == list(encoder.get_feature_names_out())
    assert out.index.equals(frame.index)
    assert list(encoder.feature_names_in_) == list(frame.columns)
    assert encoder.n_features_in_ == 13
    with pytest.raises(ValueError, match="feature names"):
        encoder.transform(frame.rename(columns={"alcohol": "water"}))


def test_verbose_shows_a_bar(wine, capsys):
    SiameseEncoder(steps=2, random_state=0).fit(wine[0])
    assert capsys.readouterr().err == ""
    SiameseEncoder(steps=2, random_state=0, verbose=True).fit(wine[0])
    assert "2/2" in capsys.readouterr().err


class TestTrouble:
    def test_collapse_warns_once_with_what_to_try(self, wine):
        encoder = SiameseEncoder(settings={"plan.weight_decay": 10.0}, steps=200, random_state=0)
        with pytest.warns(CollapseWarning, match=r"representation collapse.*try") as caught:
            encoder.fit(wine[0])
        assert len(caught) == 1
        assert caught[0].filename == __file__
        assert set(encoder.collapsed_) == {"representation"}
        assert any(row.get("event") == "collapse" for row in encoder.history_)
        assert encoder.score(wine[0]) == pytest.approx(0, abs=1e-3)

    def test_health_does_not_warn(self, wine):
        with warnings.catch_warnings():
            warnings.simplefilter("error", CollapseWarning)
            encoder = SiameseEncoder(steps=50, random_state=0).fit(wine[0])
        assert encoder.collapsed_ == {}

    @pytest.mark.parametrize("lr", [1e12, 1e30])
    def test_a_loss_that_is_not_finite(self, lr, wine):
        with pytest.raises(NonFiniteLoss, match=r"stopped at step \d+ because the .* not finite.*: lower lr"):
            SiameseEncoder(lr=lr, settings={"plan.warmup": 0}, steps=50, random_state=0).fit(wine[0])

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({"objective": "infonse"}, "did you mean 'infonce'?"),
            ({"objective": ["snl"]}, "an objective is a name or an Objective, not ['snl']"),
            ({"energy": "cosinus"}, "did you mean 'cosine'?"),
            ({"energy": "pnorm", "settings": {"energy.p": 0.5}}, "at least 1"),
            ({"objective": "spectral", "energy": "cosine"}, "has its own energy: leave energy out"),
            ({"pairing": 3}, "a pairing is a name or a Pairing, not 3"),
            ({"encoder": 3}, "an encoder is a name or a module, not 3"),
            ({"encoder": "conv"}, "is for images"),
            ({"dim": 3, "settings": {"encoder.dim": 4}}, "dim is 3 and encoder.dim is 4: give one of them"),
            ({"encoder": nn.Linear(2, 3)}, "the network Linear does not take observations [13]"),
            (
                {"encoder": nn.Linear(13, 3), "dim": 3},
                "dim is set by your encoder, which was given as an object: leave it out",
            ),
            ({"head": 3}, "a head is a name or a module, not 3"),
            ({"steps": 0}, "steps must be at least 1"),
            ({"steps": "many"}, "plan.steps cannot be 'many'"),
            ({"lr": -1.0}, "lr must be positive"),
            ({"settings": {"encoder.hidden": (8, 0)}}, "widths of an MLP must be positive"),
            ({"settings": {"encoder.hidden": "wide"}}, "encoder.hidden cannot be 'wide'"),
            ({"settings": {"plan.optimiser": "lbfgs"}}, "adam, adamw, sgd"),
            ({"settings": {"hidden": (8,)}}, "settings are named by their part"),
            ({"settings": {"pairing.preserve": 1}}, "no setting 'preserve': did you mean 'preservation'?"),
            ({"settings": "pairing.preservation"}, "settings is a dict by path"),
            ({"random_state": "x"}, "cannot be used to seed"),
            ({"random_state": -1}, "0"),
        ],
    )
    def test_bad_parameters_are_one_sentence(self, options, said, wine):
        with pytest.raises(ValueError, match=re.escape(said)) as caught:
            SiameseEncoder(**options).fit(wine[0])
        message = str(caught.value)
        assert "\n" not in message
        assert len(message) < 200

    @pytest.mark.parametrize("objective", ["deepcluster", "instance", DeepClustering()])
    def test_partial_fit_refuses_objectives_that_remember_rows(self, objective, wine):
        with pytest.raises(InputError, match="remembers the rows"):
            SiameseEncoder(objective).partial_fit(wine[0])
        encoder = SiameseEncoder(objective, steps=2, random_state=0).fit(wine[0])
        with pytest.raises(InputError, match="remembers the rows"):
            encoder.partial_fit(wine[0])

    def test_partial_fit_refuses_bad_steps(self, wine):
        with pytest.raises(InputError, match="steps must be at least 1"):
            SiameseEncoder().partial_fit(wine[0], steps=0)

    def test_scoring_needs_two_rows(self, trained):
        with pytest.raises(ValueError, match="minimum of 2"):
            trained.score(np.zeros((1, 64)))
