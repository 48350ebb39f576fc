"""One exam for all models: which row did this augmentation come from? Scored so that every energy can take it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from probssl.energies import Energy
from probssl.pairings import Pairing

CANDIDATES = 1000
"""Most rows among which the source of an augmentation is looked for."""

QUERIES = 128
"""Augmentations of each strength."""


@dataclass(frozen=True, eq=False)
class Questions:
    """Those of one augmentation strength, with what the exact posterior would answer."""

    x_aug: Tensor  # [q, d]
    source: Tensor  # [q], rows of the exam's candidates
    exact_nll: Tensor  # [q], −log p(source | x̃), float64


@dataclass(frozen=True, eq=False)
class Exam:
    """Augmentations of known rows, the same for every model, of every strength that is compared.

    A model says q_j ∝ exp(−β δ(x_j, x̃)) over n candidate rows. The temperature 1/β is fitted to one half of the
    questions and marked on the other, and the other way round: energies that are not log-densities (spectral, triplet,
    SimSiam) and energies trained on another strength can then be asked too. The mark is the share of the
    information that an augmentation holds about its source that the model recovers,

        recovered = (log n + mean log q_source) / (log n + mean log p_source),

    with p the exact posterior. At most 1 but for chance; 0 for a constant model.
    """

    x: Tensor  # [n, d]
    questions: dict[str, Questions]

    @classmethod
    def set(cls, x: Tensor, pairings: dict[str, Pairing], *, seed: int = 0) -> Exam:
        """Draw candidates and questions from rows x, and compute the exact posterior once for all models."""
        chance = torch.Generator().manual_seed(seed)
        x = x[torch.randperm(len(x), generator=chance)[:CANDIDATES]]
        questions = {}
        for name, pairing in pairings.items():
            source = torch.randint(len(x), (QUERIES,), generator=chance)
            x_aug = pairing.sample(x[source], chance)
            truth = pairing.pairwise_log_prob(x_aug.double(), x.double()).log_softmax(1)
            questions[name] = Questions(x_aug, source, -truth.gather(1, source[:, None])[:, 0])
        return cls(x, questions)

    @torch.no_grad()
    def marks(self, encoder: nn.Module, energy: Energy) -> dict[str, float]:
        """The share `recovered`, on average over strengths, and that of each."""
        encoder.eval()
        originals = energy.embed(encoder, self.x)
        found = {}
        for name, asked in self.questions.items():
            logits = energy.logits(originals, energy.embed_augmented(encoder, asked.x_aug)).mT.double()  # [q, n]
            found[f"recovered_{name}"] = recovered(logits, asked.source, asked.exact_nll)
        shares = [share for share in found.values() if math.isfinite(share)]
        return {"recovered": sum(shares) / len(shares) if shares else math.nan, **found}

    @property
    def protocol(self) -> str:
        """How the exam is set, in words."""
        each = len(next(iter(self.questions.values())).source)
        return f"exam: {each} augmentations of each strength, looked for among {len(self.x):,} rows"


def recovered(logits: Tensor, source: Tensor, exact_nll: Tensor) -> float:
    """The share of the available information that logits [q, n] recover at their best temperature; see `Exam`."""
    queries, n = logits.shape
    available = math.log(n) - exact_nll.mean().item()
    if queries < 2 or available < 1e-6 or not bool(logits.isfinite().all()):
        return math.nan
    logits = logits - logits.max(1, keepdim=True).values
    halves = torch.arange(queries) % 2 == 0
    gained = 0.0
    for fitted, marked in ((halves, ~halves), (~halves, halves)):
        scale = _best_scale(logits[fitted], source[fitted])
        log_q = (scale * logits[marked]).log_softmax(1).gather(1, source[marked][:, None])
        gained += float(log_q.sum()) + math.log(n) * len(log_q)
    return gained / queries / available


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
