"""One exam for all models: which row did this augmentation come from? Scored so that every energy can take it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from probssl.energies import Energy
from probssl.runs.evaluation import Ground

CANDIDATES = 1000
"""Most rows among which the source of an augmentation is looked for."""

QUERIES = 128
"""Augmentations by each pairing."""


@dataclass(frozen=True, eq=False)
class Questions:
    """Those of one pairing, with what the exact posterior would answer."""

    x_aug: Tensor  # [q, ...]
    source: Tensor  # [q], rows of the exam's candidates
    exact_nll: Tensor  # [q], −log p(source | x̃), float64; 0 where nobody knows p, as of crops of images


@dataclass(frozen=True, eq=False)
class Exam:
    """Augmentations of known rows, the same for every model, by every pairing that is compared.

    A model says q_j ∝ exp(−β δ(x_j, x̃)) over n candidate rows. The temperature 1/β is fitted to one half of the
    questions and marked on the other, and the other way round: energies that are not log-densities (spectral, triplet,
    SimSiam) and energies trained with another pairing can then be asked too. The mark is the share of the
    information that an augmentation holds about its source that the model recovers,

        recovered = (log n + mean log q_source) / (log n + mean log p_source),

    with p the exact posterior; where no density is known the source counts as certain, p = 1. At most 1 but for chance;
    0 for a constant model.
    """

    x: Tensor  # [n, ...]
    questions: dict[str, Questions]

    @classmethod
    def set(cls, grounds: dict[str, Ground], *, seed: int = 0) -> Exam:
        """Draw candidates and questions from the rows, and compute the exact posterior once for all models."""
        chance = torch.Generator().manual_seed(seed)
        one = next(iter(grounds.values()))
        rows = one.rows[torch.randperm(len(one.rows), generator=chance)[:CANDIDATES]]
        questions = {}
        for name, ground in grounds.items():
            source = torch.randint(len(rows), (QUERIES,), generator=chance)
            x_aug = ground.pairing.sample(rows[source], chance)
            exact = torch.zeros(QUERIES, dtype=torch.float64)
            if ground.pairing.knows_density:
                truth = ground.pairing.pairwise_log_prob(x_aug.double(), rows.double()).log_softmax(1)
                exact = -truth.gather(1, source[:, None])[:, 0]
            questions[name] = Questions(ground.observe(x_aug), source, exact)
        return cls(one.observe(rows), questions)

    @torch.no_grad()
    def shares(self, encoder: nn.Module, energy: Energy) -> dict[str, Tensor]:
        """The share of every question [q], by pairing; see `recovered`."""
        encoder.eval()
        originals = energy.embed(encoder, self.x)
        found = {}
        for name, asked in self.questions.items():
            logits = energy.logits(originals, energy.embed_augmented(encoder, asked.x_aug)).mT.double()  # [q, n]
            found[name] = recovered(logits, asked.source, asked.exact_nll)
        return found

    def marks(self, encoder: nn.Module, energy: Energy) -> dict[str, float]:
        """The share `recovered`, on average over pairings, and that of each where there are several."""
        found = {name: float(each.mean()) for name, each in self.shares(encoder, energy).items()}
        shares = [share for share in found.values() if math.isfinite(share)]
        several = {f"recovered_{name}": share for name, share in found.items()} if len(found) > 1 else {}
        return {"recovered": sum(shares) / len(shares) if shares else math.nan, **several}

    @property
    def protocol(self) -> str:
        """How the exam is set, in words."""
        each = "" if len(self.questions) == 1 else " of each kind"
        return f"exam: {QUERIES} augmentations{each}, looked for among {len(self.x):,} rows"


def recovered(logits: Tensor, source: Tensor, exact_nll: Tensor) -> Tensor:
    """What each question [q] adds to the share that logits [q, n] recover at their best temperature, their mean."""
    queries, n = logits.shape
    available = math.log(n) - exact_nll.mean().item()
    found = torch.full((queries,), math.nan, dtype=torch.float64)
    if queries < 2 or available < 1e-6 or not bool(logits.isfinite().all()):
        return found
    logits = logits - logits.max(1, keepdim=True).values
    halves = torch.arange(queries) % 2 == 0
    for fitted, marked in ((halves, ~halves), (~halves, halves)):
        scale = _best_scale(logits[fitted], source[fitted])
        log_q = (scale * logits[marked]).log_softmax(1).gather(1, source[marked][:, None])[:, 0]
        found[marked] = (log_q.double() + math.log(n)) / available
    return found


def _best_scale(logits: Tensor, source: Tensor, steps: int = 12) -> float:
    """The β that maximises the mean of log softmax(β logits)[source], which is concave in β: Newton's method."""
    spread = float(logits.std())
    if not spread > 0:
        return 0.0
    own = logits.gather(1, source[:, None])[:, 0]
    scale = 1.0 / spread
    for _ in range(steps):
        q = (scale * logits).softmax(1)
        mean = (q * logits).sum(1)
        slope = float((own - mean).mean())
        curvature = float((q * logits.square()).sum(1).sub(mean.square()).mean())
        step = slope / curvature if curvature > 0 else math.copysign(math.inf, slope)
        before, scale = scale, min(max(scale + step, scale / 4), scale * 4)  # far from the optimum Newton overshoots
        if abs(scale - before) < 1e-3 * before:
            break
    return scale
