"""The catalogue: every energy, pairing and objective, in every configuration worth testing.

A new member is one line here and then has to obey every law of its family. A new class also needs its formula in
`references.py`, written with loops.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from probssl.encoders import seeded
from probssl.energies import Anisotropic, Asymmetric, Cosine, Dot, Energy, Euclidean, PNorm
from probssl.objectives import (
    BYOL,
    CRVAE,
    EBCLR,
    GEDI,
    NCE,
    SNL,
    VAE,
    WMSE,
    AlignUniform,
    BarlowTwins,
    BernoulliLikelihood,
    BiasNetwork,
    ChiSquared,
    ConstrainedGEDI,
    CorInfoMax,
    DeepClustering,
    Ensemble,
    Fisher,
    GaussianLikelihood,
    InfoNCE,
    InstanceDiscrimination,
    JensenShannon,
    LatentRegression,
    MoCo,
    Objective,
    ProtoCPC,
    RenyiInfoNCE,
    SimSiam,
    SimVAE,
    SlicedFisher,
    Spectral,
    SwAV,
    TriCL,
    Triplet,
    VICReg,
)
from probssl.pairings import (
    CountableImageAugmentation,
    Each,
    GaussianNoise,
    HardNegatives,
    ImageAugmentation,
    ImageStrengths,
    InTurn,
    LinearMixture,
    MaskAndNoise,
    Pairing,
    ResampledColumns,
    Rotations,
    SampledPairing,
    Views,
)
from probssl.parts.part import Part
from probssl.parts.registry import KINDS
from probssl.samplers import SGLD, NormalStart
from probssl.symbolic import Constraint
from tests.objectives.references import GaussianComponents, column_components, linear_components, mask_components

INPUT, EMBEDDING, ROWS, NEGATIVES, CLUSTERS, REMEMBERED = 3, 2, 5, 4, 3, 9

T = TypeVar("T", bound=Part)


@dataclass(frozen=True)
class Member(Generic[T]):
    """A named way to build one part; `built()` is always the same thing, bound, in double precision."""

    name: str
    build: Callable[[], T]

    def built(self) -> T:
        return seeded(1, lambda: bound(self.build())).double()


def bound(part: T) -> T:
    """Ready for the batches of these tests; a part that is bound already is as it was."""
    return part.bind(dim=EMBEDDING, shape=(INPUT,), rows=REMEMBERED, encoder=smooth_encoder(5))


def each(members: Iterable[Any]) -> list[Any]:
    """The members as pytest parameters, called by name."""
    return [pytest.param(member, id=member.name) for member in members]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=generator(seed), dtype=torch.float64).to(dtype)


def smooth_encoder(seed: int = 0, scale: float = 1.0) -> nn.Module:
    """A small encoder with tanh, so that finite differences meet no kinks; float64."""
    encoder = seeded(seed, lambda: nn.Sequential(nn.Linear(INPUT, 4), nn.Tanh(), nn.Linear(4, EMBEDDING))).double()
    with torch.no_grad():
        for value in encoder[-1].parameters():
            value.mul_(scale)
    return encoder


def constant_encoder() -> nn.Module:
    """ψ(x) = (0.6, −0.8) for every x, through an ordinary network."""
    encoder = smooth_encoder()
    with torch.no_grad():
        encoder[-1].weight.zero_()
        encoder[-1].bias.copy_(torch.tensor([0.6, -0.8]))
    return encoder


def unlisted(kind: str, listed: Iterable[Member[Any]], member: Callable[..., Any] = Member) -> list[Any]:
    """The names of a registry whose classes are of no member yet, with their defaults."""
    known = {type(one.build()) for one in listed}
    classes = {entry.load(): name for name, entry in reversed([*KINDS[kind].items()]) if not entry.plugin}
    return [member(name, cls) for cls, name in classes.items() if cls not in known]


# --- energies ---------------------------------------------------------------------------------------------------------

CONCENTRATIONS = torch.tensor([0.3, 1.7, 4.0])[:EMBEDDING]

ENERGIES: list[Member[Energy]] = [
    Member("cosine", Cosine),
    Member("cosine-0.7", lambda: Cosine(temperature=0.7)),
    Member("euclidean", Euclidean),
    Member("p-norm-1", lambda: PNorm(1)),
    Member("p-norm-1.5", lambda: PNorm(1.5)),
    Member("p-norm-2", lambda: PNorm(2)),
    Member("p-norm-4", lambda: PNorm(4)),
    Member("dot", Dot),
    Member("dot-0.5", lambda: Dot(temperature=0.5)),
    Member("anisotropic-fixed", lambda: Anisotropic(CONCENTRATIONS, trainable=False)),
    Member("anisotropic", lambda: Anisotropic(CONCENTRATIONS)),
    Member("anisotropic-sphere", lambda: Anisotropic(CONCENTRATIONS, normalise=True)),
    Member("asymmetric-predictor", lambda: Asymmetric(Euclidean(), network=nn.Linear(EMBEDDING, EMBEDDING))),
    Member("asymmetric-encoder", lambda: Asymmetric(Cosine(0.5), by="encoder", network=nn.Linear(INPUT, EMBEDDING))),
]
ENERGIES += unlisted("energy", ENERGIES)
SYMMETRIC = [member for member in ENERGIES if member.built().symmetric]
SOME_ENERGIES = [member for member in ENERGIES if member.name in ("cosine", "euclidean", "asymmetric-predictor")]


# --- pairings: all of the plane ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PairingMember(Member[Pairing]):
    """A pairing of the plane with p(x̃ | x) spelled out as a finite mixture of Gaussians."""

    components: Callable[[np.ndarray], GaussianComponents]


COVARIANCE = torch.tensor([[0.30, 0.12], [0.12, 0.20]], dtype=torch.float64)
SHIFT = torch.tensor([0.4, -0.3], dtype=torch.float64)
SPREADS = torch.tensor([0.3, 0.6], dtype=torch.float64)
WEIGHTS = (0.2, 0.3, 0.5)
MAPS = torch.tensor(
    [[[1.0, 0.0], [0.0, 1.0]], [[0.8, -0.6], [0.6, 0.8]], [[-0.5, 0.2], [0.9, 1.1]]], dtype=torch.float64
)
RATES = torch.tensor([0.3, 0.9], dtype=torch.float64)
DRAWN_FROM = torch.tensor([[-1.1, 0.4], [0.2, 0.9], [0.6, -0.5]], dtype=torch.float64)
ANGLES = (-30.0, 0.0, 45.0)
ROTATIONS = [[[np.cos(t), -np.sin(t)], [np.sin(t), np.cos(t)]] for t in np.radians(ANGLES)]


def _gaussian(covariance: Any, mean: Any = (0.0, 0.0)) -> Callable[[np.ndarray], GaussianComponents]:
    return linear_components([np.eye(2)], [1.0], covariance, mean)


PAIRINGS: list[PairingMember] = [
    PairingMember("noise-scalar", lambda: GaussianNoise(0.5), _gaussian(0.25 * np.eye(2))),
    PairingMember("noise-diagonal", lambda: GaussianNoise(SPREADS), _gaussian(np.diag(SPREADS.numpy() ** 2))),
    PairingMember("noise-full", lambda: GaussianNoise(covariance=COVARIANCE), _gaussian(COVARIANCE)),
    PairingMember("noise-shifted", lambda: GaussianNoise(0.5, mean=SHIFT), _gaussian(0.25 * np.eye(2), SHIFT)),
    PairingMember(
        "noise-full-shifted", lambda: GaussianNoise(covariance=COVARIANCE, mean=SHIFT), _gaussian(COVARIANCE, SHIFT)
    ),
    PairingMember("mask", lambda: MaskAndNoise(0.8, 0.25), mask_components([0.8, 0.8], [0.25, 0.25])),
    PairingMember("mask-rates", lambda: MaskAndNoise(RATES, 0.4), mask_components(RATES, [0.4, 0.4])),
    PairingMember("mask-per-feature", lambda: MaskAndNoise(RATES, SPREADS), mask_components(RATES, SPREADS)),
    PairingMember("mask-everything", lambda: MaskAndNoise(0.0, 0.3), mask_components([0, 0], [0.3, 0.3])),
    PairingMember("mask-nothing", lambda: MaskAndNoise(1.0, 0.3), mask_components([1, 1], [0.3, 0.3])),
    PairingMember(
        "mask-one-feature", lambda: MaskAndNoise(torch.tensor([0.0, 1.0]), 0.3), mask_components([0, 1], [0.3, 0.3])
    ),
    PairingMember(
        "columns",
        lambda: ResampledColumns(0.7, 0.25).bind(sample=DRAWN_FROM),
        column_components(DRAWN_FROM, [0.7, 0.7], [0.25, 0.25]),
    ),
    PairingMember(
        "columns-per-feature",
        lambda: ResampledColumns(RATES, SPREADS).bind(sample=DRAWN_FROM),
        column_components(DRAWN_FROM, RATES, SPREADS),
    ),
    PairingMember("rotations", lambda: Rotations(ANGLES, 0.3), linear_components(ROTATIONS, [1, 1, 1], 0.09)),
    PairingMember(
        "mixture-weighted", lambda: LinearMixture(MAPS, 0.3, weights=WEIGHTS), linear_components(MAPS, WEIGHTS, 0.09)
    ),
    PairingMember(
        "mixture-diagonal",
        lambda: LinearMixture(MAPS, SPREADS, weights=WEIGHTS, mean=SHIFT),
        linear_components(MAPS, WEIGHTS, np.diag(SPREADS.numpy() ** 2), SHIFT),
    ),
    PairingMember(
        "mixture-full",
        lambda: LinearMixture(MAPS, weights=WEIGHTS, covariance=COVARIANCE, mean=SHIFT),
        linear_components(MAPS, WEIGHTS, COVARIANCE, SHIFT),
    ),
    PairingMember(
        "hard-negatives",
        lambda: HardNegatives(MaskAndNoise(0.8, 0.25), GaussianNoise(1.0), 3),
        mask_components([0.8, 0.8], [0.25, 0.25]),
    ),
]


SAMPLED: list[Member[SampledPairing]] = [
    Member("images", lambda: ImageAugmentation("simclr-cifar")),
    Member("each-image", lambda: Each(ImageAugmentation("gedi-mnist"))),
]
"""Pairings without a density: of images."""

COUNTED: list[Member[Pairing]] = [
    Member(
        "countable-images",
        lambda: CountableImageAugmentation(ImageStrengths(flip=0.4, grey=0.3, noise=1, noise_std=0.4)),
    )
]
"""Pairings of images with a density, which tests/pairings/test_image_score.py holds to the mixture of all outcomes."""

IN_TURN: Member[SampledPairing] = Member("in-turn", lambda: InTurn([MaskAndNoise(0.8, 0.25), GaussianNoise(0.5)]))

SAMPLED_ROWS: list[Member[SampledPairing]] = [
    IN_TURN,
    *unlisted("pairing", [IN_TURN, *PAIRINGS, *SAMPLED, *COUNTED]),
]
"""Pairings of rows without a density."""


# --- objectives -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ObjectiveMember(Member[Objective]):
    """An objective, what its batches hold, and which laws it is exempt from by design."""

    negatives: str | None = None  # "shared" [M, ...] or "own" [n, M, ...]
    group: int | None = None  # observations of an example, where its rows hold several
    latents: bool = False  # whether its batches come from a world
    stops_gradients: bool = False  # its gradient is not that of its value, on purpose
    bound_in_expectation: bool = False  # optimum() bounds the mean over batches, not every batch
    memory: bool = False  # remembers rows: its batches say which, and laws are of its loss while memory stays as it is

    samples: bool = False  # draws from torch's random state, which checkpoints carry

    def built(self) -> Objective:
        return super().built().eval() if self.memory else super().built()

    def views(self, rows: int = ROWS, *, seed: int = 0, dtype: torch.dtype = torch.float64) -> Views:
        """A random batch with everything that this objective asks for."""
        x = normal(rows, INPUT, seed=seed) if self.group is None else normal(rows, self.group, INPUT, seed=seed)
        views = GaussianNoise(0.5)(x, self.built().needs, generator(seed + 1))
        if self.negatives is not None:
            shape = (NEGATIVES, INPUT) if self.negatives == "shared" else (rows, NEGATIVES, INPUT)
            views.negatives = normal(*shape, seed=seed + 2)
        if self.latents:
            views.latents = normal(rows, EMBEDDING, seed=seed + 3)
        if self.memory:
            views.index = torch.randperm(REMEMBERED, generator=generator(seed + 4))[:rows]
        return cast(views, dtype)


class Ends(SampledPairing):
    """Noise, and a bell after so many draws."""

    def __init__(self, draws: int, stop: threading.Event) -> None:
        super().__init__()
        self._left, self._stop = draws, stop

    def sample(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        self._left -= 1
        if not self._left:
            self._stop.set()
        return x + 0.1 * torch.randn(x.shape, generator=generator)


def cast(views: Views, dtype: torch.dtype) -> Views:
    def change(value: Tensor | None) -> Tensor | None:
        return None if value is None else value.to(dtype)

    return Views(
        views.x.to(dtype),
        views.augmented.to(dtype),
        score=change(views.score),
        index=views.index,
        latents=change(views.latents),
        negatives=change(views.negatives),
        directions=change(views.directions),
        noise=change(views.noise),
    )


def _aninfonce(concentration: Any, *, candidates: Any = "originals") -> InfoNCE:
    """AnInfoNCE as published: on the sphere, with originals as anchors."""
    return InfoNCE(Anisotropic(concentration, normalise=True), candidates=candidates, anchor="original")


def _predicting(unbound: Any, head: str) -> Any:
    """With the predictor that it makes for itself, or with a smooth one."""
    objective = bound(unbound)
    if head == "smooth":
        objective.predictor = nn.Sequential(nn.Linear(EMBEDDING, 3), nn.Tanh(), nn.Linear(3, EMBEDDING))
    return objective


def _decoder() -> nn.Module:
    return nn.Sequential(nn.Linear(EMBEDDING, 4), nn.Tanh(), nn.Linear(4, INPUT))


CHAINS: dict[str, Any] = {
    "chains": 2000,
    "reinitialise": 0.0,
    "start": NormalStart(torch.full((INPUT,), 0.3), torch.zeros(INPUT)),
    "sampler": SGLD(steps=2, noise=0.0),
}
"""All at one place and moved without noise, so that whatever is drawn of them is the same."""

NEXT = Constraint.where(lambda a, b: b == a + 1 or a == b == 0, sizes=(CLUSTERS, CLUSTERS))
"""The second observation is of the next class; or both are of the first."""


def _filled(unbound: DeepClustering) -> DeepClustering:
    """With a memory of all rows but the last, which has no label yet."""
    objective = bound(unbound)
    objective.bank.copy_(torch.nn.functional.normalize(normal(REMEMBERED, EMBEDDING, seed=7), dim=-1))
    objective.seen[:-1] = True
    objective.labels[:-1] = torch.tensor([0, 1, 2, 0, 1, 0, 0, 1])
    objective.centres.copy_(normal(CLUSTERS, EMBEDDING, seed=8))
    return objective


CANDIDATES = [("batch", None), ("batch-negatives", None), ("given", "shared"), ("given", "own")]
BOTH_KINDS = [("batch-and-given", "shared"), ("batch-and-given", "own")]
ANCHORS = ("augmented", "original", "symmetric")
PAIRS = ("original", "augmented")

OBJECTIVES: list[ObjectiveMember] = [
    *(
        ObjectiveMember(
            f"infonce-{candidates}-{negatives}-{anchor}-{energy.name}",
            lambda e=energy, c=candidates, a=anchor: InfoNCE(e.build(), candidates=c, anchor=a),
            negatives=negatives,
        )
        for (candidates, negatives), anchor, energy in itertools.product(CANDIDATES, ANCHORS, ENERGIES)
    ),
    *(
        ObjectiveMember(
            f"infonce-{candidates}-{negatives}-{anchor}-views-{energy.name}",
            lambda e=energy, c=candidates, a=anchor: InfoNCE(e.build(), candidates=c, anchor=a, pair="augmented"),
            negatives=negatives,
        )
        for (candidates, negatives), anchor, energy in itertools.product(CANDIDATES, ANCHORS, SOME_ENERGIES)
    ),
    *(
        ObjectiveMember(
            f"infonce-{candidates}-{negatives}-{anchor}-{energy.name}",
            lambda e=energy, c=candidates, a=anchor: InfoNCE(e.build(), candidates=c, anchor=a),
            negatives=negatives,
        )
        for (candidates, negatives), anchor, energy in itertools.product(BOTH_KINDS, ANCHORS, SOME_ENERGIES)
    ),
    *(
        ObjectiveMember(f"infonce-originals-{energy.name}", lambda e=energy: InfoNCE(e.build(), candidates="originals"))
        for energy in SYMMETRIC
    ),
    ObjectiveMember("aninfonce", lambda: _aninfonce(CONCENTRATIONS)),
    ObjectiveMember("aninfonce-plane", lambda: InfoNCE(Anisotropic(), candidates="originals")),
    ObjectiveMember("aninfonce-hard", lambda: _aninfonce(CONCENTRATIONS, candidates="given"), negatives="own"),
    ObjectiveMember("ensemble", lambda: Ensemble([_aninfonce(0.5), _aninfonce(3.0)])),
    *(
        ObjectiveMember(f"align-uniform-{alpha}-{p}", lambda a=alpha, p=p: AlignUniform(a, p))
        for alpha, p in ((0.5, 1.0), (0.9, 1.0), (0.5, 2.0), (0.3, 3.0))
    ),
    *(
        ObjectiveMember(f"align-uniform-others-{alpha}-{p}", lambda a=alpha, p=p: AlignUniform(a, p, itself=False))
        for alpha, p in ((0.5, 1.0), (0.9, 2.0))
    ),
    ObjectiveMember("infonce-own-predictor", lambda: InfoNCE(Asymmetric(Cosine(0.5)))),
    ObjectiveMember("infonce-own-encoder", lambda: InfoNCE(Asymmetric(by="encoder"))),
    ObjectiveMember("tricl", TriCL),
    ObjectiveMember("tricl-infonce", lambda: TriCL(contrast="infonce", temperature=0.5)),
    ObjectiveMember("latent-regression", LatentRegression, latents=True),
    *(
        ObjectiveMember(
            f"infonce-two-view-{pair}-{energy.name}",
            lambda e=energy, p=pair: InfoNCE(e.build(), candidates="two-view", pair=p),
        )
        for pair, energy in itertools.product(PAIRS, SYMMETRIC)
    ),
    *(
        ObjectiveMember(f"triplet-{pair}-{energy.name}", lambda e=energy, p=pair: Triplet(e.build(), pair=p))
        for pair, energy in itertools.product(PAIRS, ENERGIES)
    ),
    *(
        ObjectiveMember(
            f"{cls.__name__.lower()}-{pair}-{energy.name}",
            lambda c=cls, e=energy, p=pair: c(e.build(), pair=p),
        )
        for cls, pair, energy in itertools.product((NCE, SNL), PAIRS, ENERGIES)
    ),
    ObjectiveMember("nce-half", lambda: NCE(prior=0.5)),
    ObjectiveMember("nce-rare", lambda: NCE(prior=0.01)),
    ObjectiveMember("nce-plain-bias", lambda: NCE(bias=BiasNetwork(4, batch_norm=False))),
    ObjectiveMember("snl-plain-bias", lambda: SNL(bias=BiasNetwork(4, batch_norm=False))),
    *(ObjectiveMember(f"fisher-{energy.name}", lambda e=energy: Fisher(e.build())) for energy in ENERGIES),
    *(
        ObjectiveMember(f"fisher-step-{energy.name}", lambda e=energy: Fisher(e.build(), step=1e-4))
        for energy in ENERGIES
        if "p-norm-1" not in energy.name  # of a slope that jumps
    ),
    *(ObjectiveMember(f"sliced-fisher-{energy.name}", lambda e=energy: SlicedFisher(e.build())) for energy in ENERGIES),
    ObjectiveMember("sliced-fisher-three", lambda: SlicedFisher(slices=3, step=0.1)),
    ObjectiveMember("sliced-fisher-expanded", lambda: SlicedFisher(slices=2, expanded=True), bound_in_expectation=True),
    *(
        ObjectiveMember(f"chi-squared-{pair}-{energy.name}", lambda e=energy, p=pair: ChiSquared(e.build(), pair=p))
        for pair, energy in itertools.product(PAIRS, ENERGIES)
    ),
    *(
        ObjectiveMember(
            f"jensen-shannon-{pair}-{energy.name}",
            lambda e=energy, p=pair: JensenShannon(e.build(), initial_bias=0.3, pair=p),
        )
        for pair, energy in itertools.product(PAIRS, ENERGIES)
    ),
    *(
        ObjectiveMember(
            f"renyi-{order}-{pair}-{energy.name}",
            lambda e=energy, o=order, p=pair: RenyiInfoNCE(e.build(), order=o, pair=p),
        )
        for order, pair, energy in itertools.product((0.5, 1.0, 2.0), PAIRS, SOME_ENERGIES)
    ),
    ObjectiveMember("triplet-wide", lambda: Triplet(margin=7.5)),
    *(
        ObjectiveMember(
            f"spectral-{radius}-{pair}",
            lambda r=radius, p=pair: Spectral(squared_radius=r, pair=p),
            bound_in_expectation=True,
        )
        for radius, pair in itertools.product((10.0, 1.5), PAIRS)
    ),
    *(
        ObjectiveMember(
            f"simsiam-{pair}-{'stopped' if stop else 'open'}-{head}",
            lambda p=pair, s=stop, h=head: _predicting(SimSiam(stop_gradient=s, pair=p), h),
            stops_gradients=stop,
        )
        for pair, stop, head in itertools.product(PAIRS, (True, False), ("default", "smooth"))
    ),
    *(
        ObjectiveMember(
            f"{cls.__name__.lower()}-{pair}", lambda c=cls, p=pair: c(CLUSTERS, pair=p), stops_gradients=True
        )
        for cls, pair in itertools.product((SwAV, ProtoCPC), PAIRS)
    ),
    ObjectiveMember(
        "swav-prior",
        lambda: SwAV(CLUSTERS, temperature=0.5, epsilon=0.3, iterations=1, prior=[0.5, 0.3, 0.2]),
        stops_gradients=True,
    ),
    ObjectiveMember(
        "protocpc-mild",
        lambda: ProtoCPC(7, temperature=0.5, teacher_temperature=0.5),
        stops_gradients=True,
    ),
    ObjectiveMember("instance", InstanceDiscrimination, memory=True),
    ObjectiveMember("deep-clustering", lambda: _filled(DeepClustering(CLUSTERS)), memory=True),
    *(
        ObjectiveMember(
            f"gedi-{name}",
            lambda o=options: GEDI(CLUSTERS, **CHAINS, **o),
            memory=True,
            stops_gradients="generative" not in options,
            samples="generative" not in options,
        )
        for name, options in {
            "all": {"prior": [0.5, 0.3, 0.2], "magnitude": 0.1},
            "jem": {"invariance": 0.0, "balance": 0.0},
            "no-gen": {"generative": 0.0},
            "no-gen-augmented": {"generative": 0.0, "pair": "augmented"},
            "learnt-prior": {"generative": 0.0, "prior": "learnt"},
        }.items()
    ),
    *(
        ObjectiveMember(
            f"constrained-gedi-{name}",
            lambda o=options: ConstrainedGEDI(NEXT, **CHAINS, **o),
            group=2,
            memory=True,
            stops_gradients="generative" not in options,
            samples="generative" not in options,
        )
        for name, options in {
            "all": {"invariance": 5.0, "prior": [0.5, 0.3, 0.2], "magnitude": 0.1},
            "paper": {"pair": "augmented"},
            "no-gen": {"generative": 0.0},
            "no-gen-augmented": {"generative": 0.0, "invariance": 5.0, "pair": "augmented"},
            "constraint": {"generative": 0.0, "balance": 0.0},
        }.items()
    ),
    *(
        ObjectiveMember(
            f"{name}-{pair}",
            lambda t=temperature, p=pair: MoCo(queue=6, temperature=t, pair=p),
            memory=True,
        )
        for (name, temperature), pair in itertools.product((("moco", 0.07), ("mocov2", 0.2)), PAIRS)
    ),
    *(
        ObjectiveMember(
            f"byol-{pair}-{head}",
            lambda p=pair, h=head: _predicting(BYOL(pair=p), h),
            memory=True,
        )
        for pair, head in itertools.product(PAIRS, ("default", "smooth"))
    ),
    ObjectiveMember("ebclr", lambda: EBCLR(**CHAINS), memory=True, stops_gradients=True, samples=True),
    *(
        ObjectiveMember(name, lambda c=cls, o=options: c(**{"decoder": _decoder(), **o}))
        for name, cls, options in (
            ("vae", VAE, {}),
            ("vae-mirror", VAE, {"decoder": None}),
            ("vae-of-data", VAE, {"of": "data", "likelihood": GaussianLikelihood(0.5)}),
            ("vae-bernoulli", VAE, {"likelihood": BernoulliLikelihood()}),
            ("beta-vae", VAE, {"beta": 3.0}),
            ("cr-vae", CRVAE, {"consistency": 0.5}),
            ("cr-vae-original", CRVAE, {"pair": "original", "beta": 2.0}),
            ("simvae", SimVAE, {"related": 3}),
            ("simvae-means", SimVAE, {"related": 2, "variance": 0.4, "mean_variance": 0.7}),
            ("simvae-alone", SimVAE, {"related": 1, "mean_variance": 0.7}),
        )
    ),
    *(
        ObjectiveMember(f"{cls.__name__.lower()}-{pair}", lambda c=cls, p=pair: c(pair=p))
        for cls, pair in itertools.product((BarlowTwins, VICReg, WMSE, CorInfoMax), PAIRS)
    ),
    ObjectiveMember("barlowtwins-strict", lambda: BarlowTwins(redundancy=0.7)),
    ObjectiveMember("vicreg-own-weights", lambda: VICReg(invariance=2.0, variance=5.0, covariance=3.0, epsilon=0.01)),
    ObjectiveMember("corinfomax-own-weights", lambda: CorInfoMax(invariance=3.0, epsilon=0.1)),
    ObjectiveMember("corinfomax-plane", lambda: CorInfoMax(invariance=2.0, normalise=False)),
]
OBJECTIVES += unlisted("objective", OBJECTIVES, ObjectiveMember)
