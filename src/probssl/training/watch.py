"""Collapse watch: looks at a fixed sample of representations now and then, and names what has gone wrong."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from probssl.encoders import WithHead, encode
from probssl.energies import Energy
from probssl.metrics.rank import rankme, spectra

SAMPLE_ROWS = 512
"""Representations looked at each time."""

MINIMUM_CONTRAST = 1e-2
"""Standard deviation of δ over pairs of points, in nats, below which the model tells no two of them apart."""

MINIMUM_SPREAD = 1e-3
"""Root of total variance over mean squared norm below which the representation is a constant."""

MINIMUM_RANK_SHARE = 0.5
"""Share of the available directions that must carry variance above 1e-5 of the largest."""

PATIENCE = 2
"""Looks in a row that must agree before a collapse is announced or withdrawn."""

MEANING = {
    "representation": "representation collapse: every input gets the same representation",
    "dimension": "dimensional collapse: the representation fills few of its dimensions",
}


@dataclass(frozen=True)
class Look:
    """What one look at the representation saw."""

    rankme: float
    effective_rank: float
    numerical_rank: int
    spread: float
    contrast: float
    collapsed: tuple[str, ...]

    @property
    def finite(self) -> bool:
        """Whether the representation was made of finite numbers; if not, nothing else was measured."""
        return math.isfinite(self.spread)

    def numbers(self) -> dict[str, float]:
        """The measurements, for the log."""
        return {
            "rankme": self.rankme,
            "effective_rank": self.effective_rank,
            "numerical_rank": self.numerical_rank,
            "spread": self.spread,
            "contrast": self.contrast,
        }


def look(representations: Tensor, energy: Energy, embeddings: Tensor | None = None) -> Look:
    """Measure a sample of representations [n, m] and say which collapses it shows.

    - `representation`: energies do not vary (standard deviation under 0.01 nats over every point with itself and with
      an unrelated one), so that q(x | x̃) = p(x) whatever x̃ is; or the code itself is constant (spread under 0.001).
    - `dimension`: at most half of the min(n − 1, m) available directions carry any variance (1e-5 of the largest).

    `embeddings` are what the energy compares, where a projection head makes them differ from the representations.
    """
    if not bool(representations.isfinite().all()):
        return Look(math.nan, math.nan, 0, math.nan, math.nan, ())
    embeddings = representations if embeddings is None else embeddings
    z = representations.double()
    array = z.cpu().numpy()
    spectrum = spectra(array)
    power = z.square().sum(1).mean().item()
    spread = (float(spectrum.eigenvalues.sum()) / power) ** 0.5 if power > 0 else 0.0
    related, unrelated = (energy.paired(embeddings, embeddings.roll(shift, 0)) for shift in (0, 1))
    contrast = torch.cat([related, unrelated]).double().std().item()
    available = min(array.shape[0] - 1, array.shape[1])
    collapsed = []
    if contrast < MINIMUM_CONTRAST or spread < MINIMUM_SPREAD:
        collapsed.append("representation")
    elif available > 1 and spectrum.numerical_rank <= MINIMUM_RANK_SHARE * available:
        collapsed.append("dimension")
    return Look(
        rankme=rankme(array),
        effective_rank=spectrum.effective_rank,
        numerical_rank=spectrum.numerical_rank,
        spread=spread,
        contrast=contrast,
        collapsed=tuple(collapsed),
    )


class CollapseWatch:
    """Keeps score of looks: a collapse counts once it is seen in several looks in a row."""

    def __init__(self, sample: Tensor, energy: Energy) -> None:
        self.sample = sample
        self.energy = energy
        self.standing: dict[str, int] = {}  # kind -> step at which it set in
        self._streaks: dict[str, int] = {}

    @torch.no_grad()
    def inspect(self, encoder: nn.Module, step: int) -> tuple[Look, list[tuple[str, str]]]:
        """One look, and what is newly announced by it: pairs of `collapse` or `recovery` and the kind."""
        representations = encode(encoder, self.sample)
        embeddings = encode(encoder.head, representations) if isinstance(encoder, WithHead) else None
        return self.judge(representations, embeddings, step)

    @torch.no_grad()
    def judge(
        self, representations: Tensor, embeddings: Tensor | None, step: int
    ) -> tuple[Look, list[tuple[str, str]]]:
        """`inspect` where the representations of the sample are at hand."""
        seen = look(representations, self.energy, embeddings)
        if not seen.finite:
            return seen, []
        news = []
        for kind in MEANING:
            streak = self._streaks.get(kind, 0)
            if (kind in seen.collapsed) == (kind in self.standing):
                self._streaks[kind] = 0
            elif streak + 1 < PATIENCE:
                self._streaks[kind] = streak + 1
            else:
                self._streaks[kind] = 0
                if kind in self.standing:
                    del self.standing[kind]
                    news.append(("recovery", kind))
                else:
                    self.standing[kind] = step
                    news.append(("collapse", kind))
        return seen, news

    def state(self) -> dict[str, dict[str, int]]:
        """What a checkpoint must carry."""
        return {"standing": dict(self.standing), "streaks": dict(self._streaks)}

    def restore(self, state: dict[str, dict[str, int]]) -> None:
        """Go on from a state."""
        self.standing = dict(state["standing"])
        self._streaks = dict(state["streaks"])
