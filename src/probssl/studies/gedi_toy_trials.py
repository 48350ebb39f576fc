"""The trainings of `gedi/toy` and `gedi/sensitivity`: points, networks, the printed settings and those that work."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from scipy import special
from torch import Tensor, nn

from probssl.encoders import MLP, Prototypes, WithHead, encode, seeded
from probssl.objectives import GEDI, BarlowTwins, Objective, SwAV, gedi_weights
from probssl.objectives.clustering import ClusteringObjective, invariance, prior_cross_entropy
from probssl.pairings import GaussianNoise
from probssl.samplers import SGLD, ReplayBuffer, UniformStart
from probssl.studies.base import Config, Result
from probssl.theory.clustering import diagnose_clustering
from probssl.training import Fitted, TrainingPlan, fit_many
from probssl.training import Trial as Training
from probssl.training.watch import LEAST_PROBABILITY

DATA = ("moons", "circles")
ROWS = 1000
"""Points to train on, and as many fresh ones to test on; the paper does not say how many."""

DATA_NOISE = 0.05
"""Standard deviation of the points around the moons or circles; the paper does not say."""

PAPER_NOISE = 0.03
"""Standard deviation of the augmentation in the paper, by which all trainings are diagnosed."""

VARIANTS = {
    "JEM": "jem",
    "GEDI no prior": "no prior",
    "GEDI no inv": "no inv",
    "GEDI no gen": "no gen",
    "GEDI": "gedi",
}
"""Methods of Table 2 -> the variant of GEDI that each is."""

TWO_STAGE = "GEDI two stage"
BASELINES = ("BarlowTwins", "SwAV")

EXTENT = {"moons": (-1.6, 2.6, -1.1, 1.6), "circles": (-1.5, 1.5, -1.5, 1.5)}
"""Left, right, bottom and top of the pictures."""
GRID = 64
SAMPLES, SAMPLE_STEPS = 500, 200

SQUARE, CELLS = 4.0, 400
"""Half the side of the square that a density is normalised over, and cells of a side."""


@dataclass(frozen=True)
class Settings:
    """All that a training depends on but its method, data and seed. The defaults are those that work."""

    steps: int = 3000
    batch_size: int = 128
    lr: float = 0.01
    noise: float = 0.07
    generative: float = 1.0
    magnitude: float = 0.01  # of energies
    invariance: float = 50.0
    prior: float = 50.0
    prior_at_first: float = 0.04  # share of its weight that the prior term begins with
    bottleneck: bool = False  # the paper's projection through 2 and 4 units, else 100 units go to the clusters
    gain: float = 5.0  # factor on the first layer, whose hinges are then laid through points; 0: as torch draws them
    sgld_steps: int = 5
    sgld_step: float = 0.001
    chains: int = 2000
    reinitialise: float = 0.01
    anneal: Literal["cosine", "constant", "late"] = "late"
    base_scale: float | None = 3.0


PRINTED = Settings(
    batch_size=400,
    lr=1e-3,
    noise=PAPER_NOISE,
    magnitude=0.0,
    prior=10.0,
    prior_at_first=1.0,
    bottleneck=True,
    gain=0.0,
    sgld_steps=1,
    sgld_step=0.01**2 / 2,
    chains=10_000,
    reinitialise=0.05,
    anneal="constant",
    base_scale=None,
)
"""Table 7 and appendix L, but for the number of steps: 7,000 or 20,000, the paper says both."""

CHANGES: dict[str, dict[str, Any]] = {
    "prior at full weight from the start": {"prior_at_first": 1.0},
    "augmentation noise 0.03": {"noise": PAPER_NOISE},
    "first layer as torch draws it": {"gain": 0.0},
    "learning rate that stays": {"anneal": "constant"},
    "projection through 2 and 4 units": {"bottleneck": True},
    "one SGLD step of 5e-5": {"sgld_steps": 1, "sgld_step": 0.01**2 / 2},
    "one chain in twenty begun anew": {"reinitialise": 0.05},
    "no bound on energies": {"magnitude": 0.0},
}
"""What is put back to what the paper prints, one at a time."""


@functools.lru_cache(maxsize=64)
def points(data: str, seed: int) -> tuple[Tensor, np.ndarray]:
    """Points [n, 2] and which moon or circle each belongs to; noise 0.05, circles of radius 1 and 0.5."""
    from sklearn import datasets

    make = datasets.make_moons if data == "moons" else functools.partial(datasets.make_circles, factor=0.5)
    x, labels = make(ROWS, noise=DATA_NOISE, random_state=seed)
    return torch.from_numpy(x.astype(np.float32)), labels


def true_log_density(data: str, x: np.ndarray) -> np.ndarray:
    """log p(x) of the law that `points` draws from, in nats: [n, 2] → [n].

    Normal noise around points spread evenly over two arcs, so the density is a mean over them.
    """
    angle = np.linspace(0, np.pi if data == "moons" else 2 * np.pi, 500, endpoint=data == "moons")
    arc = np.stack([np.cos(angle), np.sin(angle)], 1)
    arcs = [arc, np.array([1.0, 0.5]) - arc] if data == "moons" else [arc, 0.5 * arc]
    squares = ((x[:, None] - np.concatenate(arcs)) ** 2).sum(-1)
    log_normal = -squares / (2 * DATA_NOISE**2) - np.log(2 * np.pi * DATA_NOISE**2)
    return special.logsumexp(log_normal, axis=1) - np.log(log_normal.shape[1])


def fresh_points(data: str, seed: int) -> tuple[Tensor, np.ndarray]:
    """Fresh points to test a training of this seed on."""
    return points(data, seed + 10_000)


def run_batch(configs: list[Config]) -> Iterator[tuple[Config, Result]]:
    """Train all that can be trained together as one, a second stage after the first, and measure each."""
    learners = [Learner(config) for config in configs]
    for stage in range(2):
        due = [learner for learner in learners if stage < len(learner.stages)]
        for learner, fitted in zip(due, fit_many([learner.training(stage) for learner in due]), strict=True):
            if fitted.interrupted:
                raise KeyboardInterrupt
            learner.remember(fitted)
            if stage + 1 == len(learner.stages):
                yield learner.config, learner.measure()


class Learner:
    """One training of a study: network, objectives of its stages, and what was seen on the way."""

    def __init__(self, config: Config) -> None:
        self.config, self.settings = config, Settings(**config["settings"])
        self.method, self.seed = config["method"], config["seed"]
        self.x, _ = points(config["data"], self.seed)
        begun = self.seed + 1000 * config["start"]
        self.encoder: nn.Module = seeded(begun, self._network)
        self.stages = [part for part in seeded(begun + 1, self._objectives) if isinstance(part, Objective)]
        self.curve: list[dict[str, float]] = []
        self.failure: str | None = None

    def training(self, stage: int) -> Training:
        """What `fit_many` takes for a stage."""
        s, objective = self.settings, self.stages[stage]
        steps = s.steps // len(self.stages)
        ramp = s.prior_at_first != 1 and "prior" in objective.weights
        plan = TrainingPlan(
            steps=steps,
            batch_size=s.batch_size,
            lr=s.lr,
            warmup=0,
            anneal=s.anneal,
            initial_weights={"prior": s.prior_at_first} if ramp else None,
            log_every=max(20, steps // 40),
        )
        return Training(self.encoder, objective, GaussianNoise(s.noise), self.x, plan, self.seed + stage)

    def remember(self, fitted: Fitted) -> None:
        """Keep the terms of the loss, numbered through all stages."""
        before = self.curve[-1]["step"] if self.curve else 0
        kept = ("generative", "invariance", "prior")
        for row in fitted.history:
            if "loss" in row:
                self.curve.append({"step": before + row["step"], **{k: row[k] for k in kept if k in row}})
        self.failure = self.failure or fitted.failure

    def _network(self) -> nn.Module:
        if self.method in BASELINES:
            head = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))
            return WithHead(MLP.of([2, 100, 100, 2], batch_norm=True), head)
        if self.settings.bottleneck:
            return nn.Sequential(*MLP.of([2, 100, 100, 2, 4]), nn.ReLU())
        network = nn.Sequential(*MLP.of([2, 100, 100]), nn.ReLU())
        if self.settings.gain:
            lay_hinges(network[0], self.x, self.settings.gain)  # type: ignore[arg-type]
        return network

    def _objectives(self) -> nn.ModuleList:
        """The objectives of the stages, which share centres and chains."""
        s = self.settings
        if self.method in BASELINES:
            return nn.ModuleList([BarlowTwins() if self.method == "BarlowTwins" else SwAV(2).bind(dim=2)])
        dim = 4 if s.bottleneck else 100
        chains = ReplayBuffer(UniformStart.around(self.x, 0.2), s.chains, s.reinitialise)
        head = Prototypes(dim, 2)

        def objective(variant: str) -> GEDI:
            weights: dict[str, Any] = gedi_weights(
                variant, generative=s.generative, invariance=s.invariance, balance=s.prior
            )
            sampler = SGLD(steps=s.sgld_steps, step_size=s.sgld_step)
            bound = s.magnitude if weights["generative"] else 0.0
            made = GEDI(2, magnitude=bound, base_scale=s.base_scale, sampler=sampler, chains=1, **weights)
            made = made.bind(dim=dim, shape=(2,))
            made.head, made.buffer = head, chains if weights["generative"] else None
            return made

        variants = ("jem", "no gen") if self.method == TWO_STAGE else (VARIANTS[self.method],)
        return nn.ModuleList([objective(variant) for variant in variants])

    # What came of it

    @torch.no_grad()
    def measure(self) -> Result:
        """NMI on fresh points, the terms of the loss there, the diagnosis of the triad, and a picture if asked for."""
        from sklearn.metrics import normalized_mutual_info_score

        self.encoder.eval()
        x, labels = fresh_points(self.config["data"], self.seed)
        found: Result = {"curve": self.curve, "failure": self.failure}
        if self.failure is not None:  # it has separated nothing
            return {**found, "NMI": 0.0}
        clusters = self._clusters(x)
        found["NMI"] = float(normalized_mutual_info_score(labels, clusters))
        if self.method != "BarlowTwins":
            found |= self._diagnosis(x)
            found["clustering_loss"] = self._clustering_loss()
        if self._density is not None:
            found["log likelihood"] = self._log_likelihood(x)
        if self.config["picture"]:
            found["picture"] = self._picture(x, clusters)
        return found

    @property
    def _objective(self) -> ClusteringObjective:
        last = self.stages[-1]
        assert isinstance(last, ClusteringObjective)
        return last

    @property
    def _density(self) -> GEDI | None:
        """The objective whose density was trained, if any was: of two stages the first."""
        first = self.stages[0]
        return first if isinstance(first, GEDI) and first.buffer is not None else None

    def _log_likelihood(self, x: Tensor) -> float:
        """Mean log p(x) in nats, the density normalised over a square, cell by cell: two features can be."""
        assert self._density is not None
        middles = (torch.arange(CELLS) + 0.5) * (2 * SQUARE / CELLS) - SQUARE
        grid = torch.stack(torch.meshgrid(middles, middles, indexing="xy"), -1).reshape(-1, 2)
        cell = 2 * np.log(2 * SQUARE / CELLS)
        log_normaliser = self._density.log_density(self.encoder, grid).double().logsumexp(0) + cell
        return float((self._density.log_density(self.encoder, x).double() - log_normaliser).mean())

    def _probabilities(self, x: Tensor) -> Tensor:
        return self._objective.log_probabilities(self.encoder, x).exp()

    def _clusters(self, x: Tensor) -> np.ndarray:
        """The likelier cluster of each point; of Barlow Twins, which has none, two-means on its representation."""
        if self.method != "BarlowTwins":
            return self._probabilities(x).argmax(1).numpy()
        from sklearn.cluster import KMeans

        return KMeans(2, n_init=10, random_state=0).fit_predict(encode(self.encoder, x).numpy())

    def _diagnosis(self, x: Tensor) -> Result:
        noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(self.seed)) * PAPER_NOISE
        logs = (self._objective.log_probabilities(self.encoder, rows).double() for rows in (x, x + noise))
        p, q = (log.softmax(1).clamp_min(LEAST_PROBABILITY).numpy() for log in logs)
        seen = diagnose_clustering(p, q)
        return {**dataclasses.asdict(seen), "prior_gap": seen.prior_gap, "failures": sorted(seen.failures)}

    def _clustering_loss(self) -> float:
        """w_i · invariance + w_p · prior on the points trained on, at least w_p ln 2: by it a start is chosen."""
        s, noise = self.settings, torch.randn(self.x.shape, generator=torch.Generator().manual_seed(self.seed))
        log_p, log_q = (self._objective.log_probabilities(self.encoder, x) for x in (self.x, self.x + s.noise * noise))
        balance = prior_cross_entropy(torch.full((2,), 0.5), log_p)
        return float(s.invariance * invariance(log_p, log_q) + s.prior * balance)

    def _picture(self, x: Tensor, clusters: np.ndarray) -> Result:
        """Predictions and log-density on a grid, clusters of the test points, and samples: all that a panel shows."""
        left, right, bottom, top = EXTENT[self.config["data"]]
        across, up = torch.linspace(left, right, GRID), torch.linspace(bottom, top, GRID)
        grid = torch.stack(torch.meshgrid(across, up, indexing="xy"), -1).reshape(-1, 2)
        found: Result = {"clusters": clusters, "prediction": [], "density": [], "samples": []}
        if self.method == "BarlowTwins":
            return found
        found["prediction"] = np.round(self._probabilities(grid)[:, 1].numpy(), 3)
        density = (self._density or self._objective).log_density(self.encoder, grid)
        found["density"] = np.round((density - density.max()).clamp_min(-20).numpy(), 2)
        if self._density is not None:
            chance = torch.Generator().manual_seed(self.seed)
            found["samples"] = np.round(self._density.generate(self.encoder, SAMPLES, SAMPLE_STEPS, chance).numpy(), 3)
        return found


@torch.no_grad()
def lay_hinges(layer: nn.Linear, x: Tensor, gain: float) -> None:
    """Weights times `gain`, and biases so that the unit's hinge, wᵀx + b = 0, passes through a point drawn from x.

    A network whose hinges all lie near 0, where torch puts them, is nearly linear on each side of it.
    """
    layer.weight.mul_(gain)
    through = x[torch.randint(len(x), (layer.out_features,))]
    assert layer.bias is not None
    layer.bias.copy_(-(layer.weight * through).sum(1))
