"""The grid of the tabular study (Siamese-EBM §4.2 and F): which models on which tables in which settings, by budget."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from probssl.data import catalogue
from probssl.parts.resolve import fixed_energy
from probssl.studies.base import Budget, Config
from probssl.studies.tabular_trials import UNTRAINED

LOSSES = {"infonce": "KL", "snl": "SNL", "nce": "NCE", "fisher": "Fisher", "simclr": "SimCLR", "spectral": "Spectral"}
"""Objective -> its name in the paper. All but Fisher are called likelihood-based there."""

ENERGIES = ("euclidean", "cosine")


@dataclass(frozen=True)
class Model:
    """A loss with an energy: one line of a figure."""

    loss: str
    energy: str

    @property
    def title(self) -> str:
        """As in `SNL, cosine`."""
        return f"{LOSSES[self.loss]}, {'Euclidean' if self.energy == 'euclidean' else self.energy}"


MODELS = tuple(
    Model(loss, energy)
    for energy in ENERGIES
    for loss in LOSSES
    if fixed_energy(loss) in (None, energy)  # that of the spectral loss is part of it
)
"""Eleven lines of a figure."""

LEARNING_RATES = (0.01, 1.0)

RATIOS = tuple(Fraction(*pair) for pair in ((2, 1), (3, 2), (1, 1), (1, 2), (1, 3), (1, 4), (1, 5)))
"""m/d. The paper says "from 2d to d/5" and not which; these are ours."""

RATES = tuple(Fraction(tenths, 10) for tenths in range(1, 11))
"""Preservation rates ρ. The paper says 0.1 and 1, and shows what lies between."""

SHAPES = {entry.name: (entry.rows, entry.dimensions) for entry in catalogue() if entry.rows and entry.dimensions}
"""Table -> how many rows and features it has."""
PMLB = tuple(name for name in SHAPES if name.startswith("pmlb:"))
"""The eighteen tables of the paper's Table 1."""


@dataclass(frozen=True)
class Setup:
    """One of the two sweeps: what varies along the horizontal axis, and what is fixed."""

    name: str
    axis: str
    noise: float
    positions: tuple[Fraction, ...]
    figures: Mapping[str, str]
    """Metric (or `change`: what the higher learning rate adds) -> number of the figure in the paper."""

    @property
    def is_ratio(self) -> bool:
        """Whether the output dimension varies, as a share of the input dimension."""
        return self.name == "dimension"

    def label(self, position: Fraction) -> str:
        """The position as the axis shows it."""
        return str(position) if self.is_ratio else f"{float(position):g}"

    def place(self, position: Fraction, features: int) -> tuple[int, float]:
        """Output dimension and preservation rate at a position, for a table of that many features."""
        if self.is_ratio:
            return output_dimension(position, features), 0.8
        return output_dimension(Fraction(1, 2), features), float(position)


def output_dimension(ratio: Fraction, features: int) -> int:
    """m = ⌊ratio · d⌋, at least 2: on fewer dimensions the unit sphere is two points."""
    return max(2, int(ratio * features))


DIMENSION = Setup(
    "dimension",
    "output dimension over input dimension, m/d",
    0.1,
    RATIOS,
    {"linear_probe": "4", "rankme": "5", "alignment": "8", "uniformity": "10", "change": "12"},
)
PRESERVATION = Setup(
    "preservation",
    "preservation rate ρ",
    0.25,
    RATES,
    {"linear_probe": "6", "rankme": "7", "alignment": "9", "uniformity": "11", "change": "13"},
)


@dataclass(frozen=True)
class Scale:
    """How much a budget does."""

    steps: int
    seeds: int
    tables: tuple[str, ...] = PMLB
    positions: int | None = None
    """How many positions of the axis, evenly from the first to the last; None: all."""


SCALE: dict[Budget, Scale] = {
    "smoke": Scale(30, 1, ("sklearn:wine", "sklearn:iris"), 3),
    "laptop": Scale(3_000, 1),
    "full": Scale(20_000, 3),
}
"""`full` is the paper's protocol; it does not say over how many seeds. `laptop` has fewer steps and one seed, and every
method, table and setting. `smoke` runs on two tables that come with scikit-learn, so that it needs no files."""

PUBLISHED_STEPS = 20_000


def positions(setup: Setup, scale: Scale) -> tuple[Fraction, ...]:
    """The positions of the axis that a budget visits."""
    every, count = setup.positions, scale.positions
    if count is None or count >= len(every):
        return every
    return tuple(every[round(number * (len(every) - 1) / (count - 1))] for number in range(count))


def configs(setup: Setup, scale: Scale) -> list[Config]:
    """Every trial once: small tables have the same output dimension at several ratios."""
    kinds: list[Config] = [{"objective": UNTRAINED, "energy": energy} for energy in ENERGIES]
    kinds += [
        {"objective": m.loss, "energy": m.energy, "lr": rate, "steps": scale.steps}
        for rate in LEARNING_RATES
        for m in MODELS
    ]
    every = [
        {"table": table, "dim": dim, "preservation": preservation, "noise": setup.noise, **kind, "seed": seed}
        for table in scale.tables
        for position in positions(setup, scale)
        for dim, preservation in [setup.place(position, SHAPES[table][1])]
        for seed in range(scale.seeds)
        for kind in kinds
    ]
    return list({tuple(config.values()): config for config in every}.values())
