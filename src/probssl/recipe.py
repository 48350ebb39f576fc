"""The recipe: everything a person chooses about a run, in one frozen object that round-trips to TOML."""

from __future__ import annotations

import dataclasses
import difflib
import json
import math
import sys
import typing
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from probssl.errors import InputError

if TYPE_CHECKING:
    from torch import nn

    from probssl.energies import Energy
    from probssl.objectives import Objective
    from probssl.pairings import Pairing
    from probssl.training import TrainingPlan
    from probssl.worlds import World

OBJECTIVES = {
    "infonce": "InfoNCE, the KL loss: sample the normaliser",
    "snl": "self-normalised likelihood: learn the normaliser",
    "nce": "noise-contrastive estimation: classify against it",
    "fisher": "Fisher divergence: differentiate it away, no negatives",
    "sliced-fisher": "the same along random directions: no second derivative",
    "jensen-shannon": "logistic loss on pairs with one bias, as SigLIP",
    "chi-squared": "least squares on the density ratio: the Brier score",
    "renyi": "Rényi divergence of an order of choice; at 1 it is InfoNCE",
    "simclr": "NT-Xent over both views",
    "spectral": "spectral contrastive loss",
    "triplet": "triplet loss with a margin",
    "simsiam": "SimSiam: predictor and stop-gradient, no negatives",
}
"""Objectives by the name the command line knows them by: those that `compare` and the studies set side by side."""

NEGATIVE_FREE = {
    "barlow": "Barlow Twins: correlations between views near the identity, no negatives",
    "vicreg": "VICReg: close pairs, standard deviations above 1, no covariances",
    "wmse": "W-MSE: cosine of whitened pairs",
    "corinfomax": "CorInfoMax: close pairs, a large determinant of the covariance",
}
"""Objectives on moments of the batch, which `compare` sets beside the others when asked to."""

LATENT_OBJECTIVES = {"aninfonce": "AnInfoNCE: InfoNCE on the unit sphere, with a learnt concentration a dimension"}
"""Objectives made for worlds with known latents; tables may be trained with them too."""

CLUSTERING_OBJECTIVES = {
    "swav": "SwAV: predict the balanced cluster code of the other view",
    "protocpc": "ProtoCPC: contrast clusters in place of observations",
    "deepcluster": "DeepCluster: predict what k-means makes of the representation",
    "instance": "instance discrimination: every row a class of its own",
    "gedi": "GEDI: clusters and a density of the rows in one network",
    "jem": "JEM: the density alone",
}
"""Objectives that predict a cluster, or which row it is."""

WITH_CLUSTERS = ("swav", "protocpc", "deepcluster", "gedi", "jem")
"""Objectives that have a number of clusters."""

WITH_MEMORY = ("deepcluster", "instance")
"""Objectives that remember every row of the table they are trained on."""

CLUSTERS = 10
"""How many clusters unless asked for: labels, which would tell, are never seen."""

EVERY_OBJECTIVE = {**OBJECTIVES, **NEGATIVE_FREE, **LATENT_OBJECTIVES, **CLUSTERING_OBJECTIVES}

ENERGIES = {
    "euclidean": "half the squared distance",
    "cosine": "(1 − cos) / temperature",
    "pnorm": "sum of |difference|^p",
    "dot": "−⟨a, b⟩ / temperature",
    "anisotropic": "half the squared distance, each dimension with its own learnt weight",
}

FIXED_ENERGY = {"spectral": "cosine", "simsiam": "cosine"}
"""Those of `OBJECTIVES` whose published form leaves no choice of energy."""

ENERGY_OF = {
    **FIXED_ENERGY,
    "barlow": "cosine",
    "vicreg": "euclidean",
    "wmse": "cosine",
    "corinfomax": "cosine",
    "aninfonce": "anisotropic",
    **dict.fromkeys(CLUSTERING_OBJECTIVES, "cosine"),
    "gedi": "euclidean",
    "jem": "euclidean",
}
"""The same of every objective."""

