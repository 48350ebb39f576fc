"""ContrastiveICA: scikit-learn's own checks, sources found behind nonlinear mixtures, and what it refuses."""

from __future__ import annotations

import math
import pickle
import re
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.signal import lfilter
from sklearn.base import clone
from sklearn.decomposition import PCA, FastICA
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.utils.estimator_checks import parametrize_with_checks

import probssl
from probssl.errors import CollapseWarning, InputError, NonFiniteLoss
from probssl.estimators import ContrastiveICA
from probssl.estimators.ica import MODELS
from probssl.metrics import block_orthogonality, concentration_error, linear_r2, mcc
from probssl.objectives import InfoNCE
from probssl.pairings import Needs, Views
from probssl.worlds import (
    Box,
    FisherBingham,
    InvertibleMLP,
    Sphere,
    Uniform,
    VonMisesFisher,
    World,
    laplace,
)

SMALL = {"steps": 2, "settings": {"encoder.hidden": (4,)}}
CONFIGURED = [
    ContrastiveICA(**SMALL),
    ContrastiveICA("normal", lag=(1, 2), dim=1, steps=2, settings={"encoder.hidden": ()}),
    ContrastiveICA("anisotropic", **SMALL),
    ContrastiveICA("vmf", dim=3, **SMALL),
]


@parametrize_with_checks(CONFIGURED)
@pytest.mark.filterwarnings("ignore::probssl.errors.CollapseWarning")
def test_scikit_learn(estimator, check):
    check(estimator)


def recording(rows, innovations, persistence, seed=0):
    """Sources of variance 1 with z_t = ρ z_{t−1} + e_t, and their nonlinear mixture: X [rows, d], Z [rows, d]."""
    rng = np.random.default_rng(seed)
    steps = {"laplace": rng.laplace, "normal": rng.normal}[innovations](size=(rows + 500, len(persistence)))
    steps /= steps.std(0)
    z = [lfilter([math.sqrt(1 - r**2)], [1, -r], e) for r, e in zip(persistence, steps.T, strict=True)]
    z = np.stack(z, 1)[500:]
    return mix(z, seed), z


def mix(z, seed=0):
    mixing = InvertibleMLP(z.shape[1], draws=1000, seed=seed).double()
    return mixing(torch.tensor(z)).numpy()


def pairs(world, rows, seed=0):
    """X, X_positive and the sources of X."""
    views = world.draw(rows, Needs(), torch.Generator().manual_seed(seed))
    return (part.double().numpy() for part in (views.x, views.augmented[0], views.latents))


def fast_ica(inside, outside):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return FastICA(inside.shape[1], random_state=0).fit(inside).transform(outside)


@pytest.fixture(scope="module")
def slow():
    """A recording of three sources, all with Laplace innovations and as slow as each other; 1000 rows to judge by."""
    x, z = recording(5000, "laplace", [0.95] * 3)
    return x[:4000], x[4000:], z[4000:]


@pytest.fixture(scope="module")
def fitted(slow):
    return ContrastiveICA(steps=400, random_state=0).fit(slow[0])


