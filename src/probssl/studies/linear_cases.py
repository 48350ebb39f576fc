"""Theorems about linear encoders in settings where they can be trained: data, augmentation, loss, and prediction."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from probssl.pairings import GaussianNoise, LinearMixture, MaskAndNoise, Pairing
from probssl.theory import linear, sphere_bayes, sphere_samples

ROWS = 200_000
"""Observations drawn for every case: a population, so that closed forms in expectation apply."""

DATA = np.array([[1.0, 0.3, -0.2], [0.3, 0.6, 0.1], [-0.2, 0.1, 1.5]])
NOISE = np.array([[0.30, 0.12, 0.0], [0.12, 0.20, 0.05], [0.0, 0.05, 0.40]])
SHIFT = np.array([0.4, -0.3, 0.2])
PLANE_DATA = np.array([[1.0, 0.3], [0.3, 0.6]])
SHEAR = np.array([[1.0, 0.8], [-0.6, 0.5]])
STEEP, STEEP_NOISE = np.array([[1.0, 10.4], [10.4, 25.0]]), np.array([[0.989184, -0.02496], [-0.02496, 24.931584]])
CONCENTRATION, SPHERE_DIM = 10.0, 10


class VonMisesFisher(Pairing):
    """z̃ | z of density C e^{κ zᵀz̃} on the unit sphere."""

    def __init__(self, concentration: float) -> None:
        super().__init__()
        self.concentration = concentration

    def sample(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        seed = int(torch.randint(2**62, (), generator=generator))
        drawn = sphere_samples.sample_vmf(x.double().numpy(), self.concentration, np.random.default_rng(seed))
        return torch.from_numpy(drawn).to(x.dtype)

    def log_prob(self, x_aug: Tensor, x: Tensor) -> Tensor:
        return self.concentration * (x_aug * x).sum(-1)  # up to a constant, which no loss here needs

    def score(self, x_aug: Tensor, x: Tensor) -> Tensor:
        raise NotImplementedError("the score on the sphere is tangential")


@dataclass(frozen=True)
class Case:
    """A theorem in one setting: what to train, and the Gram matrix and loss that theory predicts for it."""

    theorem: str
    loss: str
    setting: str
    outputs: int
    data: Callable[[int], np.ndarray]  # seed -> [n, d]
    pairing: Callable[[], Pairing]
    gram: np.ndarray
    value: Callable[[np.ndarray], float] | None  # the loss of any Gram matrix, where it has a closed form
    constant: float = 1.0  # the loss of a constant encoder, the scale of what is to be gained
    asymmetric: bool = False

    @property
    def name(self) -> str:
        """How the case is called in tables."""
        return f"{self.theorem}: {self.loss}, {self.setting}"


# --- data -------------------------------------------------------------------------------------------------------------


def gaussian(covariance: np.ndarray) -> Callable[[int], np.ndarray]:
    """Centred Gaussian data."""
    root = np.linalg.cholesky(covariance)
    return lambda seed: np.random.default_rng(seed).standard_normal((ROWS, len(root))) @ root.T


SKEWED_VARIANCE = 0.3 * 0.81 + 0.7 * 0.16 + 0.3 * 1.4**2 + 0.7 * 0.6**2
"""Of the mixture 0.3 N(1.4, 0.9²) + 0.7 N(−0.6, 0.4²)."""


def skewed(covariance: np.ndarray) -> Callable[[int], np.ndarray]:
    """Data of the same mean and covariance from independent two-component mixtures: smooth, fast-decaying, skewed."""
    root = np.linalg.cholesky(covariance)

    def draw(seed: int) -> np.ndarray:
        chance = np.random.default_rng(seed)
        shape = (ROWS, len(root))
        wide = chance.random(shape) < 0.3
        parts = np.where(wide, 1.4 + 0.9 * chance.standard_normal(shape), -0.6 + 0.4 * chance.standard_normal(shape))
        return np.asarray(parts / SKEWED_VARIANCE**0.5 @ root.T)

    return draw


def skewed_density(x: np.ndarray) -> np.ndarray:
    """The density of one coordinate of `skewed` at unit variance."""
    scale = SKEWED_VARIANCE**0.5
    y = x * scale
    wide = 0.3 * np.exp(-0.5 * ((y - 1.4) / 0.9) ** 2) / 0.9
    narrow = 0.7 * np.exp(-0.5 * ((y + 0.6) / 0.4) ** 2) / 0.4
    return np.asarray(scale * (wide + narrow) / np.sqrt(2 * np.pi))


def uniform_on_sphere(seed: int) -> np.ndarray:
    """Points of the unit sphere in ten dimensions."""
    return sphere_samples.sample_uniform(ROWS, SPHERE_DIM, np.random.default_rng(seed))


# --- cases ------------------------------------------------------------------------------------------------------------


@functools.cache
def cases(batch_size: int) -> tuple[Case, ...]:
    """Every theorem in every setting; the sphere's prediction depends on the number of candidates."""
    return *_gaussian_noise(), *_linear_maps(), _where_it_fails(), _sphere(batch_size)