CHAINS, CHAINS_RENEWED, LANGEVIN_STEP, MAGNITUDE, BASE_SCALE = 1000, 0.05, 0.02, 0.01, 3.0
"""Of gedi and jem: chains kept, share begun anew, step size; weight that keeps energies from drifting off; and the
scale of the normal density that theirs is relative to, in standard deviations of a feature."""

ASYMMETRIES = {
    "none": "a Siamese network: both sides embedded alike",
    "predictor": "augmentations pass through a predictor after the encoder",
    "encoder": "augmentations have an encoder of their own",
}

SYMMETRIC_ONLY = ("simclr", "spectral", "simsiam", "aninfonce", *NEGATIVE_FREE, *CLUSTERING_OBJECTIVES)
"""Objectives that compare views within one side, bring their own asymmetry, or make their own energy."""

NEEDS_SCORE = ("fisher", "sliced-fisher")
"""Objectives on ∇ₓ log p(x̃ | x)."""

OF_AUGMENTATIONS = ("preservation", "noise")
"""Choices about augmentations, which a world has none of."""

WORLD_ENERGIES = {"sphere": "cosine", "anisotropic": "cosine", "box": "pnorm", "normal": "euclidean"}
"""The energy that the transitions of a world ask for: −log p(z̃ | z), up to scale."""

WORLD_STEPS = 4000
WORLD_WIDTH, WORLD_LAYERS = 10, 3
"""Defaults for worlds: training steps; hidden units a feature and hidden layers, for mixings of three layers."""

CONCENTRATION_RATE = 0.1
"""Learning rate of AnInfoNCE's concentrations on a world: they start at 1 and have far to go."""

WHITENED_ROWS = 10_000
"""Observations of a world that the whitening of its encoder is made of."""


def choice(default: Any, help_text: str) -> Any:
    """A field of the recipe with the sentence that explains it everywhere it is shown."""
    return field(default=default, metadata={"help": help_text})


