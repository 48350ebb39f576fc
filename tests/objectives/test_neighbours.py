"""Known pairs of rows: every pair is drawn alike, no row twice in a batch, and nothing is paired across an end."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from probssl.encoders import MLP, seeded
from probssl.energies import Euclidean
from probssl.errors import InputError
from probssl.objectives import Fisher, InfoNCE
from probssl.pairings import Needs, RowPairs, neighbours
from probssl.pairings.neighbours import disjoint
from probssl.training import TrainingPlan, fit
from tests.objectives.members import generator, normal


def as_set(pairs: torch.Tensor) -> set[tuple[int, int]]:
    found = {(int(a), int(b)) for a, b in pairs}
    assert len(found) == len(pairs)
    return found


def test_neighbours_of_one_recording() -> None:
    assert as_set(neighbours(5)) == {(0, 1), (1, 2), (2, 3), (3, 4)}
    assert as_set(neighbours(5, [1, 3])) == {(0, 1), (1, 2), (2, 3), (3, 4), (0, 3), (1, 4)}
    assert as_set(neighbours(5, [4])) == {(0, 4)}
    assert neighbours(5, [5, 9]).shape == (0, 2)


def test_neighbours_stay_within_their_group() -> None:
    groups = torch.tensor([7, 7, 3, 7, 3, 3])
    assert as_set(neighbours(6, [1], groups)) == {(0, 1), (1, 3), (2, 4), (4, 5)}
    assert as_set(neighbours(6, [2], groups)) == {(0, 3), (2, 5)}


def test_draws_are_the_known_pairs_and_no_row_comes_twice() -> None:
    rows, pairs = torch.arange(60.0).unsqueeze(1), neighbours(60, [1, 3])
    source = RowPairs(rows, pairs)
    counts = torch.zeros(60, 60)
    for seed in range(2000):
        views = source.draw(8, Needs(), generator(seed))
        first, second = views.x[:, 0].long(), views.augmented[0, :, 0].long()
        assert len(torch.cat([first, second]).unique()) == 2 * len(first) == 16
        assert torch.equal(views.index, first)
        counts[first, second] += 1
    assert as_set(counts.nonzero()) == as_set(pairs)
    seen = counts[pairs[:, 0], pairs[:, 1]]
    # Pairs near an end share rows with fewer others and come a little more often; the others come alike.
    middle = (pairs[:, 0] > 5) & (pairs[:, 1] < 54)
    assert (seen[middle] - seen[middle].mean()).abs().max() < 5 * seen[middle].mean().sqrt()
    assert seen.min() > 0.7 * seen.mean()
    assert seen.max() < 1.6 * seen.mean()


def test_a_batch_of_many_pairs_is_whole_and_without_repeats() -> None:
    views = RowPairs(torch.arange(20_000), neighbours(20_000)).draw(256, Needs(), generator())
    assert torch.equal(views.augmented[0], views.x + 1)
    assert len(torch.cat([views.x, views.augmented[0]]).unique()) == 512


def test_all_given_pairs_are_drawn_when_all_are_asked_for() -> None:
    number = torch.arange(10)
    source = RowPairs(normal(20, 3), torch.stack([number, number + 10], 1))
    views = source.draw(99, Needs(), generator())
    assert sorted(views.index.tolist()) == list(range(10))
    torch.testing.assert_close(views.augmented[0], source.rows[views.index + 10])
    assert source.draw(4, Needs(augmented=0), generator()).augmented.shape == (0, 4, 3)
    assert set(source.draw(4, Needs(directions=2), generator()).directions.unique().tolist()) == {-1.0, 1.0}


def test_disjoint_pairs_are_those_that_a_loop_keeps() -> None:
    for seed in range(20):
        pairs = torch.randint(0, 30, (40, 2), generator=generator(seed))
        pairs = pairs[pairs[:, 0] != pairs[:, 1]]
        taken: set[int] = set()
        kept = []
        for a, b in pairs.tolist():
            if not {a, b} & taken:
                taken |= {a, b}
                kept.append([a, b])
        assert disjoint(pairs, 30).tolist() == kept


def test_of_all_neighbours_43_percent_are_left() -> None:
    source = RowPairs(normal(3000, 2), neighbours(3000))
    left = len(source.draw(2999, Needs(), generator()).x)
    assert left == pytest.approx(3000 * (1 - math.exp(-2)) / 2, rel=0.02)  # parking dimers on a line (Flory, 1939)


def test_trains() -> None:
    x = normal(500, 2, dtype=torch.float32).cumsum(0)
    encoder: nn.Module = seeded(0, lambda: MLP.of([2, 2]))
    plan = TrainingPlan(steps=60, batch_size=64)
    history = fit(encoder, InfoNCE(Euclidean()), RowPairs(x, neighbours(500)), plan=plan).history
    losses = [row["loss"] for row in history if "loss" in row]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda: RowPairs(normal(5, 2), torch.zeros(4, 2)), "two row numbers"),
        (lambda: RowPairs(normal(5, 2), torch.zeros(4, 3, dtype=torch.long)), "two row numbers"),
        (lambda: RowPairs(normal(5, 2), torch.tensor([[0, 1]])), "at least two of them, and there is 1"),
        (lambda: RowPairs(normal(5, 2), torch.tensor([[0, 1], [2, 5]])), "from 0 to 4"),
        (lambda: neighbours(5, [0]), "lags are at least one row"),
        (lambda: neighbours(5, []), "lags are at least one row"),
        (lambda: neighbours(5, [1], torch.zeros(4)), "5 labels"),
        (lambda: RowPairs(normal(3, 2), neighbours(3)).draw(2, Needs()), "share no row"),
        (lambda: RowPairs(normal(5, 2), neighbours(5)).draw(2, Fisher().needs), "choose an objective"),
    ],
)
def test_bad_arguments(build, said) -> None:
    with pytest.raises(InputError, match=said) as error:
        build()
    assert "\n" not in str(error.value)
