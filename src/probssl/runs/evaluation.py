"""What a model learnt, beside what no learning gives: raw features, PCA, and the same encoder untrained."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from probssl.data import world_of
from probssl.encoders import Indicators, as_floats, encode
from probssl.energies import Energy
from probssl.errors import InputError
from probssl.layout import Layout
from probssl.metrics.deaugment import Deaugmentation, DeaugmentationResult
from probssl.metrics.summary import METRICS, Evaluation, Metric, of_codes, of_rows, of_target
from probssl.model import Data, Model, Observations
from probssl.model.model import WHITENED_ROWS
from probssl.objectives.reference import ReferenceLosses, reference_losses
from probssl.pairings import Pairing
from probssl.runs.verdict import Verdict, metric_of, reach, without_targets
from probssl.schema import conform
from probssl.worlds import Conditional

TRAINED = "trained encoder"
UNTRAINED = "untrained encoder"
RAW, RAW_IMAGES = "raw features", "raw pixels"

NO_VARIANCE = 1e-9
"""Share of the largest variance below which a direction counts as empty."""

AT_ONCE = 2**25
"""Numbers that are held in double precision at a time, while a covariance is summed up."""

QUERIES = 512
"""Augmentations that a model is asked to undo."""

CANDIDATES = 20_000
"""Most rows among which the source of an augmentation is looked for."""

REFERENCE_ROWS = 2048
"""Most rows on which a loss is compared with the least possible one."""

Depth = Literal["quick", "full"]

MOST_ROWS: dict[Depth, int] = {"quick": 5000, "full": 50_000}
"""Most rows that a model is judged on, and as many on which its probes are fitted."""

PATIENCE = 4e9
"""Densities of single features that are evaluated at most, in some ten seconds, before fewer queries must do."""


@dataclass(frozen=True)
class Code:
    """One way to represent the rows: a name, the representations, and those of one augmentation of each row.

    There is no partner where nobody knows how rows are related: rows of another source than the model's world.
    `fitting` represents the rows that probes are fitted on, where these are others than are judged.
    """

    name: str
    z: np.ndarray
    partner: np.ndarray | None
    fitting: np.ndarray | None = None


@dataclass(frozen=True)
class Comparison:
    """The metrics of several codes of the same rows, and how they were computed.

    `source` names the data; `loss` is what reference encoders reach; `verdict` is what the metrics come to. Metrics of
    the first target of classes, or of numbers if there are none, go by their names, those of others by name and target:
    `knn_probe:income`.
    """

    source: str
    rows: dict[str, dict[str, float | None]]  # code -> metric -> number
    protocols: dict[str, str]  # metric -> how it was computed, for the trained encoder
    loss: ReferenceLosses | None = None
    deaugmenting: dict[str, DeaugmentationResult] = dataclasses.field(default_factory=dict)  # code -> scores
    judged: str | None = None  # which rows, and which ones probes were fitted on, where these are not all rows
    verdict: Verdict | None = None
    targets: dict[str, str] = dataclasses.field(default_factory=dict)  # name -> "classes" or "numbers"

    @property
    def metrics(self) -> dict[str, tuple[Metric, str]]:
        """Metrics and their titles by key: of targets first, then what needs none."""
        places = {name: place for place, name in enumerate(self.targets)}
        found = {}
        for key in self.protocols:
            metric, target = metric_of(key), key.partition(":")[2]
            if metric is not None and not target and {"labels", "numbers"} & set(metric.needs):
                target = _plain(self.targets)
            if metric is not None:
                title = f"{metric.title}, {target}" if target and len(places) > 1 else metric.title
                found[key] = places.get(target, len(places)), METRICS.index(metric), metric, title
        return {
            key: (metric, title) for key, (*_, metric, title) in sorted(found.items(), key=lambda item: item[1][:2])
        }

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "source": self.source,
            "rows": self.rows,
            "protocols": self.protocols,
            "loss": None if self.loss is None else self.loss.as_dict(),
            "deaugmenting": {name: dataclasses.asdict(result) for name, result in self.deaugmenting.items()},
            **({} if self.judged is None else {"judged": self.judged}),
            **({} if self.verdict is None else {"verdict": self.verdict.as_dict()}),
            "targets": self.targets,
        }

    def _repr_html_(self) -> str:
        from probssl.report.run_page import metrics_table, verdict

        return verdict(self) + metrics_table(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Comparison:
        """The inverse of `as_dict`."""
        loss, deaugmenting = values.get("loss"), conform(values.get("deaugmenting", {}), dict[str, dict])
        read = {
            "loss": None if loss is None else ReferenceLosses.from_dict(conform(loss, dict)),
            "deaugmenting": {name: _scores(stored) for name, stored in deaugmenting.items()},
        }
        return conform({**values, **read}, cls)


def _plain(targets: dict[str, str]) -> str:
    """The target whose metrics go by their own names: the first of classes, or of numbers if there are none."""
    return next((name for name, kind in targets.items() if kind == "classes"), next(iter(targets), ""))


def _suffix(target: str, targets: dict[str, str]) -> str:
    """What ends the keys of the metrics of a target."""
    return "" if target == _plain(targets) else f":{target}"


def _scores(stored: dict[str, Any]) -> DeaugmentationResult:
    """JSON has no infinity: it is stored as null."""
    finite = conform({name: 0.0 if value is None else value for name, value in stored.items()}, DeaugmentationResult)
    return dataclasses.replace(finite, **{name: float("inf") for name, value in stored.items() if value is None})


class _OnLatents(Pairing):
    """z̃ ~ p(· | z): how a world pairs, on its latents, where the density is known."""

    def __init__(self, conditional: Conditional) -> None:
        super().__init__()
        self.conditional = conditional

    def sample(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return self.conditional.sample(x, generator)

    def log_prob(self, x_aug: Tensor, x: Tensor) -> Tensor:
        return self.conditional.log_prob(x_aug, x)

    def score(self, x_aug: Tensor, x: Tensor) -> Tensor:
        raise InputError("a world knows no score")


@dataclass(frozen=True)
class Ground:
    """What a model is judged on: rows, the pairing that relates them, and how a row becomes an encoder's input.

    Rows of a table are inputs themselves. Of a world the rows are latents, where the density of pairs is known, and its
    mixing makes them inputs; that density is the one of observations, but for a factor that depends on x̃ alone.
    """

    rows: Tensor
    pairing: Pairing
    observe: nn.Module

    @classmethod
    def of(cls, model: Model, observed: Observations) -> Ground | None:
        """None where the rows are not those of the world that the model was trained on."""
        world = model.world
        if world is None:
            assert model.pairing is not None
            return cls(as_floats(observed.x), model.pairing, nn.Identity())
        if observed.latents is None or world_of(observed.source) != model.facts.name:
            return None
        z = torch.from_numpy(observed.latents.astype(np.float32))
        if not torch.allclose(world.mixing(z), observed.x, rtol=1e-4, atol=1e-4):
            return None  # the same world through the mixing of another seed
        conditional = world.conditionals[0]
        assert isinstance(conditional, Conditional)
        return cls(z, _OnLatents(conditional), world.mixing)

    def encoder(self, encoder: nn.Module) -> nn.Module:
        """The encoder of rows that goes with an encoder of inputs."""
        return nn.Sequential(self.observe, encoder)


def judged_rows(
    model: Model, data: Data, seed: int, depth: Depth = "quick"
) -> tuple[Observations, Observations | None]:
    """The rows that a model is judged on, and those that probes are fitted on where there are others for it.

    Data with test rows is judged on these, and probes are fitted on the others; data without, such as that of another
    file, is judged on all of its rows, probes on parts of them. At most `MOST_ROWS` of each, which the seed chooses.
    """
    found, most = model.read(data), MOST_ROWS[depth]
    if found.test is None:
        return model.observe(found).some(2 * most, seed), None
    test, train = (model.observe(found, part).some(most, seed) for part in ("test", "train"))
    return test, train


def codes(
    model: Model,
    observed: Observations,
    *,
    seed: int = 0,
    ground: Ground | None = None,
    fitting: Observations | None = None,
) -> Iterator[Code]:
    """The trained encoder, PCA of the model's dimension, raw features and the untrained encoder, on the same inputs."""
    ground = Ground.of(model, observed) if ground is None else ground
    generator = torch.Generator().manual_seed(seed)
    x_aug = None if ground is None else ground.observe(ground.pairing.sample(ground.rows, generator))
    rows = observed.x if fitting is None else fitting.x
    raw, *pca = baselines(rows, [min(model.dim, len(rows), model.facts.features)], model.facts.layout).items()
    encoders = {
        TRAINED: model.encoder,
        **dict(pca),
        **dict([raw]),
        UNTRAINED: model.initial(as_floats(observed.x)).encoder,
    }
    for name, encoder in encoders.items():
        z, partner, fitted = (
            None if inputs is None else encode(encoder, inputs).numpy()
            for inputs in (observed.x, x_aug, None if fitting is None else rows)
        )
        assert z is not None
        yield Code(name, z, partner, fitted)