class TestRecording:
    def test_finds_what_linear_methods_do_not(self, fitted, slow):
        inside, outside, truth = slow
        sources = fitted.transform(outside)
        linear = fast_ica(inside, outside)
        assert mcc(sources, truth).value > 0.98
        assert linear_r2(sources, truth).mean > 0.96
        for other in (outside, PCA(3).fit(inside).transform(outside), linear):
            assert mcc(other, truth).value < 0.85
            assert linear_r2(other, truth).mean < 0.85

    def test_sources_are_standardised_and_ordered(self, fitted, slow):
        sources = fitted.transform(slow[0])
        np.testing.assert_allclose(sources.mean(0), 0, atol=1e-8)
        np.testing.assert_allclose(sources.std(0), 1, rtol=1e-8)
        assert (np.diff(fitted.concentrations_) <= 0).all()

    def test_concentrations_are_the_rates_of_the_steps(self, fitted):
        rate = math.sqrt(2 / (1 - 0.95**2))  # of Laplace innovations of variance 1 − ρ²
        np.testing.assert_allclose(fitted.concentrations_, rate, rtol=0.2)

    def test_normal_steps_of_different_persistence(self):
        """InfoNCE leaves a rotation open, and the principal axes close it; the score says that the model is right."""
        x, z = recording(4000, "normal", [0.98, 0.9, 0.7])
        inside, outside, truth = x[:3000], x[3000:], z[3000:]
        normal, other = (
            ContrastiveICA(model, steps=300, random_state=0).fit(inside) for model in ("normal", "laplace")
        )
        sources = normal.transform(outside)
        linear = fast_ica(inside, outside)
        assert mcc(sources, truth).value > 0.95 > 0.85 > mcc(linear, truth).value
        assert mcc(sources[:, :1], truth[:, :1]).value > 0.95  # the slowest comes first
        assert normal.score(outside) > other.score(outside)

    def test_the_score_prefers_laplace_where_steps_are(self, fitted, slow):
        normal = ContrastiveICA("normal", steps=400, random_state=0).fit(slow[0])
        assert fitted.score(slow[1]) > normal.score(slow[1])

    def test_groups_are_recordings_of_their_own(self, slow):
        inside = slow[0][:300]
        labels = np.repeat(["b", "a"], [100, 200])
        ica = ContrastiveICA(**SMALL, random_state=0)
        rows = probssl.load(inside)
        ica.preparation_ = probssl.data.Preparation.fit(rows.layout, inside)
        ica.n_features_in_ = 3
        found = {tuple(pair) for pair in ica._source(rows, None, None, labels).pairs.tolist()}
        assert found == {(t, t + 1) for t in range(299)} - {(99, 100)}
        alternating = ica._source(rows, None, None, np.arange(300) % 2).pairs.tolist()
        assert {tuple(pair) for pair in alternating} == {(t, t + 2) for t in range(298)}

    def test_several_lags(self, slow):
        ica = ContrastiveICA(lag=[1, 3], **SMALL, random_state=0).fit(slow[0][:100])
        found = {tuple(pair) for pair in ica._source(probssl.load(slow[0][:100]), None, None, None).pairs.tolist()}
        assert found == {(t, t + 1) for t in range(99)} | {(t, t + 3) for t in range(97)}


class TestPairs:
    def test_on_a_box(self):
        space = Box(3, -1, 1)
        world = World(Uniform(space), laplace(space, 0.1), InvertibleMLP(3, draws=1000))
        x, positive, _ = pairs(world, 3000)
        outside, _, truth = pairs(world, 1000, seed=1)
        sources = ContrastiveICA(steps=400, random_state=0).fit(x, positive).transform(outside)
        linear = fast_ica(x, outside)
        assert mcc(sources, truth).value > 0.98
        for other in (outside, PCA(3).fit(x).transform(outside), linear):
            assert mcc(other, truth).value < 0.88

    def test_on_a_sphere_up_to_rotation(self):
        space = Sphere(3)
        world = World(Uniform(space), VonMisesFisher(space, 20.0), InvertibleMLP(3, draws=1000))
        x, positive, _ = pairs(world, 3000)
        outside, _, truth = pairs(world, 1000, seed=1)
        sources = ContrastiveICA("vmf", steps=300, random_state=0).fit(x, positive).transform(outside)
        np.testing.assert_allclose(np.linalg.norm(sources, axis=1), 1)
        assert linear_r2(sources, truth).mean > 0.97 > 0.9 > linear_r2(outside, truth).mean

    def test_concentrations_of_the_anisotropic_model(self):
        space, truth = Sphere(3), [4.0, 16.0, 64.0]
        world = World(Uniform(space), FisherBingham(space, torch.tensor(truth)), InvertibleMLP(3, draws=1000))
        x, positive, _ = pairs(world, 4000)
        outside, _, latents = pairs(world, 1000, seed=1)
        ica = ContrastiveICA("anisotropic", settings={"encoder.hidden": (64, 64)}, steps=800, random_state=0).fit(
            x, positive
        )
        assert (np.diff(ica.concentrations_) < 0).all()
        assert concentration_error(ica.concentrations_, truth).maximum < 0.35
        assert block_orthogonality(ica.transform(outside), latents, truth).leakage < 0.02
        assert mcc(ica.transform(outside), latents).value > 0.97

    def test_positives_by_place_and_by_name(self, slow):
        x, positive = slow[0][:-1], slow[0][1:]
        ica = ContrastiveICA(**SMALL, random_state=0)
        by_place = ica.fit(x, positive).transform(x)
        np.testing.assert_array_equal(ica.fit(x, X_positive=positive).transform(x), by_place)
        np.testing.assert_array_equal(ica.fit_transform(x, positive), by_place)
        np.testing.assert_array_equal(ica.fit(x, x[:, 0], X_positive=positive).transform(x), by_place)
        assert not np.allclose(ica.fit(x, x[::-1]).transform(x), by_place)

    def test_labels_are_ignored(self, slow):
        x = slow[0][:100]
        ica = ContrastiveICA(**SMALL, random_state=0)
        alone = ica.fit(x).transform(x)
        for labels in (np.arange(100), list("ab" * 50), pd.Series(np.arange(100.0))):
            np.testing.assert_array_equal(ica.fit(x, labels).transform(x), alone)