def _gaussian_noise() -> Iterator[Case]:
    """Corollary 2.2 (Fisher, any data), Theorem 2.4 (KL, any data, no shift), Theorem 2.5 (KL, Gaussian data)."""
    for shift, outputs, kind in [
        (None, 3, "Gaussian"),
        (SHIFT, 3, "Gaussian"),
        (None, 2, "Gaussian"),
        (SHIFT, 2, "Gaussian"),
        (SHIFT, 5, "Gaussian"),
        (None, 3, "skewed"),
        (SHIFT, 3, "skewed"),
        (SHIFT, 2, "skewed"),
    ]:
        data = (gaussian if kind == "Gaussian" else skewed)(DATA)
        setting = f"{kind}, {'shift' if shift is not None else 'no shift'}, m = {outputs}"
        rank = outputs if outputs < 3 else None
        mean = 0.0 if shift is None else torch.from_numpy(shift)
        pairing = functools.partial(GaussianNoise, covariance=torch.from_numpy(NOISE), mean=mean)
        moments = linear.Moments.of_gaussian_noise(NOISE, shift)
        for loss in ("Fisher", "sliced Fisher") if (outputs, kind) == (3, "Gaussian") else ("Fisher",):
            gram, value = linear.fisher_gram(moments, rank), functools.partial(linear.fisher_loss, moments=moments)
            yield Case("Cor. 2.2", loss, setting, outputs, data, pairing, gram, value, moments.score_power)
        if kind == "skewed" and (shift is not None or outputs < 3):
            continue  # no closed form: see _where_it_fails
        pair = linear.GaussianPair(DATA, NOISE, shift)
        everywhere = kind == "Gaussian" and shift is None and outputs == 3
        for loss in ("KL", "NCE", "SNL", *(("Rényi 2", "χ²") if everywhere else ())):
            theorem = "Thm 2.4" if shift is None else "Thm 2.5"
            gram = linear.kl_gram(pair, rank)
            kl = functools.partial(linear.kl_loss, pair=pair) if kind == "Gaussian" else None
            yield Case(theorem, loss, setting, outputs, data, pairing, gram, kl, pair.information)


