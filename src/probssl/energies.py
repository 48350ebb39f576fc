"""Energies δ(a, b) between embeddings: low means alike. The model of every objective is q(x | x̃) ∝ p(x) e^{−δ}.

An energy answers two questions, `paired(a, b)` [n] for matching rows and `pairwise(a, b)` [n, m] for all pairs,
and says how the two sides of a pair are embedded (`embed`, `embed_augmented`): alike in a Siamese network,
differently in an asymmetric one. All of them can be differentiated twice, so that losses on ∇ₓδ can be trained.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from probssl.encoders import Predictor
from probssl.errors import InputError
from probssl.parts.part import Context, Part

__all__ = [
    "Anisotropic",
    "Asymmetric",
    "Cosine",
    "Dot",
    "Energy",
    "Euclidean",
    "InnerProductEnergy",
    "PNorm",
    "Student",
    "squared_distance_factors",
    "unit",
]


def unit(z: Tensor, length: float = 1.0) -> Tensor:
    """z · length / ‖z‖ along the last dimension, smooth at zero so that second derivatives stay finite."""
    tiny = torch.finfo(z.dtype).eps ** 2
    inverse_norm = (z.square().sum(-1, keepdim=True) + tiny).rsqrt()
    return z * (inverse_norm if length == 1 else inverse_norm * length)


def squared_distance_factors(a: Tensor, b: Tensor, weights: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Factors of −½ Σ_k w_k (a_ik − b_jk)² for all pairs: [..., n, d], [..., m, d] → [..., n, d + 2], [..., m, d + 2].

    [wa, −½wa², 1]·[b, 1, −½wb²]ᵀ is one matrix product, so that nothing else of size n × m is ever computed. Rounding
    may leave values of coinciding points a little above zero.
    """
    # A common shift changes no distance, and keeps |a|² + |b|² − 2ab from cancelling far from the origin.
    centre = b.detach().mean(-2, keepdim=True)
    same = a is b
    a = a - centre
    weighted_a = a if weights is None else a * weights
    norm_a = -0.5 * (a * weighted_a).sum(-1, keepdim=True)
    if same:
        b, norm_b = a, norm_a
    else:
        b = b - centre
        norm_b = -0.5 * (b if weights is None else b * weights).mul(b).sum(-1, keepdim=True)
    left = torch.cat([weighted_a, norm_a, torch.ones_like(norm_a)], -1)
    right = torch.cat([b, torch.ones_like(norm_b), norm_b], -1)
    return left, right


class Energy(Part, nn.Module, abc.ABC):
    """δ(a, b) between embeddings [n, d]; lower is more alike."""

    symmetric: ClassVar[bool] = True
    """Whether both sides of a pair are embedded alike."""

    smooth: ClassVar[bool] = True
    """Whether losses on its slope can learn from it, whatever its settings."""

    @property
    def of_directions(self) -> bool:
        """Whether it compares directions alone, so that embeddings may as well lie on the unit sphere."""
        return False

    @property
    def learns(self) -> bool:
        """Whether it has parameters of its own to train."""
        return False

    def embed(self, encoder: nn.Module, x: Tensor) -> Tensor:
        """How an original observation is embedded."""
        return encoder(x)

    def embed_augmented(self, encoder: nn.Module, x: Tensor) -> Tensor:
        """How an augmented observation is embedded; the same as an original one unless the energy is asymmetric."""
        return encoder(x)

    def encoders(self) -> list[nn.Module]:
        """Networks of its own that take observations, as the encoder does."""
        return []

    @abc.abstractmethod
    def paired(self, a: Tensor, b: Tensor) -> Tensor:
        """δ(a_i, b_i): [..., d], [..., d] → [...]."""

    @abc.abstractmethod
    def pairwise(self, a: Tensor, b: Tensor) -> Tensor:
        """δ(a_i, b_j): [n, d], [m, d] → [n, m]; leading batch dimensions are allowed."""

    def logits(self, a: Tensor, b: Tensor) -> Tensor:
        """−δ(a_i, b_j), which is what losses use: the same as `-pairwise`, where an energy can save the negation."""
        return -self.pairwise(a, b)

    def pairwise_once(self, a: Tensor, b: Tensor) -> Tensor:
        """The same as `pairwise`, to be differentiated once at most, where an energy is faster so."""
        return self.pairwise(a, b)

    def numbers_per_pair(self, dim: int) -> int:
        """How many numbers `pairwise_once` holds for each pair while it works: what strips of pairs are cut by."""
        return dim

    def factors(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, float] | None:
        """left [n, p], right [m, p] and c with logits = left · rightᵀ + c; None where they are not such a product.

        With factors, losses over all pairs need no n × m memory (`objectives.pairwise`).
        """
        return None