class TestScore:
    def test_is_log_n_less_infonce_of_disjoint_pairs(self, fitted, slow):
        x = slow[1][:60]
        encoder, energy = fitted.encoder_, fitted.objective_.energy
        inputs = [fitted._inputs(probssl.load(part)).float() for part in (x[:-1], x[1:])]
        with torch.no_grad():
            loss = InfoNCE(energy)(encoder, Views(inputs[0], inputs[1].unsqueeze(0))).total.item()
        assert fitted.score(x[:-1], x[1:]) == pytest.approx(math.log(59) - loss, abs=1e-4)
        assert fitted.score(x) != pytest.approx(fitted.score(x[:-1], x[1:]))  # of a recording no row comes twice

    def test_bounds(self, fitted, slow):
        untrained = ContrastiveICA(steps=1, lr=1e-9, random_state=0).fit(slow[0])
        assert untrained.score(slow[1]) + 0.5 < fitted.score(slow[1]) < math.log(1000)

    def test_grid_search(self):
        space = Box(2, 0, 1)
        x, positive, _ = pairs(World(Uniform(space), laplace(space, 0.05)), 600)
        ica = ContrastiveICA(steps=60, settings={"encoder.hidden": (16,)}, random_state=0)
        search = GridSearchCV(ica, {"lr": [1e-9, 1e-2]}, cv=KFold(2), error_score="raise").fit(x, positive)
        assert search.best_params_ == {"lr": 1e-2}
        assert search.transform(x).shape == (600, 2)


class TestCopies:
    def test_determined_by_a_whole_number(self, slow):
        x = slow[0][:200]
        before = torch.get_rng_state()
        first, again, other = (ContrastiveICA(steps=5, random_state=s).fit(x).transform(x) for s in (1, np.int64(1), 2))
        np.testing.assert_array_equal(first, again)
        assert not np.allclose(first, other)
        assert torch.equal(torch.get_rng_state(), before)

    def test_pickle_and_clone(self, fitted, slow):
        copied = pickle.loads(pickle.dumps(fitted))
        np.testing.assert_array_equal(copied.transform(slow[1]), fitted.transform(slow[1]))
        assert copied.score(slow[1]) == fitted.score(slow[1])
        bare = clone(fitted)
        assert bare.get_params() == fitted.get_params()
        for method in (bare.transform, bare.score):
            with pytest.raises(NotFittedError):
                method(slow[1])

    def test_precision_follows_the_rows(self, fitted, slow):
        double, single = fitted.transform(slow[1]), fitted.transform(slow[1].astype(np.float32))
        assert (double.dtype, single.dtype) == (np.float64, np.float32)
        np.testing.assert_allclose(single, double, atol=1e-3)

    def test_units_of_measurement_do_not_matter(self, slow):
        x = slow[0][:300]
        plain, scaled = (
            ContrastiveICA(steps=5, random_state=0).fit(rows).transform(rows) for rows in (x, 1e3 * x + 1e6)
        )
        np.testing.assert_allclose(plain, scaled, atol=1e-3)

    def test_data_frames(self, slow):
        frame = pd.DataFrame(slow[0][:50], columns=list("abc"))
        ica = ContrastiveICA(dim=2, **SMALL, random_state=0).set_output(transform="pandas")
        out = ica.fit(frame, frame.shift(1, fill_value=0.0)).transform(frame)
        assert list(out.columns) == ["contrastiveica0", "contrastiveica1"] == list(ica.get_feature_names_out())
        assert list(ica.feature_names_in_) == ["a", "b", "c"]
        with pytest.raises(ValueError, match="feature names"):
            ica.fit(frame, frame[["b", "a", "c"]])

    def test_history_and_name(self, fitted):
        assert probssl.ContrastiveICA is ContrastiveICA
        assert [row["step"] for row in fitted.history_][-1] == 400
        assert fitted.collapsed_ == {}


