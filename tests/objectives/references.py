"""Slow and obvious: every formula as it is published, with loops over Python numbers, to compare the library with."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import singledispatch
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from probssl.encoders import Prototypes
from probssl.energies import Anisotropic, Asymmetric, Cosine, Dot, Energy, Euclidean, PNorm, Student
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
    ChiSquared,
    ClusteringObjective,
    ConstrainedGEDI,
    CorInfoMax,
    DebiasedInfoNCE,
    DeepClustering,
    Ensemble,
    Fisher,
    GenerativeObjective,
    InfoNCE,
    InstanceDiscrimination,
    JensenShannon,
    LatentRegression,
    MoCo,
    MomentumObjective,
    Objective,
    PairObjective,
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
from probssl.pairings import Views

Vector = Sequence[float]


# --- energies ---------------------------------------------------------------------------------------------------------


def dot(a: Vector, b: Vector) -> float:
    return math.fsum(p * q for p, q in zip(a, b, strict=True))


def cosine(a: Vector, b: Vector) -> float:
    return dot(a, b) / (math.sqrt(dot(a, a)) * math.sqrt(dot(b, b)))


@singledispatch
def delta(energy: Energy, a: Vector, b: Vector) -> float:
    """δ(a, b) of two embeddings."""
    raise NotImplementedError(f"write the formula of {type(energy).__name__} in references.py")


@delta.register
def _(energy: Cosine, a: Vector, b: Vector) -> float:
    return (1 - cosine(a, b)) / energy.temperature


@delta.register
def _(energy: Euclidean, a: Vector, b: Vector) -> float:
    return 0.5 * math.dist(a, b) ** 2


@delta.register
def _(energy: Student, a: Vector, b: Vector) -> float:
    return (energy.degrees + 1) / 2 * math.log(1 + math.dist(a, b) ** 2 / energy.degrees)


@delta.register
def _(energy: PNorm, a: Vector, b: Vector) -> float:
    return math.fsum(abs(p - q) ** energy.p for p, q in zip(a, b, strict=True))


@delta.register
def _(energy: Dot, a: Vector, b: Vector) -> float:
    return -dot(a, b) / energy.temperature


@delta.register
def _(energy: Anisotropic, a: Vector, b: Vector) -> float:
    if energy.normalise:
        a, b = ([v / math.sqrt(dot(z, z)) for v in z] for z in (a, b))
    concentrations = [math.log1p(math.exp(raw)) for raw in energy.raw_concentration.tolist()]
    return 0.5 * math.fsum(c * (p - q) ** 2 for c, p, q in zip(concentrations, a, b, strict=True))


@delta.register
def _(energy: Asymmetric, a: Vector, b: Vector) -> float:
    return delta(energy.base, a, b)


# --- pairings: a conditional as a list of (weight, mean, covariance) --------------------------------------------------

GaussianComponents = list[tuple[float, np.ndarray, np.ndarray]]


def linear_components(
    maps: Any, weights: Any, covariance: Any, mean: Any = (0.0, 0.0)
) -> Callable[[np.ndarray], GaussianComponents]:
    """x̃ = A_k x + N(μ, Σ), k drawn by weight; a number for Σ is a variance."""
    maps, weights, mean = (np.asarray(value, dtype=float) for value in (maps, weights, mean))
    covariance = np.asarray(covariance, dtype=float)
    if covariance.ndim == 0:
        covariance = covariance * np.eye(maps.shape[-1])
    return lambda x: [(w, a @ x + mean, covariance) for w, a in zip(weights / weights.sum(), maps, strict=True)]


def mask_components(keep: Any, noise: Any) -> Callable[[np.ndarray], GaussianComponents]:
    """x̃ = α ∘ x + N(0, σ²): one component for every mask."""
    keep, noise = np.asarray(keep, dtype=float), np.asarray(noise, dtype=float)

    def components(x: np.ndarray) -> GaussianComponents:
        found = []
        for mask in itertools.product((0, 1), repeat=len(x)):
            kept = np.asarray(mask)
            weight = float(np.prod(np.where(kept == 1, keep, 1 - keep)))
            if weight > 0:
                found.append((weight, kept * x, np.diag(noise**2)))
        return found

    return components


def column_components(rows: Any, keep: Any, noise: Any) -> Callable[[np.ndarray], GaussianComponents]:
    """Every x̃_k is x_k or, with probability 1 − ρ, that of another row, plus N(0, σ²)."""
    rows, keep, noise = (np.asarray(value, dtype=float) for value in (rows, keep, noise))

    def components(x: np.ndarray) -> GaussianComponents:
        found = []
        for choice in itertools.product(range(len(rows) + 1), repeat=len(x)):
            values = [([*column, own])[place] for place, column, own in zip(choice, rows.T, x, strict=True)]
            kept = np.equal(choice, len(rows))
            weight = float(np.prod(np.where(kept, keep, (1 - keep) / len(rows))))
            if weight > 0:
                found.append((weight, np.array(values), np.diag(noise**2)))
        return found

    return components


def mixture_log_prob(components: GaussianComponents, x_aug: np.ndarray) -> float:
    logs = []
    for weight, mean, covariance in components:
        residual = x_aug - mean
        quadratic = float(residual @ np.linalg.solve(covariance, residual))
        normaliser = len(mean) * math.log(2 * math.pi) + math.log(np.linalg.det(covariance))
        logs.append(math.log(weight) - 0.5 * quadratic - 0.5 * normaliser)
    return log_sum_exp(logs)


def mixture_moments(components: GaussianComponents) -> tuple[np.ndarray, np.ndarray]:
    """Exact mean and covariance."""
    mean = np.sum([w * m for w, m, _ in components], axis=0)
    second = np.sum([w * (c + np.outer(m, m)) for w, m, c in components], axis=0)
    return mean, second - np.outer(mean, mean)


# --- objectives -------------------------------------------------------------------------------------------------------


def log_sum_exp(values: Sequence[float]) -> float:
    top = max(values)
    return top + math.log(math.fsum(math.exp(value - top) for value in values))


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def log_one_plus_exp(value: float) -> float:
    return max(value, 0) + math.log1p(math.exp(-abs(value)))


def rows(embed: Callable[[nn.Module, Tensor], Tensor], encoder: nn.Module, x: Tensor) -> list[list[float]]:
    """Embeddings of the rows of x, one at a time."""
    with torch.no_grad():
        return [embed(encoder, row.unsqueeze(0))[0].tolist() for row in x]


def pair_rows(objective: PairObjective, encoder: nn.Module, views: Views) -> tuple[list[list[float]], ...]:
    one, two = (views.x, views.augmented[0]) if objective.pair == "original" else views.augmented[:2]
    energy = objective.energy
    return rows(energy.embed, encoder, one), rows(energy.embed_augmented, encoder, two)


def table(energy: Energy, first: list[list[float]], second: list[list[float]]) -> list[list[float]]:
    return [[delta(energy, a, b) for b in second] for a in first]


@singledispatch
def loss(objective: Objective, encoder: nn.Module, views: Views) -> dict[str, float]:
    """The terms of an objective, by the formula of its docstring."""
    raise NotImplementedError(f"write the formula of {type(objective).__name__} in references.py")


@loss.register
def _(objective: InfoNCE, encoder: nn.Module, views: Views) -> dict[str, float]:
    energy = objective.energy
    first, second = pair_rows(objective, encoder, views)
    n = len(first)
    positives = [delta(energy, first[i], second[i]) for i in range(n)]
    if objective.candidates == "two-view":
        both = first + second
        sums = []
        for i in range(2 * n):
            sums.append(log_sum_exp([-delta(energy, both[i], both[j]) for j in range(2 * n) if j != i]))
        return {"alignment": mean(positives), "log_normaliser": mean(sums)}
    of_augmented, of_original = [], []  # log-sums with x̃_i, and with x_i, as the anchor
    for i in range(n):
        if objective.candidates in ("given", "batch-and-given"):
            assert views.negatives is not None
            own = views.negatives if views.negatives.ndim == views.x.ndim else views.negatives[i]
            kept = [i] if objective.candidates == "given" else list(range(n))
            originals = [*(first[j] for j in kept), *rows(energy.embed, encoder, own)]
            augmented = [*(second[j] for j in kept), *rows(energy.embed_augmented, encoder, own)]
        elif objective.candidates == "originals":
            augmented = [second[i], *(first[j] for j in range(n) if j != i)]
            originals = [first[i]]  # nobody asks
        else:
            kept = [j for j in range(n) if objective.candidates == "batch" or j != i]
            originals, augmented = [first[j] for j in kept], [second[j] for j in kept]
        scale = math.log(len(originals)) if objective.candidates == "batch-negatives" else 0.0
        of_augmented.append(log_sum_exp([-delta(energy, c, second[i]) for c in originals]) - scale)
        of_original.append(log_sum_exp([-delta(energy, first[i], c) for c in augmented]) - scale)
    sums = {
        "augmented": mean(of_augmented),
        "original": mean(of_original),
        "symmetric": 0.5 * (mean(of_augmented) + mean(of_original)),
    }
    return {"alignment": mean(positives), "log_normaliser": sums[objective.anchor]}


def biases(objective: NCE | SNL, encoder: nn.Module, views: Views) -> list[float]:
    two = views.augmented[0 if objective.pair == "original" else 1]
    with torch.no_grad():
        return objective.bias(objective.energy.embed_augmented(encoder, two)).tolist()


@loss.register
def _(objective: NCE, encoder: nn.Module, views: Views) -> dict[str, float]:
    energies = table(objective.energy, *pair_rows(objective, encoder, views))
    bias = biases(objective, encoder, views)
    n = len(bias)
    prior = 1 / n if objective.prior is None else objective.prior
    positive, negative = [], []
    for i in range(n):
        for j in range(n):
            logit = math.log(prior) - math.log(1 - prior) - energies[j][i] - bias[i]
            if i == j:
                positive.append(log_one_plus_exp(-logit))
            else:
                negative.append(log_one_plus_exp(logit))
    return {"positive": prior * mean(positive), "negative": (1 - prior) * mean(negative)}


@loss.register
def _(objective: SNL, encoder: nn.Module, views: Views) -> dict[str, float]:
    energies = table(objective.energy, *pair_rows(objective, encoder, views))
    bias = biases(objective, encoder, views)
    n = len(bias)
    weights = []
    for i in range(n):
        for j in range(n):
            if i != j:
                exponent = -energies[j][i] - bias[i]
                weights.append(math.exp(exponent) if exponent <= 30 else math.exp(30) * (exponent - 29))
    return {
        "alignment": mean([energies[i][i] for i in range(n)]),
        "bias": mean(bias),
        "normaliser": mean(weights) - 1,
    }


@loss.register
def _(objective: Triplet, encoder: nn.Module, views: Views) -> dict[str, float]:
    energies = table(objective.energy, *pair_rows(objective, encoder, views))
    hinges = []
    for i, row in enumerate(energies):
        for j, energy in enumerate(row):
            if i != j:
                hinges.append(max(0.0, row[i] - energy + objective.margin))
    return {"triplet": mean(hinges)}


@loss.register
def _(objective: Spectral, encoder: nn.Module, views: Views) -> dict[str, float]:
    first, second = pair_rows(objective, encoder, views)
    radius = math.sqrt(objective.squared_radius)
    first, second = ([[radius * v / math.sqrt(dot(z, z)) for v in z] for z in side] for side in (first, second))
    n = len(first)
    return {
        "alignment": -2 * mean([dot(first[i], second[i]) for i in range(n)]),
        "uniformity": mean([dot(first[i], second[j]) ** 2 for i in range(n) for j in range(n) if i != j]),
    }


@loss.register
def _(objective: TriCL, encoder: nn.Module, views: Views) -> dict[str, float]:
    first, second = pair_rows(objective, encoder, views)
    weights = objective.importance.tolist()
    n, m = len(first), len(weights)
    size = 1.0
    if objective.contrast == "infonce":
        first, second = ([[v / math.sqrt(dot(z, z)) for v in z] for z in side] for side in (first, second))
        size = math.sqrt(m)

    def weighted(a: Vector, b: Vector) -> float:
        return sum(w * u * v for w, u, v in zip(weights, a, b, strict=True))

    decorrelation = 0.0
    for j, k in itertools.product(range(m), range(m)):
        moment = mean([0.5 * size**2 * (z[j] * z[k] + y[j] * y[k]) for z, y in zip(first, second, strict=True)])
        decorrelation += (moment - (j == k)) ** 2
    if objective.contrast == "spectral":
        return {
            "alignment": -2 * mean([weighted(first[i], second[i]) for i in range(n)]),
            "uniformity": mean([weighted(first[i], second[j]) ** 2 for i in range(n) for j in range(n) if i != j]),
            "decorrelation": decorrelation,
        }
    tau = objective.energy.temperature
    sums = [
        0.5 * log_sum_exp([weighted(first[i], second[j]) / tau for j in range(n)])
        + 0.5 * log_sum_exp([weighted(first[j], second[i]) / tau for j in range(n)])
        for i in range(n)
    ]
    alignment = -mean([weighted(first[i], second[i]) / tau for i in range(n)])
    return {"alignment": alignment, "log_normaliser": mean(sums), "decorrelation": decorrelation}


@loss.register
def _(objective: AlignUniform, encoder: nn.Module, views: Views) -> dict[str, float]:
    first, second = pair_rows(objective, encoder, views)
    n, energy, alpha = len(first), objective.energy, objective.alpha
    apart = [
        math.log(mean([math.exp(-delta(energy, first[i], first[j])) for j in range(n) if objective.itself or j != i]))
        for i in range(n)
    ]
    together = [delta(energy, first[i], second[i]) for i in range(n)]
    return {"alignment": (1 - alpha) * mean(together), "uniformity": alpha * mean(apart)}


@loss.register
def _(objective: Ensemble, encoder: nn.Module, views: Views) -> dict[str, float]:
    found = {}
    for number, part in enumerate(objective.objectives):
        own = Views(views.x, views.augmented[number : number + 1], negatives=views.negatives)
        found |= {f"{name}_{number + 1}": value for name, value in loss(part, encoder, own).items()}
    return found


@loss.register
def _(objective: LatentRegression, encoder: nn.Module, views: Views) -> dict[str, float]:
    found = rows(objective.energy.embed, encoder, views.x)
    assert views.latents is not None
    truth = views.latents.tolist()
    errors = [sum((u - v) ** 2 for u, v in zip(a, b, strict=True)) for a, b in zip(found, truth, strict=True)]
    return {"error": mean(errors)}


@loss.register
def _(objective: SimSiam, encoder: nn.Module, views: Views) -> dict[str, float]:
    first, second = pair_rows(objective, encoder, views)
    with torch.no_grad():
        predicted = [objective.predictor(torch.tensor(z, dtype=torch.float64)).tolist() for z in (first, second)]
    n = len(first)
    return {
        "similarity": mean(
            [-0.5 * (cosine(predicted[0][i], second[i]) + cosine(predicted[1][i], first[i])) for i in range(n)]
        )
    }


def _taught(objective: MomentumObjective, encoder: nn.Module, views: Views) -> tuple[list, list]:
    """Embeddings of both sides by the encoder, and by the teacher."""
    sides = (views.augmented[0], views.augmented[1]) if objective.pair == "augmented" else (views.x, views.augmented[0])
    networks = (encoder, objective.teacher)
    by_encoder, by_teacher = ([rows(objective.energy.embed, one, side) for side in sides] for one in networks)
    return by_encoder, by_teacher


@loss.register
def _(objective: MoCo, encoder: nn.Module, views: Views) -> dict[str, float]:
    (first, _), (_, keys) = _taught(objective, encoder, views)
    positives = [delta(objective.energy, z, k) for z, k in zip(first, keys, strict=True)]
    sums = []
    for z, positive in zip(first, positives, strict=True):
        others = [-delta(objective.energy, z, q) for q in objective.keys.tolist()]
        sums.append(log_sum_exp([-positive, *others]))
    return {"alignment": mean(positives), "log_normaliser": mean(sums)}


@loss.register
def _(objective: BYOL, encoder: nn.Module, views: Views) -> dict[str, float]:
    found, targets = _taught(objective, encoder, views)
    with torch.no_grad():
        predicted = [objective.predictor(torch.tensor(z, dtype=torch.float64)).tolist() for z in found]
    pairs = [(predicted[0], targets[1]), (predicted[1], targets[0])]
    return {"similarity": sum(mean([1 - cosine(a, b) for a, b in zip(p, t, strict=True)]) for p, t in pairs)}


@loss.register
def _(objective: Fisher, encoder: nn.Module, views: Views) -> dict[str, float]:
    energy, step = objective.energy, 1e-3
    second = rows(energy.embed_augmented, encoder, views.augmented[0])
    assert views.score is not None

    def at(i: int, k: int, shift: float) -> float:
        moved = views.x[i].clone()
        moved[k] += shift
        return delta(energy, rows(energy.embed, encoder, moved.unsqueeze(0))[0], second[i])

    norms = []
    for i in range(len(views.x)):
        squares = []
        for k in range(views.x.shape[1]):
            near = (at(i, k, step) - at(i, k, -step)) / (2 * step)
            far = (at(i, k, 2 * step) - at(i, k, -2 * step)) / (4 * step)
            slope = (4 * near - far) / 3  # central differences, fourth order
            squares.append((float(views.score[0, i, k]) + slope) ** 2)
        norms.append(math.fsum(squares))
    return {"fisher": mean(norms)}


@loss.register
def _(objective: SlicedFisher, encoder: nn.Module, views: Views) -> dict[str, float]:
    energy, h = objective.energy, objective.step
    second = rows(energy.embed_augmented, encoder, views.augmented[0])
    assert views.score is not None
    assert views.directions is not None
    score = views.score[0]

    def slope(i: int, v: Tensor, h: float) -> float:
        ahead, behind = (
            delta(energy, rows(energy.embed, encoder, (views.x[i] + sign * h * v).unsqueeze(0))[0], second[i])
            for sign in (1, -1)
        )
        return (ahead - behind) / (2 * h)

    squares = []
    for v in views.directions[: objective.slices]:
        for i in range(len(views.x)):
            along = 0.0 if objective.expanded else dot(v[i].tolist(), score[i].tolist())
            squares.append((along + slope(i, v[i], h)) ** 2)
    if not objective.expanded:
        return {"fisher": mean(squares)}
    rest = []
    for i in range(len(views.x)):
        length = math.fsum(value**2 for value in score[i].tolist())
        shorter = h / math.sqrt(length / len(score[i]))  # a step of h a feature
        rest.append(length + 2 * slope(i, score[i], shorter))
    return {"fisher": mean(squares) + mean(rest)}


@loss.register
def _(objective: JensenShannon, encoder: nn.Module, views: Views) -> dict[str, float]:
    energies = table(objective.energy, *pair_rows(objective, encoder, views))
    n, b = len(energies), objective.bias.item()
    return {
        "positive": mean([log_one_plus_exp(energies[i][i] + b) for i in range(n)]),
        "negative": mean([log_one_plus_exp(-energies[j][i] - b) for i in range(n) for j in range(n) if i != j]),
    }


@loss.register
def _(objective: ChiSquared, encoder: nn.Module, views: Views) -> dict[str, float]:
    energies = table(objective.energy, *pair_rows(objective, encoder, views))
    n = len(energies)
    ratio = [
        [n * math.exp(-energies[j][i] - log_sum_exp([-energies[k][i] for k in range(n)])) for i in range(n)]
        for j in range(n)
    ]
    return {
        "alignment": -2 * mean([ratio[i][i] for i in range(n)]),
        "uniformity": mean([value**2 for row in ratio for value in row]),
    }


@loss.register
def _(objective: DebiasedInfoNCE, encoder: nn.Module, views: Views) -> dict[str, float]:
    energies = table(objective.energy, *pair_rows(objective, encoder, views))
    n, share, log_normalisers = len(energies), objective.share, []
    for i in range(n):
        likelihoods = [math.exp(-energies[j][i]) for j in range(n)]
        others = mean([likelihoods[j] for j in range(n) if j != i])
        corrected = max((others - share * likelihoods[i]) / (1 - share), min(likelihoods))
        log_normalisers.append(math.log(likelihoods[i] + (n - 1) * corrected))
    return {"alignment": mean([energies[i][i] for i in range(n)]), "log_normaliser": mean(log_normalisers)}


@loss.register
def _(objective: RenyiInfoNCE, encoder: nn.Module, views: Views) -> dict[str, float]:
    energies = table(objective.energy, *pair_rows(objective, encoder, views))
    n, order = len(energies), objective.order
    log_ratio = [
        [math.log(n) - energies[j][i] - log_sum_exp([-energies[k][i] for k in range(n)]) for i in range(n)]
        for j in range(n)
    ]
    if order == 1:
        return {"related": -mean([log_ratio[i][i] for i in range(n)]), "all": 0.0}
    related = log_sum_exp([(order - 1) * log_ratio[i][i] for i in range(n)]) - math.log(n)
    everything = log_sum_exp([order * value for row in log_ratio for value in row]) - 2 * math.log(n)
    return {"related": -related / (order - 1), "all": everything / order}


# --- clustering -------------------------------------------------------------------------------------------------------


def log_softmax(values: Vector) -> list[float]:
    total = log_sum_exp(values)
    return [value - total for value in values]


def scores(head: Prototypes, z: Vector) -> list[float]:
    """U_yᵀz, on the unit sphere where the head puts them there; the temperature is left out."""
    return [cosine(centre, z) if head.normalise else dot(centre, z) for centre in head.weight.tolist()]


def pair_scores(objective: ClusteringObjective, encoder: nn.Module, views: Views) -> list[list[list[float]]]:
    return [[scores(objective.head, z) for z in side] for side in pair_rows(objective, encoder, views)]


def codes(given: list[list[float]], epsilon: float, iterations: int, prior: Vector) -> list[list[float]]:
    """Sinkhorn-Knopp on the numbers themselves: scale columns to n·prior, then rows to 1."""
    n, c = len(given), len(prior)
    q = [[math.exp(score / epsilon) for score in row] for row in given]
    for _ in range(iterations):
        columns = [math.fsum(q[i][y] for i in range(n)) for y in range(c)]
        q = [[n * prior[y] * q[i][y] / columns[y] for y in range(c)] for i in range(n)]
        q = [[value / math.fsum(row) for value in row] for row in q]
    return q


@loss.register
def _(objective: SwAV, encoder: nn.Module, views: Views) -> dict[str, float]:
    sides = pair_scores(objective, encoder, views)
    of_sides = [codes(side, objective.epsilon, objective.iterations, objective.prior.tolist()) for side in sides]
    n, tau = len(sides[0]), objective.head.temperature
    losses = []
    for code, side in ((of_sides[1], sides[0]), (of_sides[0], sides[1])):
        for i in range(n):
            losses.append(-dot(code[i], log_softmax([score / tau for score in side[i]])))
    return {"swapped": mean(losses)}


@loss.register
def _(objective: ProtoCPC, encoder: nn.Module, views: Views) -> dict[str, float]:
    sides = pair_scores(objective, encoder, views)
    n, tau, tau_of_teacher = len(sides[0]), objective.head.temperature, objective.teacher_temperature
    alignments, normalisers = [], []
    for teacher, student in (sides, sides[::-1]):
        p = [[math.exp(v) for v in log_softmax([s / tau_of_teacher for s in row])] for row in teacher]
        shares = [mean([row[y] for row in p]) for y in range(objective.clusters)]
        for i in range(n):
            logits = [score / tau for score in student[i]]
            alignments.append(-dot(p[i], logits))
            normalisers.append(math.log(math.fsum(q * math.exp(v) for q, v in zip(shares, logits, strict=True))))
    return {"alignment": mean(alignments), "log_normaliser": mean(normalisers)}


@loss.register
def _(objective: InstanceDiscrimination, encoder: nn.Module, views: Views) -> dict[str, float]:
    found = rows(objective.energy.embed, encoder, views.augmented[0])
    assert views.index is not None
    energies = table(objective.energy, found, objective.bank.tolist())
    return {
        "alignment": mean([energies[i][row] for i, row in enumerate(views.index.tolist())]),
        "log_normaliser": mean([log_sum_exp([-energy for energy in row]) for row in energies]),
    }


@loss.register
def _(objective: DeepClustering, encoder: nn.Module, views: Views) -> dict[str, float]:
    originals, found = (rows(objective.energy.embed, encoder, x) for x in (views.x, views.augmented[0]))
    assert views.index is not None
    labels, centres, c = objective.labels.tolist(), objective.centres.tolist(), objective.clusters
    sizes = [labels.count(y) for y in range(c)]
    losses = []
    for i, row in enumerate(views.index.tolist()):
        label = labels[row]
        if label < 0:
            z = [v / math.sqrt(dot(originals[i], originals[i])) for v in originals[i]]
            label = min(range(c), key=lambda y: math.dist(z, centres[y]))
        logits = [score / objective.head.temperature for score in scores(objective.head, found[i])]
        losses.append(-log_softmax(logits)[label] * sum(sizes) / (c * sizes[label]))
    return {"classification": mean(losses)}


def _change(log_p: list[list[float]], log_q: list[list[float]], symmetric: bool) -> float:
    """mean CE(q, p), of a symmetric pair the mean of both directions."""
    forth = mean([-dot([math.exp(v) for v in q], p) for p, q in zip(log_p, log_q, strict=True)])
    return (forth + _change(log_q, log_p, False)) / 2 if symmetric else forth


@loss.register
def _(objective: GEDI, encoder: nn.Module, views: Views) -> dict[str, float]:
    sides = pair_scores(objective, encoder, views)
    tau, clusters, prior = objective.head.temperature, range(objective.clusters), objective.prior.tolist()
    logits, others = ([[score / tau for score in row] for row in side] for side in sides)
    log_p, log_q = ([log_softmax(row) for row in side] for side in (logits, others))
    symmetric = objective.pair == "augmented"
    shares = [mean([math.exp(row[y]) for row in (log_p + log_q if symmetric else log_p)]) for y in clusters]
    s = objective.prior_price
    found = {
        "invariance": _change(log_p, log_q, symmetric),
        "prior": -s * math.log(math.fsum(share ** (1 / s) for share in shares))
        if objective.learns_prior
        else -dot(prior, [math.log(share) for share in shares]),
    }
    if objective.buffer is not None:
        drawn = rows(objective.energy.embed, encoder, objective.draw(encoder, len(logits)))
        of_data = [-log_sum_exp(row) for row in logits]
        of_samples = [-log_sum_exp([score / tau for score in scores(objective.head, z)]) for z in drawn]
        found["generative"] = mean(of_data) - mean(of_samples)
        found["magnitude"] = mean([e**2 for e in of_data]) + mean([e**2 for e in of_samples])
    return {name: value for name, value in found.items() if name in objective.weights}


@loss.register
def _(objective: ConstrainedGEDI, encoder: nn.Module, views: Views) -> dict[str, float]:
    tau, clusters, group = objective.head.temperature, range(objective.clusters), views.x.shape[1]
    sides = [*([views.x] if objective.pair == "original" else []), *views.augmented]
    embedded = [rows(objective.energy.embed, encoder, side.flatten(0, 1)) for side in sides]
    logits, *others = ([[score / tau for score in scores(objective.head, z)] for z in side] for side in embedded)
    log_p = [log_softmax(row) for row in logits]
    log_q = [log_softmax(row) for row in others[0]] if others else []
    symmetric = objective.pair == "augmented"
    shares = [mean([math.exp(row[y]) for row in (log_p + log_q if symmetric else log_p)]) for y in clusters]
    prior = objective.prior.tolist()
    found = {"prior": math.fsum(share * math.log(share / prior[y]) for y, share in enumerate(shares))}
    chances = []
    for start in range(0, len(log_p), group):
        satisfied = []
        for assignment in itertools.product(clusters, repeat=group):
            if bool(objective.rule.satisfied(torch.tensor(assignment))):
                satisfied.append(math.exp(math.fsum(log_p[start + k][y] for k, y in enumerate(assignment))))
        chances.append(math.fsum(satisfied))
    found["constraint"] = -mean([math.log(chance) for chance in chances])
    if others:
        found["invariance"] = _change(log_p, log_q, symmetric)
    if objective.buffer is not None:
        drawn = rows(objective.energy.embed, encoder, objective.draw(encoder, len(views.x)))
        of_data = [-log_sum_exp(row) for row in logits]
        of_samples = [-log_sum_exp([score / tau for score in scores(objective.head, z)]) for z in drawn]
        found["generative"] = mean(of_data) - mean(of_samples)
        found["magnitude"] = mean([e**2 for e in of_data]) + mean([e**2 for e in of_samples])
    return {name: value for name, value in found.items() if name in objective.weights}


def _posterior(objective: GenerativeObjective, encoder: nn.Module, x: Tensor) -> tuple[list, list]:
    """Means and variances, row by row."""
    means = rows(objective.energy.embed, encoder, x)
    seen = x.tolist() if objective.of_rows else means
    logs = [objective.log_variance(torch.tensor(one, dtype=x.dtype)).tolist() for one in seen]
    return means, [[math.exp(v) for v in row] for row in logs]


def _errors(objective: GenerativeObjective, x: Tensor, means: list, variances: list, noise: Tensor) -> list[float]:
    """−log p(x_i | z_i) of every row."""
    found = []
    for row, own, spread, chance in zip(x.tolist(), means, variances, noise.tolist(), strict=True):
        z = [m + math.sqrt(v) * e for m, v, e in zip(own, spread, chance, strict=True)]
        given = objective.decoder(torch.tensor(z, dtype=x.dtype)).tolist()
        if isinstance(objective.likelihood, BernoulliLikelihood):
            chances = [1 / (1 + math.exp(-g)) for g in given]
            inside = [min(max(a, 0.0), 1.0) for a in row]
            found.append(
                -sum(a * math.log(p) + (1 - a) * math.log(1 - p) for a, p in zip(inside, chances, strict=True))
            )
            continue
        variance = objective.likelihood.variance
        squares = [(a - b) ** 2 / variance + math.log(2 * math.pi * variance) for a, b in zip(row, given, strict=True)]
        found.append(sum(squares) / 2)
    return found


def _kl(mean: list, variance: list, other: list, other_variance: list) -> float:
    """Of normals, dimension by dimension."""
    return sum(
        0.5 * (math.log(w / v) + (v + (a - b) ** 2) / w - 1)
        for a, v, b, w in zip(mean, variance, other, other_variance, strict=True)
    )


def _generative(objective: GenerativeObjective, encoder: nn.Module, views: Views, sides: list) -> tuple[list, list]:
    """Posteriors and errors of every side: 0 the observations, j their j-th augmentation."""
    assert views.noise is not None
    x = [views.x, *views.augmented]
    posteriors = [_posterior(objective, encoder, x[side]) for side in sides]
    each = zip(sides, posteriors, strict=True)
    return posteriors, [_errors(objective, x[side], *posterior, views.noise[side]) for side, posterior in each]


@loss.register
def _(objective: VAE, encoder: nn.Module, views: Views) -> dict[str, float]:
    sides = [0 if objective.of == "data" else 1]
    ((means, variances),), (errors,) = _generative(objective, encoder, views, sides)
    standard = [0.0] * len(means[0]), [1.0] * len(means[0])
    apart = [_kl(m, v, *standard) for m, v in zip(means, variances, strict=True)]
    return {"reconstruction": mean(errors), "divergence": mean(apart)}


@loss.register
def _(objective: CRVAE, encoder: nn.Module, views: Views) -> dict[str, float]:
    sides = [0, 1] if objective.pair == "original" else [1, 2]
    posteriors, errors = _generative(objective, encoder, views, sides)
    (m, v), (other, w) = posteriors
    standard = [0.0] * len(m[0]), [1.0] * len(m[0])
    apart = [_kl(*row, *standard) for side in posteriors for row in zip(*side, strict=True)]
    return {
        "reconstruction": mean(errors[0]) + mean(errors[1]),
        "divergence": 2 * mean(apart),
        "consistency": mean([_kl(b, y, a, x) for a, x, b, y in zip(m, v, other, w, strict=True)]),
    }


@loss.register
def _(objective: SimVAE, encoder: nn.Module, views: Views) -> dict[str, float]:
    posteriors, errors = _generative(objective, encoder, views, list(range(1, 1 + objective.related)))
    related, sigma, gamma = objective.related, objective.variance, objective.mean_variance
    entropies, priors = [], []
    for row in range(len(views.x)):
        entropy = prior = 0.0
        for k in range(len(posteriors[0][0][0])):
            m = [side[0][row][k] for side in posteriors]
            v = [side[1][row][k] for side in posteriors]
            entropy += sum(0.5 * (1 + math.log(2 * math.pi * own)) for own in v)
            pinch = sum((a - mean(m)) ** 2 for a in m) + (1 - 1 / related) * sum(v)
            prior -= pinch / (2 * sigma) + (related - 1) / 2 * math.log(2 * math.pi * sigma)
            if gamma is None:
                prior -= 0.5 * math.log(related)
            else:  # the mean of the latents is N(0, γ² + σ²/J), in units in which the others are independent of it
                power, of_mean = mean(m) ** 2 + sum(v) / related**2, gamma + sigma / related
                prior -= 0.5 * (power / of_mean + math.log(2 * math.pi * of_mean) + math.log(related))
        entropies.append(entropy)
        priors.append(prior)
    return {
        "reconstruction": sum(mean(side) for side in errors),
        "entropy": -mean(entropies),
        "prior": -mean(priors),
    }


@loss.register
def _(objective: EBCLR, encoder: nn.Module, views: Views) -> dict[str, float]:
    first, second = pair_rows(objective, encoder, views)
    n, tau = len(first), objective.temperature
    logits = [[-(math.dist(a, b) ** 2) / tau for b in second] for a in first]
    centres = torch.tensor(second, dtype=torch.float64)
    samples = objective.buffer.advance(
        lambda x: objective.log_density(encoder, x, centres), objective.sampler, n, keep=False
    )
    drawn = rows(objective.energy.embed, encoder, samples)
    of_samples = [log_sum_exp([-(math.dist(a, b) ** 2) / tau for b in second]) for a in drawn]
    log_normaliser = mean([log_sum_exp(row) for row in logits])
    return {
        "alignment": -mean([logits[i][i] for i in range(n)]),
        "log_normaliser": log_normaliser,
        "generative": mean(of_samples) - log_normaliser,
    }


# --- moments of the batch ---------------------------------------------------------------------------------------------


def moments(side: list[list[float]], divisor: int) -> list[list[float]]:
    """The covariance of rows, with 1/divisor."""
    n, m = len(side), len(side[0])
    means = [mean([z[k] for z in side]) for k in range(m)]
    return [
        [math.fsum((side[i][k] - means[k]) * (side[i][j] - means[j]) for i in range(n)) / divisor for j in range(m)]
        for k in range(m)
    ]


@loss.register
def _(objective: BarlowTwins, encoder: nn.Module, views: Views) -> dict[str, float]:
    first, second = pair_rows(objective, encoder, views)
    m = len(first[0])

    def correlation(k: int, j: int) -> float:
        one, two = [z[k] for z in first], [z[j] for z in second]
        one, two = ([value - mean(column) for value in column] for column in (one, two))
        return cosine(one, two)

    table = [[correlation(k, j) for j in range(m)] for k in range(m)]
    return {
        "invariance": math.fsum((1 - table[k][k]) ** 2 for k in range(m)),
        "redundancy": objective.redundancy * math.fsum(table[k][j] ** 2 for k in range(m) for j in range(m) if k != j),
    }


@loss.register
def _(objective: VICReg, encoder: nn.Module, views: Views) -> dict[str, float]:
    first, second = pair_rows(objective, encoder, views)
    n, m = len(first), len(first[0])
    found = {
        "invariance": objective.invariance
        * mean([(first[i][k] - second[i][k]) ** 2 for i in range(n) for k in range(m)])
    }
    found |= {"variance": 0.0, "covariance": 0.0}
    for side in (first, second):
        table = moments(side, n - 1)
        short = [max(0.0, 1 - math.sqrt(table[k][k] + objective.epsilon)) for k in range(m)]
        found["variance"] += objective.variance * mean(short)
        others = math.fsum(table[k][j] ** 2 for k in range(m) for j in range(m) if k != j)
        found["covariance"] += objective.covariance * others / m
    return found


@loss.register
def _(objective: WMSE, encoder: nn.Module, views: Views) -> dict[str, float]:
    white = []
    for side in pair_rows(objective, encoder, views):
        n, m = len(side), len(side[0])
        table = moments(side, n - 1)
        factor = [[0.0] * m for _ in range(m)]  # Cholesky, row by row
        for k in range(m):
            for j in range(k + 1):
                rest = table[k][j] * (1 + 1e-8 * (j == k)) - dot(factor[k][:j], factor[j][:j])
                factor[k][j] = math.sqrt(rest) if j == k else rest / factor[j][j]
        means, codes = [mean([z[k] for z in side]) for k in range(m)], []
        for z in side:
            code: list[float] = []  # by substitution
            for k in range(m):
                code.append((z[k] - means[k] - dot(factor[k][:k], code)) / factor[k][k])
            codes.append(code)
        white.append(codes)
    return {"alignment": mean([2 - 2 * cosine(a, b) for a, b in zip(*white, strict=True)])}


@loss.register
def _(objective: CorInfoMax, encoder: nn.Module, views: Views) -> dict[str, float]:
    first, second = pair_rows(objective, encoder, views)
    if objective.normalise:
        first, second = ([[v / math.sqrt(dot(z, z)) for v in z] for z in side] for side in (first, second))
    log_determinants = []
    for side in (first, second):
        table = moments(side, len(side))
        for k in range(len(table)):
            table[k][k] += objective.epsilon
        log_determinants.append(math.log(np.linalg.det(np.array(table))))
    return {
        "log_determinant": -sum(log_determinants),
        "alignment": objective.invariance * mean([math.dist(a, b) ** 2 for a, b in zip(first, second, strict=True)]),
    }
