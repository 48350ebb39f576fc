"""What models of one seed share: rows to train, to choose and to test by, and how to measure."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor, nn

from probssl.comparing.exam import Exam
from probssl.comparing.grid import Candidate, Parts
from probssl.comparing.measuring import PROBE, R2, ROWS, Measurer, Score, scores_of
from probssl.comparing.testing import HeldOut
from probssl.data import Dataset, load
from probssl.encoders import as_floats
from probssl.model import Model
from probssl.model.model import WHITENED_ROWS
from probssl.model.observations import Observations
from probssl.pairings import Pairing
from probssl.parts.recipe import Recipe
from probssl.parts.resolve import resolve
from probssl.runs.evaluation import UNTRAINED, Ground, baselines
from probssl.runs.reading import TEST_SHARE

MOST_PROBED = 10_000
"""Most rows on either side of the final test, and on which PCA is fitted."""


@dataclass(frozen=True, eq=False)
class Bench:
    """What a training takes and is measured by."""

    x: Tensor  # [n, ...], the development rows as encoders take them; of a world, rows that it is only measured on
    sample: Tensor  # [m, ...], some of them, which parts begin from
    screening: Measurer  # of the early rounds
    final: Measurer  # of the last round, on more rows where there are more


@dataclass(frozen=True, eq=False)
class Setup:
    """Data with its test rows set aside, standardised by the others: the development rows."""

    data: Dataset
    parts: Parts
    entrants: Sequence[Candidate]
    seed: int

    def at(self, seed: int) -> Setup:
        """That of another seed, which is another world where the data is one, and the same otherwise."""
        if seed == self.seed or self.parts.facts.kind != "world":
            return self
        return dataclasses.replace(self, data=load(self.data.source, seed=seed, test=TEST_SHARE), seed=seed)

    @cached_property
    def model(self) -> Model:
        """A model with what all have in common: scaling and, of a world, how it is observed."""
        return Model.untrained(Recipe(seed=self.seed), self.data)

    @cached_property
    def development(self) -> Observations:
        """The rows that encoders train on and are chosen by."""
        return self.model.observe(self.data, "train")

    @cached_property
    def bench(self) -> Bench:
        """What trainings take; a label that no probe can be fitted to is refused."""
        rows = self.development
        screening = Measurer.on(rows, self.grounds, ROWS["screening"], self.seed)
        more = self.criterion in (PROBE, R2) and len(rows) > len(screening.rows)
        final = Measurer.on(rows, self.grounds, ROWS["final"], self.seed) if more else screening
        return Bench(rows.x, self.sample, screening, final)

    @cached_property
    def sample(self) -> Tensor:
        """Some of the development rows, which parts begin from."""
        return as_floats(self.development.some(WHITENED_ROWS, self.seed).x)

    @cached_property
    def pairings(self) -> dict[str, Pairing]:
        """Those that are compared, ready for the data."""
        facts, chosen = self.parts.facts, self.parts.pairings.items()
        made = {name: resolve(Recipe(pairing=pairing), facts).bind(self.sample).pairing for name, pairing in chosen}
        return {name: pairing for name, pairing in made.items() if pairing is not None}

    def grounds(self, observed: Observations) -> dict[str, Ground]:
        """How rows are augmented, in every way that is compared."""
        if self.model.world is None:
            x = as_floats(observed.x)
            return {name: Ground(x, pairing, nn.Identity()) for name, pairing in self.pairings.items()}
        ground = Ground.of(self.model, observed)
        assert ground is not None
        return {"": ground}

    def baselines(self, dims: Sequence[int]) -> dict[str, nn.Module]:
        """What no training gives, as encoders, so that they are measured exactly as the trained ones are."""
        fitted = self.development.some(MOST_PROBED, self.seed).x
        start = Recipe(encoder=self.parts.encoder, seed=self.seed)
        untrained = {}
        for dim in dims:
            sized = start.with_settings({"encoder.dim": dim}) if self.parts.sized else start
            made = resolve(sized, self.parts.facts).bind(self.sample)
            untrained[f"{UNTRAINED} to {dim}"] = made.encoder
        return {**baselines(fitted, dims), **untrained}

    @property
    def scores(self) -> tuple[Score, ...]:
        """What is measured; the first is what configurations are chosen by."""
        return scores_of(self.development)

    @property
    def criterion(self) -> Score:
        """What configurations are chosen by."""
        return self.scores[0]

    @cached_property
    def held_out(self) -> HeldOut | None:
        """The rows of the last word, if there are any."""
        if not len(self.data.rows("test")):
            return None
        judged = self.model.observe(self.data, "test").some(MOST_PROBED, self.seed)
        exam = Exam.set(self.grounds(judged), seed=self.seed)
        return HeldOut(self.development.some(MOST_PROBED, self.seed), judged, exam)

    @property
    def protocol(self) -> str:
        """Which rows were used for what."""
        rows, tested, kind = len(self.development), len(self.data.rows("test")), self.parts.facts.kind
        train = "choose among encoders, which train on fresh ones" if kind == "world" else "train encoders and choose"
        kept = f"; {tested:,} are kept for the test" if tested else ""
        more = self.bench.final is not self.bench.screening
        finalists = f"; finalists are measured on {len(self.bench.final.rows):,} rows" if more else ""
        return (
            f"{rows:,} of {len(self.data):,} rows {train}{kept}. Measured on {self.bench.screening.protocol}{finalists}"
        )
