"""Clustering: the head and the density it is, the terms of GEDI's bound, codes by optimal transport, and memory."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from probssl.encoders import Prototypes, seeded
from probssl.energies import Cosine, Dot, Euclidean
from probssl.errors import InputError
from probssl.objectives import ClusteringObjective, DeepClustering, InfoNCE, InstanceDiscrimination, ProtoCPC, SwAV
from probssl.objectives.clustering import invariance, prior_cross_entropy, sinkhorn
from probssl.objectives.memory import k_means
from probssl.pairings import GaussianNoise, Needs, Views
from probssl.theory import clustering as theory
from tests.objectives.members import (
    CLUSTERS,
    EMBEDDING,
    INPUT,
    REMEMBERED,
    ROWS,
    constant_encoder,
    generator,
    normal,
    smooth_encoder,
)
from tests.objectives.references import codes

PRIOR = [0.5, 0.3, 0.2]


class Plain(ClusteringObjective):
    """The base with the two terms of GEDI that need no samples."""

    def terms(self, encoder: nn.Module, views: Views) -> dict[str, Tensor]:
        log_p, log_q = (side.log_softmax(-1) for side in self.pair_logits(encoder, views))
        return {"invariance": invariance(log_p, log_q), "prior": prior_cross_entropy(self.prior, log_p)}


def plain(*, temperature: float = 1.0, normalise: bool = False, prior: list[float] | None = None) -> Plain:
    return Plain(CLUSTERS, temperature=temperature, normalise=normalise, prior=prior).bind(dim=EMBEDDING)


def log_predictions(rows: int = 6, clusters: int = CLUSTERS, seed: int = 0) -> Tensor:
    return (3 * normal(rows, clusters, seed=seed)).log_softmax(-1)


def views_of(rows: int = ROWS, seed: int = 0, index: Tensor | None = None) -> Views:
    views = GaussianNoise(0.5)(normal(rows, INPUT, seed=seed), Needs(augmented=2), generator(seed + 1))
    views.index = index
    return views


# --- the head and the base --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("normalise", [False, True])
def test_prototypes(normalise: bool) -> None:
    head = seeded(0, lambda: Prototypes(4, 3, temperature=0.3, normalise=normalise)).double()
    z = normal(5, 4)
    for i in range(5):
        for y in range(3):
            product = (head.weight[y] * z[i]).sum().item()
            size = (head.weight[y].norm() * z[i].norm()).item() if normalise else 1.0
            assert head(z)[i, y].item() == pytest.approx(product / size / 0.3, rel=1e-6)
    assert head.clusters == 3
    assert [name for name, _ in head.named_parameters()] == ["weight"]


@pytest.mark.parametrize(("dim", "clusters"), [(5, 3), (4, 4), (2, 7), (1, 5)])
def test_prototypes_start_apart(dim: int, clusters: int) -> None:
    head = seeded(0, lambda: Prototypes(dim, clusters))
    weight = head.weight.detach()
    gram = weight @ weight.mT if clusters <= dim else weight.mT @ weight
    torch.testing.assert_close(gram, max(1.0, clusters / dim) * torch.eye(len(gram)), rtol=1e-5, atol=1e-5)
    assert torch.equal(weight, seeded(0, lambda: Prototypes(dim, clusters)).weight)
    assert len(weight.unique(dim=0)) == clusters


def test_one_set_of_logits_is_a_classifier_and_a_density() -> None:
    objective, encoder, x = plain().double(), smooth_encoder(), normal(ROWS, INPUT)
    logits = objective.logits(encoder, x)
    torch.testing.assert_close(logits, encoder(x) @ objective.head.weight.mT)
    torch.testing.assert_close(objective.log_density(encoder, x), logits.exp().sum(1).log())
    joint = logits - objective.log_density(encoder, x).unsqueeze(1)  # log p(x, y) − log p(x)
    torch.testing.assert_close(objective.log_probabilities(encoder, x), joint)
    assert objective.clusters == CLUSTERS
    assert objective.prior.tolist() == pytest.approx([1 / CLUSTERS] * CLUSTERS)
    assert isinstance(objective.energy, Euclidean)
    sphere = plain(temperature=0.3, normalise=True)
    assert isinstance(sphere.energy, Cosine)
    assert sphere.energy.temperature == 0.3


def test_the_prior_is_stored_and_not_trained() -> None:
    objective = plain(prior=PRIOR)
    assert "prior" in objective.state_dict()
    assert not list(objective.buffers())
    assert [name for name, value in objective.named_parameters() if value.requires_grad] == ["head.weight"]


# --- the terms of GEDI's bound ----------------------------------------------------------------------------------------


def test_terms_are_those_of_the_theory() -> None:
    log_p, log_q, prior = log_predictions(), log_predictions(seed=1), torch.tensor(PRIOR, dtype=torch.float64)
    p, q = log_p.exp().numpy(), log_q.exp().numpy()
    assert invariance(log_p, log_q).item() == pytest.approx(theory.invariance_term(p, q), rel=1e-12)
    assert prior_cross_entropy(prior, log_p).item() == pytest.approx(theory.prior_term(p, PRIOR), rel=1e-12)


@pytest.mark.parametrize("clusters", [2, 10, 100])
def test_balanced_and_sure_predictions_attain_the_minima(clusters: int) -> None:
    log_p = (1e3 * torch.eye(clusters, dtype=torch.float64)).repeat(3, 1).log_softmax(-1)
    uniform = torch.full((clusters,), 1 / clusters, dtype=torch.float64)
    assert invariance(log_p, log_p).item() == pytest.approx(theory.INVARIANCE_MINIMUM, abs=1e-15)
    assert prior_cross_entropy(uniform, log_p).item() == pytest.approx(math.log(clusters), abs=1e-15)
    for seed in range(5):
        some = log_predictions(8, clusters, seed)
        total = invariance(some, some) + prior_cross_entropy(uniform, some)
        assert total.item() > theory.clustering_minimum(clusters)


def test_an_empty_cluster_costs_much_and_is_filled() -> None:
    """All inputs surely in one cluster, beyond what probabilities in single precision can tell from 0."""
    logits = torch.tensor([[300.0, 0.0, -100.0]]).repeat(4, 1).requires_grad_()
    cost = prior_cross_entropy(torch.full((3,), 1 / 3), logits.log_softmax(-1))
    assert cost.item() == pytest.approx((300 + 400) / 3)
    (slope,) = torch.autograd.grad(cost, logits)
    torch.testing.assert_close(slope.sum(0), torch.tensor([1 - 1 / 3, -1 / 3, -1 / 3]))


# --- codes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prior", [None, PRIOR, [0.6, 0.4, 0.0]])
def test_codes_have_the_right_marginals(prior: list[float] | None) -> None:
    scores, given = normal(40, CLUSTERS), None if prior is None else torch.tensor(prior, dtype=torch.float64)
    found = sinkhorn(scores, 0.3, 2000, given)
    torch.testing.assert_close(found.sum(1), torch.ones(40, dtype=torch.float64))
    expected = torch.full((CLUSTERS,), 1 / CLUSTERS, dtype=torch.float64) if given is None else given
    torch.testing.assert_close(found.sum(0), 40 * expected, rtol=1e-8, atol=1e-8)
    few = sinkhorn(scores, 0.3, 3, given)
    torch.testing.assert_close(few.sum(1), torch.ones(40, dtype=torch.float64))


@pytest.mark.parametrize("iterations", [1, 3, 10])
def test_codes_are_those_of_plain_numbers(iterations: int) -> None:
    scores = normal(12, CLUSTERS)
    found = sinkhorn(scores, 0.2, iterations, torch.tensor(PRIOR, dtype=torch.float64))
    np.testing.assert_allclose(found, codes(scores.tolist(), 0.2, iterations, PRIOR), rtol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_codes_of_extreme_scores_are_finite(dtype: torch.dtype) -> None:
    for scores in (1e4 * normal(20, 5), 1e4 * torch.eye(5).repeat(4, 1), torch.full((20, 5), -1e4)):
        found = sinkhorn(scores.to(dtype), 0.05, 50)
        assert found.isfinite().all()
        torch.testing.assert_close(found.sum(1), torch.ones(20, dtype=dtype))
    torch.testing.assert_close(found, torch.full_like(found, 0.2))  # of scores that are all alike


def test_codes_are_the_best_of_their_marginals() -> None:
    """Tr(Qᵀ scores) + ε H(Q) falls along every direction that keeps rows and columns."""
    scores, epsilon = normal(10, 4), 0.5
    best = sinkhorn(scores, epsilon, 2000)

    def value(q: Tensor) -> float:
        return ((q * scores).sum() - epsilon * torch.special.xlogy(q, q).sum()).item()

    for seed in range(5):
        change = normal(10, 4, seed=seed + 1)
        change = change - change.mean(0) - change.mean(1, keepdim=True) + change.mean()
        for size in (1e-4, -1e-4):
            assert value(best + size * change) < value(best)


# --- SwAV -------------------------------------------------------------------------------------------------------------


def test_swav_as_a_bound_of_the_likelihood() -> None:
    """Σ_i (E_q log p + H(q)) + Σ_i log Σ_y e^{…} = L_SwAV(Q)/τ, and not τ·L_SwAV(Q), as GEDI Eq. 17 prints."""
    objective = seeded(0, lambda: SwAV(CLUSTERS, temperature=0.3).bind(dim=EMBEDDING)).double()
    encoder, x = smooth_encoder(), normal(ROWS, INPUT)
    scores = objective.logits(encoder, x) * 0.3
    q = sinkhorn(scores)
    entropy = -torch.special.xlogy(q, q).sum()
    bound = (q * objective.log_probabilities(encoder, x)).sum() + entropy
    transport = (q * scores).sum() + 0.3 * entropy  # L_SwAV(Q)
    torch.testing.assert_close(bound + objective.log_density(encoder, x).sum(), transport / 0.3, rtol=1e-13, atol=0)


def test_swav_gradient_is_that_of_frozen_codes() -> None:
    objective = seeded(0, lambda: SwAV(CLUSTERS).bind(dim=EMBEDDING)).double()
    encoder, views = smooth_encoder(), views_of()
    values = [*encoder.parameters(), objective.head.weight]
    with torch.no_grad():
        targets = [sinkhorn(objective.logits(encoder, view) * 0.1) for view in views.augmented]
    log_p = [objective.log_probabilities(encoder, view) for view in views.augmented]
    by_hand = -0.5 * sum((targets[1 - k] * log_p[k]).sum(-1).mean() for k in range(2))
    found = torch.autograd.grad(objective(encoder, views).total, values)
    for one, other in zip(found, torch.autograd.grad(by_hand, values), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


def test_swav_of_a_constant_encoder() -> None:
    """Codes are the prior, and the loss its entropy or more."""
    objective = seeded(0, lambda: SwAV(CLUSTERS, prior=PRIOR).bind(dim=EMBEDDING)).double()
    found = objective(constant_encoder(), views_of()).total.item()
    log_p = objective.log_probabilities(constant_encoder(), views_of().x)[0]
    assert found == pytest.approx(-(objective.prior * log_p).sum().item(), rel=1e-6)  # given in single precision
    assert found >= theory.prior_minimum(PRIOR)


@pytest.mark.parametrize("cls", [SwAV, ProtoCPC])
def test_a_constant_encoder_as_near_to_every_centre_has_no_gradient(cls: type) -> None:
    objective, encoder = cls(2).bind(dim=EMBEDDING).double(), constant_encoder()  # at (0.6, −0.8)
    with torch.no_grad():
        objective.head.weight.copy_(torch.tensor([[0.8, 0.6], [-0.8, -0.6]]))
    total = objective(encoder, views_of()).total
    assert total.item() == pytest.approx(math.log(2) if cls is SwAV else 0.0, abs=1e-9)
    for slope in torch.autograd.grad(total, list(encoder.parameters())):
        torch.testing.assert_close(slope, torch.zeros_like(slope), rtol=0, atol=1e-7)


# --- ProtoCPC ---------------------------------------------------------------------------------------------------------


def one_sided(objective: ProtoCPC, views: Views, encoder: nn.Module) -> list[tuple[np.ndarray, np.ndarray]]:
    """Teacher's probabilities of one view and student's logits of the other, both ways."""
    with torch.no_grad():
        logits = [objective.logits(encoder, view) for view in views.augmented]
    sharper = objective.head.temperature / objective.teacher_temperature
    teachers = [(sharper * side).softmax(-1).numpy() for side in logits]
    return [(teachers[0], logits[1].numpy()), (teachers[1], logits[0].numpy())]


@pytest.mark.parametrize("seed", range(4))
def test_protocpc_is_that_of_the_theory_and_bounds_infonce_from_below(seed: int) -> None:
    """−L ≤ InfoNCE ≤ ln n with the critic Σ_y p_ky s_iy, and −L ≤ ln c."""
    objective, encoder = seeded(seed, lambda: ProtoCPC(4).bind(dim=EMBEDDING)).double(), smooth_encoder(seed)
    views = views_of(8, seed)
    sides = one_sided(objective, views, encoder)
    value = -objective(encoder, views).total.item()
    assert value == pytest.approx(np.mean([theory.proto_cpc(*side) for side in sides]), rel=1e-10)
    bounds = []
    for teacher, student in sides:
        pair = Views(torch.from_numpy(teacher), torch.from_numpy(student).unsqueeze(0))
        bounds.append(math.log(8) - InfoNCE(Dot())(nn.Identity(), pair).total.item())
    assert value <= np.mean(bounds) <= math.log(8)
    assert value <= math.log(4)


@pytest.mark.parametrize(("rows", "clusters"), [(12, 4), (4, 4), (3, 4)])
def test_protocpc_reaches_its_optimum(rows: int, clusters: int) -> None:
    objective = ProtoCPC(clusters, temperature=0.01).bind(dim=4).double()
    with torch.no_grad():
        objective.head.weight.copy_(torch.eye(4))
    x = torch.eye(4, dtype=torch.float64).repeat(3, 1)[:rows]
    found = objective(nn.Identity(), Views(x, torch.stack([x, x]))).total.item()
    assert found == pytest.approx(objective.optimum(rows, 4), abs=1e-9)
    assert found == pytest.approx(-math.log(min(rows, clusters)), abs=1e-9)


def test_protocpc_in_a_single_cluster_is_nothing_and_does_not_move() -> None:
    objective = ProtoCPC(2, temperature=0.01).bind(dim=EMBEDDING).double()
    with torch.no_grad():
        objective.head.weight.copy_(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]))
    z = torch.tensor([1.0, 0.0]) + 0.2 * normal(ROWS, EMBEDDING).requires_grad_()
    total = objective(nn.Identity(), Views(z, torch.stack([z, z.flip(0)]))).total
    assert total.item() == pytest.approx(0, abs=1e-12)
    (slope,) = torch.autograd.grad(total, z)
    torch.testing.assert_close(slope, torch.zeros_like(slope), rtol=0, atol=1e-12)


# --- instance discrimination ------------------------------------------------------------------------------------------

INDEX = torch.tensor([6, 0, 3, 8, 1])


def instances(rows: int, **options: float) -> InstanceDiscrimination:
    return InstanceDiscrimination(**options).bind(dim=EMBEDDING, rows=rows)


def test_the_bank_is_updated_where_the_batch_was() -> None:
    objective = seeded(0, lambda: instances(REMEMBERED, momentum=0.7)).double()
    torch.testing.assert_close(objective.bank.norm(dim=1), torch.ones(REMEMBERED).double(), rtol=1e-6, atol=1e-6)
    encoder, views, before = smooth_encoder(), views_of(index=INDEX), objective.bank.clone()
    objective(encoder, views).total.backward()
    for row in range(REMEMBERED):
        expected = before[row]
        if row in INDEX.tolist():
            z = encoder(views.augmented[0][INDEX.tolist().index(row)]).detach()
            mixed = 0.7 * before[row] + 0.3 * z / z.norm()
            expected = mixed / mixed.norm()
        torch.testing.assert_close(objective.bank[row], expected, rtol=1e-6, atol=1e-6)


def test_instance_discrimination_is_infonce_over_what_is_remembered() -> None:
    objective = instances(ROWS, temperature=0.2, momentum=0.0).double()
    encoder, views = smooth_encoder(), views_of(index=torch.tensor([2, 0, 4, 1, 3]))
    views.augmented = views.x.unsqueeze(0)
    objective(encoder, views)  # remembers the originals
    views.augmented = views_of().augmented[:1]
    found = objective.eval()(encoder, views).numbers()
    assert found == pytest.approx(InfoNCE(Cosine(0.2))(encoder, views).numbers(), rel=1e-9)


def test_instances_of_a_constant_encoder() -> None:
    objective = instances(ROWS, momentum=0.0).double()
    views = views_of(index=torch.arange(ROWS))
    objective(constant_encoder(), views)
    assert objective(constant_encoder(), views).total.item() == pytest.approx(math.log(ROWS), rel=1e-9)


# --- deep clustering --------------------------------------------------------------------------------------------------


def deep(rows: int = 30, **options: int) -> DeepClustering:
    return seeded(0, lambda: DeepClustering(CLUSTERS, **options).bind(dim=EMBEDDING, rows=rows)).double()


def steps_of(objective: DeepClustering, count: int, rows: int = 30, batch: int = 10) -> list[dict[str, Tensor]]:
    """Training steps on rows in turn; the memory after each."""
    encoder, x, after = smooth_encoder(), normal(rows, INPUT), []
    for step in range(count):
        index = torch.arange(step * batch, (step + 1) * batch) % rows
        views = Views(x[index], x[index].unsqueeze(0), index=index)
        objective(encoder, views)
        after.append({name: value.clone() for name, value in objective.named_buffers()})
    return after


def test_memory_fills_and_is_clustered_at_its_time() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        after = steps_of(deep(every=4), 9)
    z = nn.functional.normalize(smooth_encoder()(normal(30, INPUT)).detach(), dim=-1)
    for step, memory in enumerate(after):
        filled = min(10 * (step + 1), 30)
        assert memory["steps"] == step + 1
        assert torch.equal(memory["seen"], torch.arange(30) < filled)
        torch.testing.assert_close(memory["bank"][:filled], z[:filled], rtol=1e-9, atol=1e-9)
        assert torch.equal(memory["labels"] >= 0, memory["seen"])
        nearest = torch.cdist(z[:filled], memory["centres"]).argmin(1)
        assert torch.equal(memory["labels"][:filled], nearest)  # of those that came later as well
        moved = step == 0 or not torch.equal(memory["centres"], after[step - 1]["centres"])
        assert moved == (step in (0, 4))  # at step 8 k-means has nothing to change
    expected, _ = k_means(z, CLUSTERS, centres=after[0]["centres"])
    torch.testing.assert_close(after[4]["centres"], expected, rtol=1e-9, atol=1e-9)


def test_deep_clustering_waits_for_as_many_rows_as_clusters() -> None:
    objective, encoder, x = deep(every=100), smooth_encoder(), normal(30, INPUT)
    for step in range(3):
        index = torch.tensor([step])
        loss = objective(encoder, Views(x[index], x[index].unsqueeze(0), index=index)).total
        assert (loss.item() == 0) == (step < CLUSTERS - 1)
        assert bool((objective.labels >= 0).any()) == (step == CLUSTERS - 1)
        loss.backward()


@pytest.mark.parametrize("build", [lambda: instances(30), deep], ids=["instance", "deep"])
def test_evaluation_leaves_memory_alone(build) -> None:
    objective, chance = build().double(), torch.get_rng_state()
    views = views_of(10, index=torch.arange(10))
    kept = {name: value.clone() for name, value in objective.state_dict().items()}
    objective.eval()(smooth_encoder(), views)
    assert all(torch.equal(value, kept[name]) for name, value in objective.state_dict().items())
    assert torch.equal(torch.get_rng_state(), chance)
    objective.train()(smooth_encoder(), views)
    assert not torch.equal(objective.bank, kept["bank"])


def test_memory_is_stored_with_its_types() -> None:
    memory = deep().state_dict()
    assert {name: memory[name].dtype for name in ("seen", "labels", "steps")} == {
        "seen": torch.bool,
        "labels": torch.int64,
        "steps": torch.int64,
    }


def test_k_means_finds_clusters_that_are_there() -> None:
    truth = torch.arange(90) % 3
    x = 10 * torch.eye(3, dtype=torch.float64)[truth] + 0.1 * normal(90, 3)
    for seed in range(5):
        centres, labels = k_means(x, 3, generator=generator(seed))
        assert len({(a, b) for a, b in zip(truth.tolist(), labels.tolist(), strict=True)}) == 3
        for y in range(3):
            torch.testing.assert_close(centres[y], x[labels == y].mean(0))
    again = k_means(x, 3, generator=generator(4))
    assert torch.equal(again[0], centres)


def test_k_means_gives_an_empty_cluster_the_farthest_point() -> None:
    x = torch.tensor([[-0.3], [0.1], [0.2], [5.0]], dtype=torch.float64)
    start = torch.tensor([[0.1], [90.0], [99.0]], dtype=torch.float64)  # two centres that are nobody's nearest
    centres, labels = k_means(x, 3, centres=start, iterations=1)
    assert centres.flatten().tolist() == pytest.approx([1.25, 5.0, -0.3])
    assert labels.tolist() == [2, 2, 2, 1]
    centres, labels = k_means(x, 3, centres=start)
    assert torch.bincount(labels, minlength=3).min() > 0


def test_k_means_of_points_that_are_all_alike_is_finite() -> None:
    centres, labels = k_means(torch.ones(8, 2), 3, generator=generator())
    torch.testing.assert_close(centres, torch.ones(3, 2))
    assert labels.shape == (8,)


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "build",
    [
        pytest.param(lambda: Prototypes(0, 3), id="no dimension"),
        pytest.param(lambda: Prototypes(2, 0), id="no cluster"),
        pytest.param(lambda: Prototypes(2, 3, temperature=0.0), id="temperature"),
        pytest.param(lambda: SwAV(3, prior=[0.5, 0.5]), id="short prior"),
        pytest.param(lambda: SwAV(2, prior=[1.5, -0.5]), id="negative prior"),
        pytest.param(lambda: SwAV(2, prior=[0.5, 0.4]), id="prior of 0.9"),
        pytest.param(lambda: SwAV(3, epsilon=0.0), id="epsilon"),
        pytest.param(lambda: SwAV(3, iterations=0), id="iterations"),
        pytest.param(lambda: SwAV(3, pair="both"), id="pair"),
        pytest.param(lambda: ProtoCPC(3, teacher_temperature=0.2), id="dull teacher"),
        pytest.param(lambda: instances(1), id="one row"),
        pytest.param(lambda: InstanceDiscrimination(momentum=1.0), id="momentum"),
        pytest.param(lambda: DeepClustering(5).bind(dim=2, rows=4), id="more clusters than rows"),
        pytest.param(lambda: DeepClustering(3, every=0), id="every"),
        pytest.param(lambda: k_means(torch.ones(2, 1), 3), id="more clusters than points"),
        pytest.param(lambda: instances(5)(smooth_encoder(), views_of()), id="which rows"),
        pytest.param(lambda: deep(8)(smooth_encoder(), views_of(index=INDEX)), id="more rows"),
    ],
)
def test_bad_arguments(build) -> None:
    with pytest.raises(InputError) as error:
        build()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("cls", [SwAV, ProtoCPC, InstanceDiscrimination, DeepClustering])
def test_failures_have_names_that_the_theory_knows(cls: type) -> None:
    assert cls.admits.keys() <= {*theory.FAILURE_MODES, "dimension"}