def _linear_maps() -> Iterator[Case]:
    """Lemma 2.1 and Theorem 2.3, corrected: shears, reflections, masks."""

    def case(
        theorem: str, setting: str, mapped: np.ndarray, data: np.ndarray, noise: np.ndarray, asymmetric: bool = False
    ) -> Case:
        moments, dim, rows = linear.Moments.of_linear_map(mapped, data, noise), len(data), gaussian(data)
        pairing = functools.partial(LinearMixture, torch.from_numpy(mapped[None]), covariance=torch.from_numpy(noise))
        gram = mapped.T @ np.linalg.solve(noise, mapped) if asymmetric else linear.fisher_gram(moments)
        value = None if asymmetric else functools.partial(linear.fisher_loss, moments=moments)
        scale = moments.score_power
        return Case(theorem, "Fisher", setting, dim, rows, pairing, gram, value, scale, asymmetric)

    quarter = 0.25 * np.eye(2)
    yield case("Lemma 2.1", "shear", SHEAR, PLANE_DATA, np.diag([0.1, 0.4]))
    yield case("Thm 2.3", "reflection of one axis", np.diag([1.0, -1.0]), np.eye(2), quarter)
    yield case("Thm 2.3", "x̃ = −x + ε", -np.eye(2), np.eye(2), quarter)
    yield case("Thm 2.3", "steep map of determinant −83", STEEP, 1e-4 * np.eye(2), STEEP_NOISE)
    yield case("Asymmetric", "x̃ = −x + ε", -np.eye(2), np.eye(2), quarter, True)
    gram = linear.fisher_gram(linear.Moments.of_mask_and_noise(0.8, 0.5, DATA))
    mask = functools.partial(MaskAndNoise, 0.8, 0.5)
    yield Case("Lemma 2.1", "Fisher", "mask 0.2 and noise 0.5", 3, gaussian(DATA), mask, gram, None)


def _where_it_fails() -> Case:
    """The KL loss with a shift and skewed data, in one dimension: its optimum by quadrature is not that of Thm 2.5."""
    best, _ = skewed_optimum()
    pairing = functools.partial(GaussianNoise, 0.6, mean=torch.tensor([0.5]))
    return Case("Beyond 2.5", "KL", "skewed, shift, d = 1", 1, skewed(np.eye(1)), pairing, np.array([[best]]), None)


@functools.cache
def skewed_optimum(shift: float = 0.5, variance: float = 0.36) -> tuple[float, float]:
    """argmin of E[½g(x − x̃)² + log Z] over g for skewed data, by quadrature, and the formula (σ² + μ²)⁻¹ that fails."""
    from scipy import integrate, optimize

    x = np.linspace(-8, 8, 801)
    density = skewed_density(x)
    noise = np.exp(-0.5 * (x[None, :] - x[:, None] - shift) ** 2 / variance) / np.sqrt(2 * np.pi * variance)
    marginal = integrate.trapezoid(density[:, None] * noise, x, axis=0)

    def loss(g: float) -> float:
        z = integrate.trapezoid(density[:, None] * np.exp(-0.5 * g * (x[:, None] - x[None, :]) ** 2), x, axis=0)
        return float(0.5 * g * (variance + shift**2) + integrate.trapezoid(marginal * np.log(z), x))

    found = optimize.minimize_scalar(loss, bounds=(0.3, 4), method="bounded", options={"xatol": 1e-8})
    return float(found.x), 1 / (variance + shift**2)


def _sphere(batch_size: int) -> Case:
    """CL-ICA Proposition 1, corrected: von Mises–Fisher pairs are matched by WᵀW = κI, the radius √(τκ) at τ = 1."""
    least = sphere_bayes.bayes_infonce_vmf(SPHERE_DIM, CONCENTRATION, batch_size - 1)

    def value(gram: np.ndarray) -> float:
        scale = float(np.trace(gram)) / SPHERE_DIM
        return sphere_bayes.infonce_vmf(SPHERE_DIM, CONCENTRATION, 1 / scale, batch_size - 1)

    gram = CONCENTRATION * np.eye(SPHERE_DIM)
    assert abs(value(gram) - least) < 1e-6
    setting = f"sphere in {SPHERE_DIM} dimensions, κ = {CONCENTRATION:g}"
    pairing = functools.partial(VonMisesFisher, CONCENTRATION)
    constant = float(np.log(batch_size))
    return Case("CL-ICA Prop. 1", "KL", setting, SPHERE_DIM, uniform_on_sphere, pairing, gram, value, constant)
