"""The frozen object that holds every choice about a run."""

from __future__ import annotations

import dataclasses
import difflib
import math
import typing
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from probssl.errors import InputError
from probssl.recipe import checks, files
from probssl.recipe.names import (
    ASYMMETRIES,
    AUGMENTATIONS,
    CLUSTERING_OBJECTIVES,
    CLUSTERS,
    CONCENTRATION_RATE,
    ENERGIES,
    ENERGY_OF,
    EVERY_OBJECTIVE,
    GENERATIVE_AUGMENTATIONS,
    GENERATIVE_OBJECTIVES,
    IMAGE_DEFAULTS,
    IMAGE_DENSITY_DEFAULTS,
    IMAGE_DIM,
    IMAGE_FISHER_DEFAULTS,
    IMAGE_GENERATIVE_DEFAULTS,
    IMAGE_LIKELIHOOD_VARIANCE,
    IMAGE_TEMPERATURE,
    LIKELIHOOD_VARIANCE,
    LIKELIHOODS,
    NEEDS_SCORE,
    NETWORK_HIDDEN,
    NETWORK_WIDTHS,
    NETWORKS,
    OF_AUGMENTATIONS,
    SIMVAE_IMAGES,
    WITH_CHAINS,
    WITH_CLUSTERS,
    WORLD_ENERGIES,
    WORLD_LAYERS,
    WORLD_STEPS,
    WORLD_WIDTH,
)

