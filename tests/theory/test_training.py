"""Theory as oracle: linear encoders trained by gradient descent on samples arrive where the theorems say."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from probssl.studies import linear_cases
from probssl.studies.linear_cases import Case, cases
from probssl.studies.linear_theory import TOLERANCE
from probssl.studies.linear_trials import train
from probssl.theory.linear import shifted_noise_gram

STEPS, BATCH = 400, 256
TOLERATED = 2 * TOLERANCE  # a quarter of the steps and half of the pairs of the study
EVERY = cases(BATCH)


@pytest.fixture(autouse=True)
def fewer_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear_cases, "ROWS", 50_000)


def named(theorem: str, loss: str, setting: str) -> Case:
    (case,) = [c for c in EVERY if (c.theorem, c.loss, c.setting) == (theorem, loss, setting)]
    return case


@pytest.mark.parametrize("loss", ["Fisher", "KL", "NCE", "SNL"])
@pytest.mark.parametrize("shift", ["no shift", "shift"])
def test_the_four_losses_recover_the_precision_of_the_noise(loss: str, shift: str) -> None:
    """WᵀW = (Σ + μμᵀ)⁻¹ within 6 %, for Gaussian data, with and without shift."""
    theorem = "Cor. 2.2" if loss == "Fisher" else "Thm 2.5" if shift == "shift" else "Thm 2.4"
    case = named(theorem, loss, f"Gaussian, {shift}, m = 3")
    expected = shifted_noise_gram(linear_cases.NOISE, linear_cases.SHIFT if shift == "shift" else None)
    np.testing.assert_allclose(case.gram, expected, rtol=1e-10)
    outcome = train(case, 0, STEPS, BATCH)
    assert outcome["error"] < TOLERATED
    assert case.value is not None
    assert outcome["value"] == pytest.approx(case.value(expected), abs=0.01 * case.constant)


@pytest.mark.parametrize(
    "case",
    [
        named("Thm 2.4", "KL", "skewed, no shift, m = 3"),
        named("Cor. 2.2", "Fisher", "skewed, shift, m = 3"),
        named("Cor. 2.2", "Fisher", "Gaussian, shift, m = 2"),
        named("Cor. 2.2", "Fisher", "Gaussian, shift, m = 5"),
        named("Cor. 2.2", "sliced Fisher", "Gaussian, shift, m = 3"),
        named("Thm 2.4", "KL", "Gaussian, no shift, m = 2"),
        named("Thm 2.4", "Rényi 2", "Gaussian, no shift, m = 3"),
        named("Thm 2.4", "χ²", "Gaussian, no shift, m = 3"),
        named("Lemma 2.1", "Fisher", "shear"),
        named("Lemma 2.1", "Fisher", "mask 0.2 and noise 0.5"),
        named("Thm 2.3", "Fisher", "reflection of one axis"),
        named("Thm 2.3", "Fisher", "x̃ = −x + ε"),
        named("Asymmetric", "Fisher", "x̃ = −x + ε"),
        named("CL-ICA Prop. 1", "KL", "sphere in 10 dimensions, κ = 10"),
    ],
    ids=lambda case: case.name,
)
def test_other_settings(case: Case) -> None:
    assert train(case, 0, STEPS, BATCH)["error"] < TOLERATED


def test_the_theorem_fails_where_its_assumption_does() -> None:
    """Skewed data and a shift: training agrees with quadrature and not with (σ² + μ²)⁻¹."""
    case = named("Beyond 2.5", "KL", "skewed, shift, d = 1")
    best, formula = linear_cases.skewed_optimum()
    assert abs(best - formula) / best > 0.08
    outcome = train(case, 0, STEPS, BATCH)
    assert outcome["error"] < 0.04
    assert abs(outcome["gram"][0, 0] - formula) > abs(outcome["gram"][0, 0] - best)


def test_one_bias_for_all_augmentations_is_not_enough() -> None:
    """Jensen–Shannon has the same optimum only for an energy that can carry log p(x̃), which ½‖Wx − Wx̃‖² cannot."""
    case = named("Thm 2.4", "KL", "Gaussian, no shift, m = 3")
    outcome = train(dataclasses.replace(case, loss="Jensen–Shannon"), 0, STEPS, BATCH)
    assert 0.08 < outcome["error"] < 0.2


def test_a_bias_that_cannot_be_the_normaliser_misleads() -> None:
    """log Z of skewed data is no quadratic form: with one SNL ends elsewhere, with a network at the optimum."""
    case = named("Thm 2.4", "SNL", "skewed, no shift, m = 3")
    assert train(case, 0, STEPS, BATCH)["error"] < TOLERATED
    assert train(dataclasses.replace(case, loss="SNL, quadratic bias"), 0, STEPS, BATCH)["error"] > 0.1


def test_skewed_data_have_the_moments_of_the_gaussian() -> None:
    x = linear_cases.skewed(linear_cases.DATA)(0)
    np.testing.assert_allclose(np.cov(x.T), linear_cases.DATA, atol=0.03)
    np.testing.assert_allclose(x.mean(0), 0, atol=0.02)
    assert abs(np.mean(((x[:, 0] - x[:, 0].mean()) / x[:, 0].std()) ** 3)) > 0.5
    grid = np.linspace(-8, 8, 4001)
    density = linear_cases.skewed_density(grid)
    assert np.trapezoid(density, grid) == pytest.approx(1, abs=1e-9)
    assert np.trapezoid(density * grid**2, grid) == pytest.approx(1, abs=1e-9)


def test_every_theorem_has_settings_of_every_kind() -> None:
    words = " / ".join(case.name for case in EVERY)
    for part in ("Gaussian", "skewed", "no shift", ", shift", "m = 2", "m = 3", "m = 5", "Fisher", "KL", "NCE", "SNL"):
        assert part in words
    assert len({case.name for case in EVERY}) == len(EVERY)
    assert all(dataclasses.is_dataclass(case) for case in EVERY)