class InnerProductEnergy(Energy):
    """An energy that a matrix product gives for all pairs: a subclass writes `paired` and `factors`."""

    @abc.abstractmethod
    def factors(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, float]: ...

    def pairwise(self, a: Tensor, b: Tensor) -> Tensor:
        return -self.logits(a, b)

    def logits(self, a: Tensor, b: Tensor) -> Tensor:
        left, right, offset = self.factors(a, b)
        return (left @ right.mT).add_(offset) if offset else left @ right.mT


class Cosine(InnerProductEnergy):
    """δ = (1 − cos(a, b)) / τ  (Siamese-EBM Eq. 5). Range [0, 2/τ]; 0 for parallel embeddings.

    Settings:
        temperature: τ, the smaller the sharper.
    """

    def __init__(self, temperature: float = 0.1) -> None:
        super().__init__()
        self.temperature = _positive("temperature", temperature)

    @property
    def of_directions(self) -> bool:
        return True

    def paired(self, a: Tensor, b: Tensor) -> Tensor:
        return (1 - (unit(a) * unit(b)).sum(-1)) / self.temperature

    def factors(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, float]:
        return unit(a, 1 / self.temperature), unit(b), -1 / self.temperature


class Euclidean(InnerProductEnergy):
    """δ = ½‖a − b‖²  (Siamese-EBM Eq. 45; every linear theorem needs the ½). Range [0, ∞)."""

    def paired(self, a: Tensor, b: Tensor) -> Tensor:
        return 0.5 * (a - b).square().sum(-1)

    def factors(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, float]:
        return *squared_distance_factors(a, b), 0.0


class PNorm(Energy):
    """δ = Σ_k |a_k − b_k|^p, the p-norm to the p-th power (CL-ICA Eq. 9). Range [0, ∞), p ≥ 1.

    Settings:
        p: the power, at least 1.
    """

    smooth: ClassVar[bool] = False

    def __init__(self, p: float = 1.0) -> None:
        super().__init__()
        if not 1 <= p < float("inf"):
            raise InputError(f"the p-norm energy needs a finite p of at least 1, not {p:g}")
        self.p = float(p)

    def _power(self, difference: Tensor) -> Tensor:
        if self.p == 1:
            return difference.abs()
        if self.p == 2:
            return difference.square()
        if self.p > 2:
            return difference.abs().pow(self.p)
        # |0|^p has value and slope 0, but autograd's second derivative there is 0·∞ for p < 2.
        at_zero = difference == 0
        safe = torch.where(at_zero, torch.ones_like(difference), difference)
        return torch.where(at_zero, torch.zeros_like(difference), safe.abs().pow(self.p))

    def paired(self, a: Tensor, b: Tensor) -> Tensor:
        return self._power(a - b).sum(-1)

    def pairwise(self, a: Tensor, b: Tensor) -> Tensor:
        return self._power(a.unsqueeze(-2) - b.unsqueeze(-3)).sum(-1)

    def pairwise_once(self, a: Tensor, b: Tensor) -> Tensor:
        # It makes no differences of all pairs: nine times as fast, without second derivatives. Other p gain nothing.
        return torch.cdist(a, b, p=1.0) if self.p == 1 else self.pairwise(a, b)

    def numbers_per_pair(self, dim: int) -> int:
        return 1 if self.p == 1 else dim

    def factors(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, float] | None:
        if self.p != 2:
            return None
        left, right = squared_distance_factors(a, b)
        return 2 * left, right, 0.0


class Dot(InnerProductEnergy):
    """δ = −⟨a, b⟩ / τ. Range (−∞, ∞).

    Settings:
        temperature: τ, the smaller the sharper.
    """

    def __init__(self, temperature: float = 1.0) -> None:
        super().__init__()
        self.temperature = _positive("temperature", temperature)

    def paired(self, a: Tensor, b: Tensor) -> Tensor:
        return -(a * b).sum(-1) / self.temperature

    def factors(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, float]:
        return a / self.temperature, b, 0.0