@dataclass(frozen=True)
class Recipe:
    """How to learn a representation: pairing, encoder, energy, objective and optimisation."""

    objective: str = choice("infonce", f"loss to train with: {', '.join(EVERY_OBJECTIVE)}")
    energy: str = choice("euclidean", f"what 'alike' means: {', '.join(ENERGIES)}")
    asymmetry: str = choice("none", f"what embeds augmentations differently: {', '.join(ASYMMETRIES)}")
    temperature: float = choice(0.1, "temperature of the cosine and dot energies, and of cluster predictions")
    p: float = choice(1.0, "power of the p-norm energy")
    margin: float = choice(1.0, "margin of the triplet loss")
    order: float = choice(2.0, "order of the Rényi divergence: above 1 trusts easy pairs, below 1 works on hard ones")
    slices: int = choice(1, "random directions a step of the sliced Fisher loss")
    clusters: int | None = choice(None, f"number of clusters of {', '.join(WITH_CLUSTERS)} (default: {CLUSTERS})")
    generative: float = choice(0.1, "weight of the density in gedi, whose samples are drawn as it trains; 0 for none")
    invariance: float = choice(1.0, "weight in gedi of clusters that augmentations do not change")
    balance: float = choice(4.0, "weight in gedi of clusters of one size")
    sgld_steps: int = choice(5, "steps of Langevin dynamics a training step of gedi and jem")
    dim: int | None = choice(None, "dimensions of the representation (default: half of the features, at least 2)")
    hidden: tuple[int, ...] | None = choice(None, "widths of the hidden layers (default: one of twice the features)")
    preservation: float = choice(0.5, "share of features an augmentation keeps; the others are masked to 0")
    noise: float = choice(0.25, "standard deviation of the noise an augmentation adds")
    steps: int = choice(2000, "training steps")
    batch_size: int = choice(256, "rows a step")
    optimiser: str = choice("adam", "optimiser: adam, adamw or sgd")
    lr: float = choice(0.01, "learning rate of the encoder")
    objective_lr: float | None = choice(None, "learning rate of the objective's own parameters (default: --lr)")
    weight_decay: float = choice(0.0, "weight decay")
    warmup: int = choice(100, "steps over which the learning rate warms up before it anneals to zero")
    clip_norm: float = choice(1.0, "largest norm of a gradient, 0 for no limit")
    seed: int = choice(0, "decides initial weights, batches and augmentations")
    world: str | None = choice(None, "world whose fresh draws are trained on, as DATA says; None for a table")

    def __post_init__(self) -> None:
        _one_of("objective", self.objective, EVERY_OBJECTIVE)
        _one_of("energy", self.energy, ENERGIES)
        _one_of("asymmetry", self.asymmetry, ASYMMETRIES)
        if self.asymmetry != "none" and self.objective in SYMMETRIC_ONLY:
            raise InputError(
                f"the {self.objective} objective is defined with asymmetry none only, not {self.asymmetry}"
            )
        if self.slices < 1:
            raise InputError(f"slices must be at least 1, not {self.slices}")
        if self.clusters is not None and self.objective not in WITH_CLUSTERS:
            raise InputError(
                f"the {self.objective} objective has no clusters: leave them out, or choose {', '.join(WITH_CLUSTERS)}"
            )
        if self.clusters is not None and self.clusters < 2:
            raise InputError(f"clusters must be at least 2, not {self.clusters}")
        for name in ("generative", "invariance", "balance"):
            if not 0 <= getattr(self, name) < math.inf:
                raise InputError(f"{name} must not be negative, and finite, not {getattr(self, name):g}")
        if self.sgld_steps < 1:
            raise InputError(f"sgld_steps must be at least 1, not {self.sgld_steps}")
        if self.objective == "gedi" and not self.generative + self.invariance + self.balance:
            raise InputError("gedi needs a weight above 0 among generative, invariance and balance")
        fixed = ENERGY_OF.get(self.objective)
        if fixed is not None and self.energy != fixed:
            object.__setattr__(self, "energy", fixed)
        if self.dim is not None and self.dim < 1:
            raise InputError(f"dim must be at least 1, not {self.dim}")
        if self.hidden is not None:
            object.__setattr__(self, "hidden", tuple(self.hidden))
            if any(width < 1 for width in self.hidden):
                raise InputError(f"hidden widths must be positive, not {list(self.hidden)}")
        if not 0 <= self.preservation <= 1:
            raise InputError(f"preservation must lie in [0, 1], not {self.preservation:g}")
        for name in ("temperature", "noise", "margin", "order"):
            if not 0 < getattr(self, name) < math.inf:
                raise InputError(f"{name} must be positive and finite, not {getattr(self, name):g}")
        if self.noise < 1e-6:
            raise InputError(f"noise must be at least 1e-06, a millionth of a standard deviation, not {self.noise:g}")
        if not 1 <= self.p < math.inf:
            raise InputError(f"p must be at least 1 and finite, not {self.p:g}")
        if not 0 <= self.seed < 2**62:
            raise InputError(f"the seed must be a whole number from 0, not {self.seed}")
        if self.world is not None:
            self._check_world()
        _ = self.plan()  # refuses bad values of the optimisation

    def _check_world(self) -> None:
        """Refuse what cannot be asked of a world."""
        if self.objective in NEEDS_SCORE:
            raise InputError(
                f"the {self.objective} objective needs the score ∇ₓ log p(x̃ | x), which world:{self.world} does not "
                "know: choose another, for example infonce"
            )
        if self.objective in WITH_MEMORY:
            raise InputError(
                f"the {self.objective} objective remembers the rows of a table, and world:{self.world} makes new ones "
                "at every step: choose another, for example swav"
            )
        if self.asymmetry == "encoder":
            raise InputError(
                f"world:{self.world} mixes both sides of a pair alike, so one encoder must undo it: "
                "choose asymmetry none or predictor"
            )
        defaults = {f.name: f.default for f in dataclasses.fields(self)}
        changed = [name for name in OF_AUGMENTATIONS if getattr(self, name) != defaults[name]]
        if changed:
            raise InputError(self._no_augmentation(changed[0]))

    def _no_augmentation(self, name: str) -> str:
        return f"{name} is a choice about augmentations, and world:{self.world} makes its own pairs: leave it out"

    def with_options(self, **options: Any) -> Recipe:
        """This recipe with the options that are not None put in place; unknown names are refused."""
        known = {f.name for f in dataclasses.fields(self)}
        for name in options:
            if name not in known:
                close = difflib.get_close_matches(name, known, 1)
                hint = f", did you mean {close[0]!r}?" if close else f": the recipe knows {', '.join(sorted(known))}"
                raise InputError(f"there is no option {name!r}{hint}")
        given = {name: value for name, value in options.items() if value is not None}
        objective = given.get("objective", self.objective)
        if "energy" in given and ENERGY_OF.get(objective, given["energy"]) != given["energy"]:
            raise InputError(
                f"the {objective} objective is defined with the {ENERGY_OF[objective]} energy only, "
                f"not {given['energy']}: choose that one or leave the energy out"
            )
        changed = dataclasses.replace(self, **given)
        unfit = [name for name in OF_AUGMENTATIONS if changed.world is not None and name in given]
        if unfit:
            raise InputError(changed._no_augmentation(unfit[0]))
        return changed

    @classmethod
    def for_world(cls, name: str, **options: Any) -> Recipe:
        """What suits a named world (see `WORLD_ENERGIES`), with the options that are not None put in place.

        Where half of the latents move more than the others, AnInfoNCE; else InfoNCE. The temperature 1/d is that of
        positives with κ = d.
        """
        from probssl.worlds.named import parse_name

        family, dim = parse_name(name, "world:")
        suited: dict[str, Any] = {"energy": WORLD_ENERGIES[family], "steps": WORLD_STEPS}
        if suited["energy"] == "cosine":
            suited["temperature"] = 1 / dim
        asked = {key for key, value in options.items() if value is not None}
        if family == "anisotropic" and not asked & {"objective", "energy"}:
            suited |= {"objective": "aninfonce", "energy": "anisotropic", "objective_lr": CONCENTRATION_RATE}
        return cls(world=name, **suited).with_options(**options)

    def on(self, world: str | None) -> Recipe:
        """The same choices for the data at hand: a named world, or a table (None)."""
        return dataclasses.replace(self, world=world)

    def for_features(self, features: int) -> Recipe:
        """The same recipe with the dimensions, which depend on the features, and the number of clusters filled in."""
        of_table = max(2, features // 2), (2 * features,)
        of_world = features, (WORLD_WIDTH * features,) * WORLD_LAYERS
        dim, hidden = of_table if self.world is None else of_world
        return dataclasses.replace(
            self,
            dim=dim if self.dim is None else self.dim,
            hidden=hidden if self.hidden is None else self.hidden,
            clusters=CLUSTERS if self.clusters is None and self.objective in WITH_CLUSTERS else self.clusters,
        )

    # What the recipe makes. torch is imported here, not above, so that the command line starts at once.

    def plan(self) -> TrainingPlan:
        """The optimisation."""
        from probssl.training.plan import TrainingPlan

        return TrainingPlan(
            steps=self.steps,
            batch_size=self.batch_size,
            optimiser=self.optimiser,  # type: ignore[arg-type]
            learning_rate=self.lr,
            objective_learning_rate=self.objective_lr,
            weight_decay=self.weight_decay,
            warmup=self.warmup,
            clip_norm=self.clip_norm if self.clip_norm != 0 else None,
        )

    def build_encoder(self, features: int) -> nn.Module:
        """The encoder with the initial weights that the seed decides, whatever the objective is.

        That of a world whitens what it sees, and ends on the sphere where the energy compares directions alone.
        """
        import torch

        from probssl.encoders import MLP, latent_encoder, seeded

        sized = self.for_features(features)
        assert sized.hidden is not None
        assert sized.dim is not None
        dim, hidden, world = sized.dim, sized.hidden, self.build_world()
        if world is None:
            return seeded(self.seed, lambda: MLP([features, *hidden, dim]))
        sample, _ = world.observe(WHITENED_ROWS, torch.Generator().manual_seed(self.seed))
        sphere = self.energy == "cosine" or self.objective == "aninfonce"
        return seeded(self.seed, lambda: latent_encoder(sample, dim, hidden, sphere=sphere))

    def build_world(self) -> World | None:
        """The world that is trained on, its mixing decided by the seed; None for a table."""
        from probssl.worlds import named_world

        return None if self.world is None else named_world(self.world, seed=self.seed % 2**32)

    def build_pairing(self) -> Pairing:
        """The augmentation of tables: mask features, add noise."""
        from probssl.pairings import MaskAndNoise

        return MaskAndNoise(self.preservation, self.noise)

    def build_energy(self, features: int) -> Energy:
        """The energy between representations; an asymmetric one starts as its symmetric base."""
        from probssl import energies
        from probssl.encoders import Predictor

        dim = self.for_features(features).dim
        assert dim is not None

        makers: dict[str, Callable[[], Energy]] = {
            "euclidean": energies.Euclidean,
            "cosine": lambda: energies.Cosine(self.temperature),
            "pnorm": lambda: energies.PNorm(self.p),
            "dot": lambda: energies.Dot(self.temperature),
            "anisotropic": lambda: energies.Anisotropic(dim),
        }
        base = makers[self.energy]()
        if self.asymmetry == "predictor":
            return energies.Asymmetric(base, predictor=Predictor(dim))
        if self.asymmetry == "encoder":
            return energies.Asymmetric(base, encoder=self.build_encoder(features))
        return base

    def build_objective(self, features: int, rows: int | None = None) -> Objective:
        """The objective, its own parameters initialised from the seed; positives are (x, x̃), as suits tables.

        `rows`, how many the training table has, is for objectives that remember each of them; only who looks at the
        energy alone may leave it out.
        """
        from probssl import objectives
        from probssl.encoders import seeded

        sized = self.for_features(features)
        dim, clusters, temperature = sized.dim, sized.clusters or CLUSTERS, self.temperature
        assert dim is not None
        rows = clusters if rows is None else rows

        def energy() -> Energy:
            return self.build_energy(features)

        makers: dict[str, Callable[[], Objective]] = {
            "infonce": lambda: objectives.InfoNCE(energy()),
            "snl": lambda: objectives.SNL(dim, energy()),
            "nce": lambda: objectives.NCE(dim, energy()),
            "fisher": lambda: objectives.Fisher(energy()),
            "sliced-fisher": lambda: objectives.SlicedFisher(energy(), slices=self.slices),
            "jensen-shannon": lambda: objectives.JensenShannon(energy()),
            "chi-squared": lambda: objectives.ChiSquared(energy()),
            "renyi": lambda: objectives.RenyiInfoNCE(energy(), order=self.order),
            "simclr": lambda: objectives.SimCLR(energy(), pair="original"),
            "spectral": lambda: objectives.Spectral(pair="original"),
            "triplet": lambda: objectives.Triplet(energy(), margin=self.margin),
            "simsiam": lambda: objectives.SimSiam(dim, pair="original"),
            "barlow": lambda: objectives.BarlowTwins(pair="original"),
            "vicreg": lambda: objectives.VICReg(pair="original"),
            "wmse": lambda: objectives.WMSE(pair="original"),
            "corinfomax": lambda: objectives.CorInfoMax(pair="original"),
            "aninfonce": lambda: objectives.AnInfoNCE(dim),
            "swav": lambda: objectives.SwAV(dim, clusters, temperature=temperature, pair="original"),
            "protocpc": lambda: objectives.ProtoCPC(dim, clusters, temperature=temperature, pair="original"),
            "gedi": lambda: self._gedi(features, dim, clusters, self.generative, self.invariance, self.balance),
            "jem": lambda: self._gedi(features, dim, clusters, 1.0, 0.0, 0.0),
            "deepcluster": lambda: objectives.DeepClustering(dim, clusters, rows, temperature=temperature),
            "instance": lambda: objectives.InstanceDiscrimination(dim, rows, temperature=temperature),
        }
        return seeded(self.seed + 1, makers[self.objective])

    def _gedi(
        self, features: int, dim: int, clusters: int, generative: float, invariance: float, balance: float
    ) -> Objective:
        """GEDI with chains that start where standardised rows lie: N(0, 1) in every feature."""
        import torch

        from probssl.objectives import GEDI
        from probssl.samplers import SGLD, NormalStart, ReplayBuffer

        start = NormalStart(torch.zeros(features), torch.ones(features))
        return GEDI(
            dim,
            clusters,
            ReplayBuffer(start, max(CHAINS, self.batch_size), CHAINS_RENEWED),
            SGLD(steps=self.sgld_steps, step_size=LANGEVIN_STEP),
            generative=generative,
            invariance=invariance,
            balance=balance,
            magnitude=MAGNITUDE if generative else 0.0,
            base_scale=BASE_SCALE,
        )

    # TOML and JSON

    def as_dict(self) -> dict[str, Any]:
        """The fields that are set and mean something, as plain values."""
        values = dataclasses.asdict(self)
        idle = () if self.world is None else OF_AUGMENTATIONS
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in values.items()
            if value is not None and name not in idle
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Recipe:
        """The inverse of `as_dict`; unknown names and wrong types are refused."""
        hints = typing.get_type_hints(cls)
        for name, value in values.items():
            expected = hints.get(name)
            if expected is not None and not _fits(value, expected):
                raise InputError(f"{name} cannot be {value!r}")
        return cls().with_options(**values)

    def to_toml(self) -> str:
        """The recipe as TOML, each line with what it means."""
        helps = {f.name: f.metadata["help"] for f in dataclasses.fields(self)}
        lines = [f"# {helps[name]}\n{name} = {json.dumps(value)}\n" for name, value in self.as_dict().items()]
        return "\n".join(lines)

    @classmethod
    def from_toml(cls, path: Path) -> Recipe:
        """Read what `to_toml` wrote, or what a person wrote."""
        if sys.version_info >= (3, 11):
            import tomllib
        else:
            import tomli as tomllib

        try:
            return cls.from_dict(tomllib.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError as error:
            raise InputError(f"there is no recipe at {path}") from error
        except OSError as error:
            raise InputError(f"{path} cannot be read ({error.strerror})") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InputError(f"{path} is not a TOML file ({error})") from error
        except InputError as error:
            raise InputError(f"{path}: {error}") from error


def _fits(value: Any, expected: Any) -> bool:
    """Whether a TOML value can stand for a field of this type."""
    options = typing.get_args(expected) or (expected,)
    if isinstance(value, bool):
        return False
    if isinstance(value, int):
        return int in options or float in options
    if isinstance(value, list):
        return any(typing.get_origin(option) is tuple for option in options) and all(type(v) is int for v in value)
    return type(value) in options


def _one_of(name: str, value: str, known: dict[str, str]) -> None:
    if value not in known:
        close = difflib.get_close_matches(value, known, 1)
        hint = f"did you mean {close[0]!r}?" if close else f"choose one of {', '.join(known)}"
        raise InputError(f"there is no {name} {value!r}: {hint}")
