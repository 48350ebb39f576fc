"""The grid of `siamese/deaugmenting`: settings, data sets, budgets, and the scores that are compared."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from probssl.metrics.deaugment import DeaugmentationResult
from probssl.parts.registry import KINDS
from probssl.parts.resolve import fixed_energy
from probssl.studies.base import Config
from probssl.studies.deaugmenting_trials import CIRCLES, UNTRAINED

TABLES = ("pmlb:vehicle", "pmlb:satimage", "pmlb:optdigits", "pmlb:letter", "pmlb:yeast")
"""Chosen for their sizes (846 to 20,000 rows, 8 to 64 features, 4 to 26 classes), before any result was seen."""

FAMILIES = {
    "softmax over the batch": ("infonce", "renyi", "chi-squared", "simclr"),
    "learnt normaliser or bias": ("snl", "nce", "jensen-shannon"),
    "score matching": ("fisher", "sliced-fisher"),
    "no log-density": ("triplet", "spectral", "simsiam"),
    UNTRAINED: (UNTRAINED,),
}
WITHOUT_DENSITY = FAMILIES["no log-density"]
"""Their best energy is not −log p(x̃ | x) + c(x̃), so that only the order of candidates means anything: top-k."""


@dataclass(frozen=True)
class Setting:
    """What is trained, or the untrained encoder read through an energy."""

    objective: str
    energy: str
    asymmetry: str = "none"

    @classmethod
    def of(cls, config: Config) -> Setting:
        """That of a configuration."""
        return cls(config["objective"], config["energy"], config["asymmetry"])

    @property
    def name(self) -> str:
        """Objective and energy in words."""
        return f"{self.objective} {self.energy}" + ("" if self.asymmetry == "none" else f", own {self.asymmetry}")


def every_setting() -> tuple[Setting, ...]:
    """The untrained encoder, every objective with every energy it has a choice of, and Fisher with two encoders."""
    both = ("euclidean", "cosine")
    studied = {objective for family in FAMILIES.values() for objective in family}
    return (
        *(Setting(UNTRAINED, energy) for energy in both),
        *(
            Setting(objective, energy)
            for objective in KINDS["objective"]
            if objective in studied
            for energy in both
            if fixed_energy(objective) in (None, energy)
        ),
        Setting("fisher", "euclidean", "encoder"),
    )


@dataclass(frozen=True)
class Scale:
    """How much a budget does."""

    seeds: int
    steps: int
    data: tuple[str, ...] = (CIRCLES, *TABLES)
    settings: tuple[Setting, ...] = every_setting()


FEW = tuple(
    Setting(*pair)
    for pair in (
        (UNTRAINED, "euclidean"),
        (UNTRAINED, "cosine"),
        ("infonce", "euclidean"),
        ("infonce", "cosine"),
        ("snl", "euclidean"),
        ("fisher", "euclidean"),
        ("simsiam", "cosine"),
    )
)
SCALE = {"smoke": Scale(1, 60, (CIRCLES, "pmlb:vehicle"), FEW), "laptop": Scale(3, 600), "full": Scale(5, 10_000)}


@dataclass(frozen=True)
class Score:
    """A number of a trained model and what a good value of it is: `sign` is −1 where lower is better."""

    name: str
    title: str
    sign: int
    needs_density: bool = True


PROBE = Score("linear_probe", "linear probe", 1, False)
RANKME = Score("rankme", "RankMe", 1, False)
SCORES = (
    Score("kl_exact_model", "KL(exact‖q)", -1),
    Score("kl_model_exact", "KL(q‖exact)", -1),
    Score("excess_nll", "excess NLL", -1),
    Score("top1", "top-1", 1, False),
    Score("top5", "top-5", 1, False),
    Score("ece", "calibration", -1),
    Score("width_error", "width error", -1),
    RANKME,
)
MAIN = ("kl_exact_model", "top1", "rankme")
MEASURES = (
    "linear_probe",
    "gain",
    "rankme",
    "width_error",
    *(f.name for f in dataclasses.fields(DeaugmentationResult)),
)