if TYPE_CHECKING:
    from torch import nn

    from probssl.energies import Energy
    from probssl.objectives import Objective
    from probssl.pairings import Pairing
    from probssl.training import TrainingPlan
    from probssl.worlds import World


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
    related: int = choice(10, "augmentations of a row that simvae relates, at least 2")
    likelihood: str = choice("gaussian", f"what a decoder says of the data: {', '.join(LIKELIHOODS)}")
    likelihood_variance: float | None = choice(
        None,
        f"variance of its normal errors (default: {LIKELIHOOD_VARIANCE:g} of standardised features, "
        f"{IMAGE_LIKELIHOOD_VARIANCE:g} of pixels)",
    )
    latent_variance: float = choice(0.15, "variance of related latents around their mean in simvae")
    mean_variance: float | None = choice(None, "variance of these means around the origin (default: all are alike)")
    beta: float = choice(4.0, "weight of the prior in beta-vae")
    consistency: float = choice(0.1, "weight in cr-vae of latents that an augmentation moves little")
    queue: int = choice(4096, "keys that moco and mocov2 remember")
    momentum: float = choice(0.99, "share of itself that the teacher of moco, mocov2 and byol keeps a step")
    dim: int | None = choice(
        None, f"dimensions of the representation (default: half of the features, at least 2; of images {IMAGE_DIM})"
    )
    hidden: tuple[int, ...] | None = choice(None, "widths of the hidden layers (default: one of twice the features)")
    head: tuple[int, ...] | None = choice(
        None, "widths of a projection head that the loss sees and the representation leaves out (mocov2 has one)"
    )
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
    precision: str = choice("float32", "what the encoder computes in: float32 or bfloat16")
    world: str | None = choice(None, "world whose fresh draws are trained on, as DATA says; None for a table")
    network: str | None = choice(None, f"network of images: {', '.join(NETWORKS)} (default: conv)")
    width: int | None = choice(
        None,
        "channels of its first convolution (default: "
        + ", ".join(f"{name} {width}" for name, width in NETWORK_WIDTHS.items())
        + ")",
    )
    augmentation: str | None = choice(
        None,
        f"augmentation of images: {', '.join(AUGMENTATIONS)} (default: gedi-mnist in grey, simclr-cifar in colour, "
        "gedi-svhn of svhn; of fisher siamese-digits and siamese-fisher, of latent-variable models a simvae one)",
    )
    images: str | None = choice(None, "set of images that is trained on, as DATA says; None for a table")
    shape: tuple[int, ...] | None = choice(None, "channels, height and width of its images")

    def __post_init__(self) -> None:
        for name in ("hidden", "head", "shape"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, tuple(getattr(self, name)))
        checks.check_names(self)
        checks.check_values(self)
        if self.objective in ENERGY_OF:
            object.__setattr__(self, "energy", ENERGY_OF[self.objective])
        if self.world is not None:
            checks.check_world(self)
        if self.images is not None:
            checks.check_images(self)
        if self.world is not None or self.images is not None:
            checks.refuse_unfit(self, checks.changed(self))
        _ = self.plan()  # refuses bad values of the optimisation

    def with_options(self, **options: Any) -> Recipe:
        """This recipe with the options that are not None put in place; unknown names are refused."""
        known = {f.name for f in dataclasses.fields(self)}
        for name in options:
            if name not in known:
                close = difflib.get_close_matches(name, known, 1)
                hint = f", did you mean {close[0]!r}?" if close else ": the recipe knows those of `probssl fit --help`"
                raise InputError(f"there is no option {name!r}{hint}")
        given = {name: value for name, value in options.items() if value is not None}
        objective = given.get("objective", self.objective)
        if "energy" in given and ENERGY_OF.get(objective, given["energy"]) != given["energy"]:
            raise InputError(
                f"the {objective} objective is defined with the {ENERGY_OF[objective]} energy only, "
                f"not {given['energy']}: choose that one or leave the energy out"
            )
        changed = dataclasses.replace(self, **given)
        if changed.world is not None or changed.images is not None:
            checks.refuse_unfit(changed, given)
        return changed

    # For the data at hand

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

    @classmethod
    def for_images(cls, name: str, **options: Any) -> Recipe:
        """What suits a set of images (see `IMAGE_DEFAULTS`), with the options that are not None put in place."""
        suited, objective = dict(IMAGE_DEFAULTS), options.get("objective")
        if objective in WITH_CHAINS:
            suited |= IMAGE_DENSITY_DEFAULTS
        if objective in GENERATIVE_OBJECTIVES:
            suited |= IMAGE_GENERATIVE_DEFAULTS
        if objective == "simvae":
            suited["batch_size"] = SIMVAE_IMAGES
        if objective in NEEDS_SCORE:
            suited |= IMAGE_FISHER_DEFAULTS
        if objective not in CLUSTERING_OBJECTIVES:
            suited["temperature"] = IMAGE_TEMPERATURE
        return cls(images=name, **suited).with_options(**options)

    def on(self, *, world: str | None = None, images: str | None = None) -> Recipe:
        """The same choices for the data at hand: a named world, a set of images, or a table."""
        found = dataclasses.replace(self, world=world, images=images, shape=self.shape if images else None)
        checks.refuse_unfit(found, checks.changed(found))
        return found

    def for_shape(self, shape: Sequence[int]) -> Recipe:
        """The same recipe for images of that many channels, rows and columns of pixels, with what depends on it."""
        return dataclasses.replace(self, shape=tuple(shape)).for_features(math.prod(shape))

    def for_features(self, features: int) -> Recipe:
        """The same recipe with the dimensions, which depend on the features, and the number of clusters filled in.

        Of images, whose shape the recipe must know, also the network and the augmentation.
        """
        clusters = CLUSTERS if self.clusters is None and self.objective in WITH_CLUSTERS else self.clusters
        if self.images is not None:
            return dataclasses.replace(self, clusters=clusters, **self._of_images())._with_defaults()
        of_table = max(2, features // 2), (2 * features,)
        of_world = features, (WORLD_WIDTH * features,) * WORLD_LAYERS
        dim, hidden = of_table if self.world is None else of_world
        return dataclasses.replace(
            self,
            dim=dim if self.dim is None else self.dim,
            hidden=hidden if self.hidden is None else self.hidden,
            clusters=clusters,
        )._with_defaults()

    def _with_defaults(self) -> Recipe:
        """What depends on the objective and the dimensions, filled in."""
        checks.check_likelihood(self)
        variance, head = self.likelihood_variance, self.head
        if variance is None and self.objective in GENERATIVE_OBJECTIVES and self.likelihood == "gaussian":
            variance = LIKELIHOOD_VARIANCE if self.images is None else IMAGE_LIKELIHOOD_VARIANCE
        if head is None and self.objective == "mocov2":
            assert self.dim is not None
            head = (self.dim, self.dim)
        return dataclasses.replace(self, likelihood_variance=variance, head=head)

    def _of_images(self) -> dict[str, Any]:
        if self.shape is None:
            raise InputError(f"the recipe for {self.images} does not know the shape of its images: use for_shape")
        network = self.network or "conv"
        coloured = self.shape[0] == 3
        usual = "gedi-svhn" if self.images == "svhn" else "simclr-cifar" if coloured else "gedi-mnist"
        if self.objective in NEEDS_SCORE:
            usual = "siamese-fisher" if coloured else "siamese-digits"
        if self.objective in GENERATIVE_OBJECTIVES:
            usual = GENERATIVE_AUGMENTATIONS.get(self.images or "", "simvae-cifar10" if coloured else "simvae-mnist")
        return {
            "dim": IMAGE_DIM if self.dim is None else self.dim,
            "network": network,
            "width": NETWORK_WIDTHS.get(network) if self.width is None else self.width,
            "hidden": NETWORK_HIDDEN if network == "mlp" and self.hidden is None else self.hidden,
            "augmentation": usual if self.augmentation is None else self.augmentation,
        }

    # What the recipe makes. torch is imported there, not above, so that the command line starts at once.

    def plan(self) -> TrainingPlan:
        """The optimisation."""
        from probssl.training.plan import TrainingPlan

        return TrainingPlan(
            steps=self.steps,
            batch_size=self.batch_size,
            optimiser=self.optimiser,  # type: ignore[arg-type]
            lr=self.lr,
            objective_lr=self.objective_lr,
            weight_decay=self.weight_decay,
            warmup=self.warmup,
            clip_norm=self.clip_norm if self.clip_norm != 0 else None,
            precision=self.precision,  # type: ignore[arg-type]
        )

    def build_encoder(self, features: int) -> nn.Module:
        """The encoder with the initial weights that the seed decides, whatever the objective is."""
        from probssl.recipe import building

        return building.encoder(self, features)

    def build_world(self) -> World | None:
        """The world that is trained on, its mixing decided by the seed; None for data."""
        from probssl.worlds import named_world

        return None if self.world is None else named_world(self.world, seed=self.seed % 2**32)

    def build_pairing(self) -> Pairing:
        """The augmentation of tables, mask features and add noise; of images, the one that was chosen."""
        from probssl.recipe import building

        return building.pairing(self)

    def build_energy(self, features: int) -> Energy:
        """The energy between representations; an asymmetric one starts as its symmetric base."""
        from probssl.recipe import building

        return building.energy(self, features)

    def build_objective(self, features: int, rows: int | None = None) -> Objective:
        """The objective, its own parameters initialised from the seed.

        `rows`, how many the training data has, is for objectives that remember each of them; only who looks at the
        energy alone may leave it out.
        """
        from probssl.recipe import building

        return building.objective(self, features, rows)

    # TOML and JSON

    def as_dict(self) -> dict[str, Any]:
        """The fields that are set and mean something, as plain values."""
        values = dataclasses.asdict(self)
        idle = () if self.world is None and self.images is None else OF_AUGMENTATIONS
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in values.items()
            if value is not None and name not in idle
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Recipe:
        """The inverse of `as_dict`; unknown names and wrong types are refused."""
        files.check_types(values, typing.get_type_hints(cls))
        return cls().with_options(**values)

    def to_toml(self) -> str:
        """The recipe as TOML, each line with what it means."""
        return files.to_toml(self)

    @classmethod
    def from_toml(cls, path: Path) -> Recipe:
        """Read what `to_toml` wrote, or what a person wrote."""
        values = files.read_toml(path)
        try:
            return cls.from_dict(values)
        except InputError as error:
            raise InputError(f"{path}: {error}") from error