class Anisotropic(InnerProductEnergy):
    """δ = ½ (a − b)ᵀ Λ (a − b) with Λ diagonal and positive (AnInfoNCE Eq. 3, in the ½ convention). Range [0, ∞).

    Λ = softplus(θ), so it stays positive however θ is trained. On the unit sphere Λ = λI is the cosine energy at
    τ = 1/λ, and an isotropic Λ learns that temperature alone.

    Settings:
        initial: Λ before training, one number or one per dimension.
        trainable: whether Λ is learnt.
        normalise: whether embeddings are put on the unit sphere first, as in AnInfoNCE.
        isotropic: whether all dimensions share one concentration.
    """

    def __init__(
        self,
        initial: float | Sequence[float] | Tensor = 1.0,
        *,
        trainable: bool = True,
        normalise: bool = False,
        isotropic: bool = False,
    ) -> None:
        super().__init__()
        start = torch.as_tensor(initial, dtype=torch.get_default_dtype())
        if isotropic and start.shape != ():
            raise InputError("an isotropic energy has one concentration, not one per dimension")
        if start.ndim > 1 or not bool(((start > 0) & start.isfinite()).all()):
            raise InputError("concentrations must be positive and finite, one number or one per dimension")
        self._initial, self.trainable, self.normalise, self.isotropic = start, trainable, normalise, isotropic

    def build(self, context: Context) -> None:
        dim, start = context.need("dim"), self._initial
        if start.shape not in ((), (dim,)):
            raise InputError(f"{dim} dimensions need one concentration or {dim}, not {len(start)}")
        start = start.expand(1 if self.isotropic else dim).clone()
        raw = start + torch.log(-torch.expm1(-start))  # the inverse of softplus
        self.raw_concentration = nn.Parameter(raw, requires_grad=self.trainable)
        self.dim = int(dim)

    @property
    def of_directions(self) -> bool:
        return self.normalise

    @property
    def learns(self) -> bool:
        return self.trainable

    @property
    def concentration(self) -> Tensor:
        """The diagonal of Λ, always positive: [d]."""
        positive = F.softplus(self.raw_concentration)
        return positive.clamp_min(torch.finfo(positive.dtype).tiny).expand(*positive.shape[:-1], self.dim)

    def paired(self, a: Tensor, b: Tensor) -> Tensor:
        if self.normalise:
            a, b = unit(a), unit(b)
        return 0.5 * ((a - b).square() * self.concentration).sum(-1)

    def factors(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, float]:
        if self.normalise:
            same = a is b
            a = unit(a)
            b = a if same else unit(b)
        return *squared_distance_factors(a, b, self.concentration), 0.0


class Asymmetric(Energy):
    """δ(x, x̃) = base(ψ(x), χ(x̃)): the augmented side has a map of its own (Siamese-EBM Eq. 41).

    Only how the augmented side is embedded differs; on embeddings it is the base energy. Both maps start so that the
    two sides are embedded alike.

    Settings:
        base: the energy between embeddings; Euclidean unless given.
        by: "predictor", a map after the shared encoder (χ = network ∘ ψ), or "encoder", a second encoder (χ = network).
        network: that predictor or second encoder, where it is not to be made here.
    """

    symmetric: ClassVar[bool] = False

    def __init__(
        self,
        base: Energy | None = None,
        *,
        by: Literal["predictor", "encoder"] = "predictor",
        network: nn.Module | None = None,
    ) -> None:
        super().__init__()
        if by not in ("predictor", "encoder"):
            raise InputError(f"by is 'predictor' or 'encoder', not {by!r}")
        self.base = Euclidean() if base is None else base
        self.by, self.network = by, network

    def build(self, context: Context) -> None:
        if self.network is None:
            self.network = Predictor(context.need("dim")) if self.by == "predictor" else context.twin()

    @property
    def incomplete(self) -> bool:
        return self.network is None

    def embed(self, encoder: nn.Module, x: Tensor) -> Tensor:
        return self.base.embed(encoder, x)

    def embed_augmented(self, encoder: nn.Module, x: Tensor) -> Tensor:
        assert self.network is not None
        return self.network(x if self.by == "encoder" else encoder(x))

    def encoders(self) -> list[nn.Module]:
        return [*self.base.encoders(), *([self.network] if self.by == "encoder" and self.network is not None else [])]

    def paired(self, a: Tensor, b: Tensor) -> Tensor:
        return self.base.paired(a, b)

    def pairwise(self, a: Tensor, b: Tensor) -> Tensor:
        return self.base.pairwise(a, b)

    def logits(self, a: Tensor, b: Tensor) -> Tensor:
        return self.base.logits(a, b)

    def factors(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, float] | None:
        return self.base.factors(a, b)


def _positive(name: str, value: float) -> float:
    if not 0 < value < float("inf"):
        raise InputError(f"the {name} must be positive and finite, not {value:g}")
    return float(value)


class Student(Energy):
    """δ = ((ν + 1)/2) log(1 + ‖a − b‖²/ν): e^{−δ} is the kernel of Student's t with ν degrees of freedom. Range [0, ∞).

    Its tails are heavy: what is unlike may lie anywhere far away, which suits few dimensions. ν = 1 is the Cauchy
    kernel of t-SNE and t-SimCNE (Böhm et al., 2023); as ν → ∞ it is the Euclidean energy.

    Settings:
        degrees: ν, the smaller the heavier the tails.
    """

    def __init__(self, degrees: float = 1.0) -> None:
        super().__init__()
        self.degrees = _positive("degrees", degrees)

    def paired(self, a: Tensor, b: Tensor) -> Tensor:
        return self._of((a - b).square().sum(-1))

    def pairwise(self, a: Tensor, b: Tensor) -> Tensor:
        left, right = squared_distance_factors(a, b)
        return self._of((-2 * (left @ right.mT)).clamp_min(0.0))

    def _of(self, squares: Tensor) -> Tensor:
        return 0.5 * (self.degrees + 1) * torch.log1p(squares / self.degrees)