def baselines(x: Tensor, dims: Sequence[int], layout: Layout | None = None) -> dict[str, nn.Module]:
    """What takes no training, as encoders: the numbers as they are, and PCA of the rows x to each of the dimensions.

    Mixed rows, as `layout` says, are taken as standardised numbers with a 0 in gaps and an indicator, 0 or 1, for every
    level and every gap.
    """
    flat = Flat() if layout is None or layout.plain else Indicators(layout)
    mean, axes = principal_axes(encode(flat, x))
    return {
        RAW_IMAGES if x.ndim == 4 else RAW: flat,
        **{pca_name(dim): nn.Sequential(flat, _projection(mean, axes[:, :dim])) for dim in dims},
    }


def pca_name(dim: int) -> str:
    """What PCA to a dimension is called."""
    return f"PCA to {dim}"


class Flat(nn.Module):
    """Every observation as one row of numbers."""

    def forward(self, x: Tensor) -> Tensor:
        return as_floats(x).flatten(1)


def principal_axes(x: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Mean [d] and eigenvectors of the covariance [d, r] of rows x, by falling variance.

    Directions without variance, as there are with fewer rows than features, are left out: scaled by their rounding they
    would drown the others on other rows.
    """
    flat = Flat()(x)
    mean = flat.numpy().mean(0, dtype=np.float64)
    if len(flat) < flat.shape[1]:  # of which there are fewer than features, inner products of rows tell all
        centred = flat.numpy() - mean
        values, vectors = np.linalg.eigh(centred @ centred.T)
        vectors = centred.T @ (vectors / np.sqrt(np.maximum(values, np.finfo(float).tiny)))
    else:
        parts = (part.numpy() - mean for part in flat.split(max(1, AT_ONCE // flat.shape[1])))
        values, vectors = np.linalg.eigh(sum(part.T @ part for part in parts))
    order = np.argsort(-values)
    return mean, vectors[:, order[: max(1, np.sum(values > NO_VARIANCE * values.max()))]]


def _projection(mean: np.ndarray, axes: np.ndarray) -> nn.Module:
    """(x − mean) · axes as an encoder; axes [d, m]."""
    encoder = nn.Linear(*axes.shape)
    with torch.no_grad():
        encoder.weight.copy_(torch.from_numpy(np.ascontiguousarray(axes.T)))
        encoder.bias.copy_(torch.from_numpy(-mean @ axes))
    return encoder


def evaluate(
    model: Model,
    data: Data,
    *,
    depth: Depth = "quick",
    seed: int = 0,
    announce: Callable[[str], Any] = lambda name: None,
) -> Comparison:
    """Every metric that applies, for the model and for what no learning gives, on the rows of `judged_rows`."""
    if not isinstance(model, Model):
        raise InputError(f"evaluate takes a model, such as run.model, not {type(model).__name__}")
    if seed < 0:
        raise InputError(f"the seed must be a whole number of at least 0, not {seed}")
    observed, fitting = judged_rows(model, data, seed, depth)
    if len(observed) < 2:
        raise InputError(f"{observed.source} has 1 row to judge by, and evaluating needs more")
    found: dict[str, Evaluation] = {}
    ground = Ground.of(model, observed)
    targets = {target.name: "classes" if target.classes else "numbers" for target in observed.targets}
    for code in codes(model, observed, seed=seed, ground=ground, fitting=fitting):
        announce(f"evaluating the {code.name}")
        judging: dict[str, Any] = {"quick": depth == "quick", "seed": seed % 2**32}
        read = of_codes(code.z, partner=code.partner, latents=observed.latents, **judging)
        for place, target in enumerate(observed.targets):
            known = None if fitting is None else fitting.targets[place].values
            fitted_on = None if code.fitting is None or known is None else (code.fitting, known)
            numbers = {"numbers": not target.classes}
            scores = of_target(code.z, target.values, fitted_on=fitted_on, **numbers, **judging)
            if code.name == RAW and model.facts.kind == "table" and depth == "full":
                apart = None if fitting is None or known is None else (fitting.x.numpy(), known)
                coded = model.facts.layout.coded
                scores |= of_rows(
                    observed.x.numpy(), target.values, categorical=coded, fitted_on=apart, seed=seed % 2**32, **numbers
                )
            read |= scores.named(_suffix(target.name, targets))
        found[code.name] = read
    loss = deaugmented = None
    if ground is not None:
        needs = model.objective.needs
        if not needs.index and (ground.pairing.gives_negatives or not needs.negatives):  # which training alone can give
            announce("comparing the loss with the least possible")
            loss = _loss_standing(model, ground, seed)
        if ground.pairing.knows_density:
            announce("undoing augmentations")
            deaugmented = _deaugmenting(model, ground, seed)
    called = {_suffix(name, targets): name if len(targets) > 1 else "" for name in targets}
    trained, *others = found
    return Comparison(
        observed.source,
        {name: code.values for name, code in found.items()},
        {key: protocol for code in reversed(found.values()) for key, protocol in code.protocols.items()},
        loss,
        deaugmented or {},
        _which_rows(observed, fitting),
        reach(
            found,
            trained,
            [name for name in others if name != UNTRAINED],
            called or {"": ""},
            without_targets(found[trained], model.dim, loss),
        ),
        targets,
    )


def _which_rows(judged: Observations, fitting: Observations | None) -> str:
    """Which rows numbers are of."""
    if fitting is None:
        return f"± standard deviation over splits of {len(judged):,} rows"
    return f"{len(judged):,} rows that training never saw, probes fitted on {len(fitting):,} rows that it did see"


def loss_standing(model: Model, data: Data, *, seed: int = 0) -> ReferenceLosses:
    """The loss of a model beside the least possible one on the rows of `data`, or on a sample of 2,048 of them."""
    return _loss_standing(model, _ground(model, data, seed), seed)


def _ground(model: Model, data: Data, seed: int) -> Ground:
    observed, _ = judged_rows(model, data, seed)
    found = Ground.of(model, observed)
    if found is None:
        raise InputError(f"{observed.source} was not drawn from world:{model.facts.name}, which the model is of")
    return found


def _loss_standing(model: Model, ground: Ground, seed: int) -> ReferenceLosses:
    x = ground.rows
    if len(x) > REFERENCE_ROWS:
        x = x[torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))[:REFERENCE_ROWS]]
    size = model.resolved.plan.batch_size
    batches = int(np.clip(PATIENCE / 4 / (min(size, len(x)) * x.numel()), 2, 8))
    return reference_losses(
        model.encoder,
        model.objective,
        ground.pairing,
        x,
        batch_size=size,
        batches=batches,
        seed=seed,
        observe=ground.observe,
    )


def deaugmenting(model: Model, data: Data, *, seed: int = 0) -> dict[str, DeaugmentationResult]:
    """How well the trained and the untrained model find the source of 512 fresh augmentations among the rows.

    On tables so large that this would take long, of fewer, at least 64.
    """
    return _deaugmenting(model, _ground(model, data, seed), seed)


def _deaugmenting(model: Model, ground: Ground, seed: int) -> dict[str, DeaugmentationResult]:
    x, before = ground.rows, model.initial(as_floats(ground.observe(ground.rows[:WHITENED_ROWS])))
    return undo_augmentations(
        {
            TRAINED: (ground.encoder(model.encoder), model.objective.energy),
            UNTRAINED: (ground.encoder(before.encoder), before.objective.energy),
        },
        ground.pairing,
        x,
        queries=int(np.clip(PATIENCE / x[:CANDIDATES].numel(), 64, QUERIES)),
        seed=seed,
    )


@torch.no_grad()
def undo_augmentations(
    models: dict[str, tuple[nn.Module, Energy]],
    pairing: Pairing,
    x: Tensor,
    *,
    queries: int = QUERIES,
    candidates: int | None = CANDIDATES,
    seed: int = 0,
) -> dict[str, DeaugmentationResult]:
    """How well models q(x | x̃) ∝ e^{−δ} undo fresh augmentations of rows of x, beside the exact posterior.

    All models answer the same queries. Blocks keep the memory small: 60,000 candidates take some 100 MB, and
    a few copies of x in double precision.
    """
    chance = torch.Generator().manual_seed(seed)
    if candidates is not None and len(x) > candidates:
        x = x[torch.randperm(len(x), generator=chance)[:candidates]]
    source = torch.randint(len(x), (queries,), generator=chance)
    x_aug = pairing.sample(x[source], chance)
    scores = {name: Deaugmentation() for name in models}
    originals = {name: _embed(encoder, energy.embed, x) for name, (encoder, energy) in models.items()}
    exact_x = x.double()
    for rows in torch.arange(queries).split(64):
        truth = pairing.pairwise_log_prob(x_aug[rows].double(), exact_x).numpy()
        for name, (encoder, energy) in models.items():
            anchors = _embed(encoder, energy.embed_augmented, x_aug[rows])
            logits = torch.cat([energy.logits(some, anchors) for some in originals[name].split(4096)]).mT
            scores[name].update(logits.numpy(), truth, source[rows].numpy())
    return {name: score.result() for name, score in scores.items()}


def _embed(encoder: nn.Module, embed: Callable[[nn.Module, Tensor], Tensor], x: Tensor) -> Tensor:
    """What the energy compares, batch by batch, in evaluation mode."""
    training = encoder.training
    encoder.eval()
    try:
        return torch.cat([embed(encoder, rows) for rows in x.split(8192)])
    finally:
        encoder.train(training)
