"""Objectives that replace the normaliser by something simpler: Triplet, Spectral, TriCL, SimSiam."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from probssl.encoders import MLP
from probssl.energies import Cosine, Dot, Energy, Euclidean, unit
from probssl.errors import InputError
from probssl.objectives.base import Pair, PairObjective
from probssl.objectives.pairwise import PairLogits
from probssl.pairings.views import Views
from probssl.parts.part import Context


class Triplet(PairObjective):
    """L = mean_{i≠j} max(0, δ(x_i, x̃_i) − δ(x_i, x̃_j) + margin)   (Schroff et al., 2015; Siamese-EBM Eq. 17).

    The single-negative reading of InfoNCE, with the margin in place of I(x; x̃) and every other augmentation of the
    batch as a negative in turn. Range [0, ∞), optimum 0. A constant encoder gives the margin, and with the
    Euclidean energy has no gradient to leave it by.

    Settings:
        margin: by how much nearer a positive must be than a negative, in units of the energy.
    """

    family: ClassVar[str] = "no log-density"

    admits: ClassVar[dict[str, str]] = {
        "representation": "a constant encoder has no gradient to leave it by, though it is not the minimum",
        "dimension": "it asks for a margin only, and one direction can provide it",
    }

    def __init__(self, energy: Energy | None = None, *, margin: float = 1.0, pair: Pair = "original") -> None:
        if not 0 < margin < math.inf:
            raise InputError(f"the margin must be positive and finite, not {margin:g}")
        super().__init__(Euclidean() if energy is None else energy, pair=pair)
        self.margin = margin

    def terms(self, encoder: nn.Module, views: Views) -> dict[str, Tensor]:
        # Rows x̃ and columns x, so that δ(x_i, x̃_i) + margin is added to each column.
        pairs = PairLogits.of(self.energy, *self.embed_pair(encoder, views)).transposed()
        return {"triplet": pairs.plus_columns(self.margin - pairs.diagonal()).off_diagonal_mean("hinge")}

    def optimum(self, batch_size: int, dim: int) -> float | None:
        return 0.0


class Spectral(PairObjective):
    """L = −2 E[z⁺ᵀz̃⁺] + E_{i≠j}[(z_iᵀz̃_j)²] on the sphere ‖z‖² = μ   (HaoChen et al., 2021; Siamese-EBM Eq. 42).

    Fits p(x, x̃)/(p(x)p(x̃)) by zᵀz̃ in least squares (up to a constant), so it needs no normaliser. μ is
    `squared_radius`, 10 as in Siamese-EBM. A constant encoder gives μ² − 2μ. In expectation the loss is at least −m,
    since the density ratio has no singular value above 1; when both sides have one distribution (`pair="augmented"`)
    `uniformity` is at least μ²/m and so the loss at least μ²/m − 2μ. Collapse: none of the representation.

    Settings:
        squared_radius: μ, of the sphere that embeddings are put on.
    """

    family: ClassVar[str] = "no log-density"
    compares_views: ClassVar[bool] = True

    admits: ClassVar[dict[str, str]] = {
        "dimension": "it keeps only as many directions as the augmentation graph has clusters"
    }

    def __init__(self, *, squared_radius: float = 10.0, pair: Pair = "augmented") -> None:
        if not 0 < squared_radius < math.inf:
            raise InputError(f"the squared radius must be positive and finite, not {squared_radius:g}")
        super().__init__(Cosine(temperature=1 / squared_radius), pair=pair)
        self.squared_radius = squared_radius

    def terms(self, encoder: nn.Module, views: Views) -> dict[str, Tensor]:
        first, second = self.embed_pair(encoder, views)
        products = PairLogits(unit(first, self.squared_radius), unit(second))  # [n, n]
        return {"alignment": -2 * products.diagonal().mean(), "uniformity": products.off_diagonal_mean("square")}

    def optimum(self, batch_size: int, dim: int) -> float | None:
        return -float(dim) if self.pair == "original" else self.squared_radius**2 / dim - 2 * self.squared_radius


class SimSiam(PairObjective):
    """L = −½ [cos(h(z₁), sg(z₂)) + cos(h(z₂), sg(z₁))]   (Chen & He, 2021), sg = stop-gradient, h = `predictor`.

    An asymmetric cosine energy with no normaliser at all. Range [−1, 1]. Collapse: a constant encoder attains the
    minimum −1; only the stop-gradient and the predictor's own dynamics keep training away from it.

    Settings:
        hidden: units of the predictor; a quarter of the dimensions, at least 2, unless given.
        stop_gradient: whether no gradient passes through the side that is predicted.
    """

    family: ClassVar[str] = "no log-density"
    compares_views: ClassVar[bool] = True

    admits: ClassVar[dict[str, str]] = {
        "representation": "a constant encoder attains its minimum of −1; only the stop-gradient keeps training from it",
        "dimension": "nothing in it asks for more than one direction",
    }

    def __init__(self, *, hidden: int | None = None, stop_gradient: bool = True, pair: Pair = "augmented") -> None:
        super().__init__(Cosine(temperature=1.0), pair=pair)
        self.hidden, self.stop_gradient = hidden, stop_gradient

    def build(self, context: Context) -> None:
        dim = context.need("dim")
        hidden = max(dim // 4, 2) if self.hidden is None else self.hidden
        self.predictor: nn.Module = MLP.of([dim, hidden, dim], batch_norm=True, track_running_stats=False)

    def terms(self, encoder: nn.Module, views: Views) -> dict[str, Tensor]:
        first, second = self.embed_pair(encoder, views)
        targets = (first.detach(), second.detach()) if self.stop_gradient else (first, second)
        forward = (unit(self.predictor(first)) * unit(targets[1])).sum(-1)
        backward = (unit(self.predictor(second)) * unit(targets[0])).sum(-1)
        return {"similarity": -0.5 * (forward + backward).mean()}

    def optimum(self, batch_size: int, dim: int) -> float | None:
        return -1.0


class TriCL(PairObjective):
    """Contrast by zᵀSz̃ with a learnt diagonal S ≥ 0 of importances, and a decorrelation term  (Zhang et al., 2023).

    `contrast="spectral"`: L = −2 E[z⁺ᵀSz̃⁺] + E_{i≠j}[(z_iᵀSz̃_j)²] + ‖½ E[zzᵀ + z̃z̃ᵀ] − I‖²_F, the form that has a
    theorem: encoders that minimise it agree up to order and sign of their features, which S ranks.
    `contrast="infonce"`: InfoNCE with logits zᵀSz̃ / τ on the unit sphere in place of the first two terms, and the
    decorrelation of √m z. S = softplus(θ). AnInfoNCE H.4 compares with it: TriCL weighs latents, AnInfoNCE differences.

    Settings:
        contrast: "spectral" or "infonce".
        temperature: τ of "infonce".
    """

    family: ClassVar[str] = "no log-density"
    compares_views: ClassVar[bool] = True

    admits: ClassVar[dict[str, str]] = {
        "dimension": "importances may vanish, though decorrelation keeps the features themselves apart"
    }

    def __init__(
        self,
        *,
        contrast: Literal["spectral", "infonce"] = "spectral",
        temperature: float = 1.0,
        pair: Pair = "original",
    ) -> None:
        if contrast not in ("spectral", "infonce"):
            raise InputError(f"TriCL contrasts by 'spectral' or 'infonce', not {contrast!r}")
        super().__init__(Dot(temperature), pair=pair)
        self.contrast = contrast

    def build(self, context: Context) -> None:
        start = torch.full((context.need("dim"),), math.log(math.e - 1))  # importances of 1
        self.raw_importance = nn.Parameter(start)

    @property
    def importance(self) -> Tensor:
        """The diagonal of S: [dim]."""
        return F.softplus(self.raw_importance)

    def terms(self, encoder: nn.Module, views: Views) -> dict[str, Tensor]:
        first, second = self.embed_pair(encoder, views)
        if self.contrast == "spectral":
            products = PairLogits(first * self.importance, second)
            contrast = {
                "alignment": -2 * products.diagonal().mean(),
                "uniformity": products.off_diagonal_mean("square"),
            }
        else:
            first, second = unit(first), unit(second)
            pairs = PairLogits.of(self.energy, first * self.importance, second)
            alignment = -pairs.diagonal().mean()
            both = 0.5 * (pairs.mean_cross_entropy() + pairs.transposed().mean_cross_entropy())
            contrast = {"alignment": alignment, "log_normaliser": both - alignment}
            first, second = (side * math.sqrt(side.shape[-1]) for side in (first, second))
        second_moments = (first.mT @ first + second.mT @ second) / (2 * len(first))
        departure = second_moments - torch.eye(first.shape[-1], dtype=first.dtype, device=first.device)
        return {**contrast, "decorrelation": departure.square().sum()}