def test_verbose_shows_a_bar(slow, capsys):
    ContrastiveICA(**SMALL, verbose=True).fit(slow[0][:50])
    assert "2/2" in capsys.readouterr().err


class TestTrouble:
    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({"model": "gauss"}, "there is no model 'gauss': choose one of laplace, normal, anisotropic, vmf"),
            ({"steps": 0}, "steps must be at least 1, not 0"),
            ({"steps": "many"}, "plan.steps cannot be 'many': it is a whole number"),
            ({"batch_size": 1}, "batch size must be at least 2"),
            ({"lr": -1.0}, "lr must be positive and finite, not -1.0"),
            ({"concentration": 0}, "concentration must be positive"),
            ({"dim": 4}, "more sources than features: dim is 4, X has 3 features"),
            ({"dim": 0}, "dim must be a whole number of at least 1"),
            ({"model": "vmf", "dim": 1}, "a sphere has at least two dimensions"),
            ({"settings": {"encoder.hidden": (8, 0)}}, "positive, not [3, 8, 0, 3]"),
            ({"settings": {"encoder.hidden": "wide"}}, "encoder.hidden cannot be 'wide'"),
            ({"settings": {"energy.p": 2}}, "the energy was given as an object"),
            ({"lag": 0}, "lag must be a whole number of at least 1, not 0"),
            ({"lag": 1.5}, "lag must be a whole number or a sequence of them, not 1.5"),
            ({"lag": ()}, "lags are at least one row"),
            ({"lag": 99}, "100 rows have 1 pairs of neighbours at lag 99"),
            ({"random_state": "x"}, "cannot be used to seed"),
        ],
    )
    def test_bad_parameters_are_one_sentence(self, options, said, slow):
        with pytest.raises(ValueError, match=re.escape(said)) as caught:
            ContrastiveICA(**options).fit(slow[0][:100])
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 200

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            ({"y": np.zeros((50, 2))}, "positives must have the shape of X, (50, 3), one for each row, not (50, 2)"),
            ({"X_positive": np.zeros(50)}, "not (50,)"),
            ({"X_positive": np.zeros((49, 3))}, "not (49, 3)"),
            ({"X_positive": np.full((50, 3), np.nan)}, "NaN"),
            ({"y": np.zeros((50, 3)), "X_positive": np.zeros((50, 3))}, "given both"),
            ({"X_positive": np.zeros((50, 3)), "groups": np.zeros(50)}, "leave them out"),
            ({"groups": np.zeros(49)}, "groups must be 50 labels, one per row"),
            ({"groups": np.arange(50)}, "50 rows have 0 pairs of neighbours"),
        ],
    )
    def test_bad_positives_are_one_sentence(self, arguments, said, slow):
        with pytest.raises(ValueError, match=re.escape(said)):
            ContrastiveICA(**SMALL).fit(slow[0][:50], **arguments)

    def test_a_loss_that_is_not_finite(self, slow):
        with pytest.raises(NonFiniteLoss, match="lower lr"):
            ContrastiveICA(lr=1e30, steps=50, random_state=0).fit(slow[0])

    def test_collapse_warns_at_the_caller(self):
        x = np.ones((100, 2))  # sensors that record nothing
        with pytest.warns(CollapseWarning, match=r"collapse.*try a lower lr") as caught:
            ica = ContrastiveICA(settings={"encoder.hidden": (4,)}, steps=60, random_state=0).fit(x)
        assert caught[0].filename == __file__
        assert set(ica.collapsed_) == {"representation"}
        assert np.isfinite(ica.transform(x)).all()


def test_settings_decide_last(slow):
    ica = ContrastiveICA("vmf", settings={"encoder.dim": 5, "encoder.hidden": (4,), "plan.steps": 2}).fit(slow[0][:50])
    assert ica.transform(slow[0][:50]).shape == (50, 5)
    assert (ica.n_steps_, ica.recipe_.plan["objective_lr"]) == (2, 0.1)


def test_every_model_is_described():
    assert set(MODELS) == {"laplace", "normal", "anisotropic", "vmf"}
    for model in MODELS:
        assert model in ContrastiveICA.__doc__


def test_too_few_rows_are_an_input_error():
    with pytest.raises(InputError, match="2 rows have 1 pairs"):
        ContrastiveICA().fit(np.eye(2))
