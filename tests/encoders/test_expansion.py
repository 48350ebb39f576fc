"""Indicators of levels and gaps, against loops; encoders that put them first, and one that begins at PCA."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from probssl.encoders import MLP, Indicators, LatentEncoder, seeded
from probssl.encoders.foreign import as_encoder
from probssl.errors import InputError
from probssl.layout import Column, Layout
from probssl.parts.part import Context

COLUMNS = (
    Column("colour", "category", ("red", "green", "blue"), gaps=True),
    Column("price"),
    Column("kept", "yes/no", ("no", "yes")),
    Column("age", gaps=True),
    Column("town", "category", tuple("abcde")),
)
LAYOUT = Layout("table", (len(COLUMNS),), COLUMNS)
NAN = math.nan


def mixed_rows(count: int, layout: Layout = LAYOUT, seed: int = 0, gaps: float = 0.2) -> Tensor:
    """Rows of codes, numbers and gaps, the last only where the layout knows them."""
    random = np.random.default_rng(seed)
    rows = np.empty((count, len(layout.columns)))
    for place, column in enumerate(layout.columns):
        rows[:, place] = random.integers(len(column.levels), size=count) if column.coded else random.normal(size=count)
        if column.gaps:
            rows[random.random(count) < gaps, place] = NAN
    return torch.from_numpy(rows)


def slow(row: list[float], layout: Layout) -> list[float]:
    """The same, column by column."""
    numbers = [0.0 if math.isnan(row[place]) else row[place] for place in layout.numbers]
    levels = [
        float(row[place] == level) for place in layout.coded for level in range(len(layout.columns[place].levels))
    ]
    return numbers + levels + [float(math.isnan(row[at])) for at, column in enumerate(layout.columns) if column.gaps]


def test_indicators_are_those_of_levels_and_gaps() -> None:
    x = mixed_rows(50)
    found = Indicators(LAYOUT)(x)
    assert found.shape == (50, LAYOUT.width)
    assert found.tolist() == [slow(row, LAYOUT) for row in x.tolist()]


def test_codes_and_gaps_that_are_unknown_set_nothing() -> None:
    x = torch.tensor([[7.0, NAN, NAN, 1.0, -1.0]])
    assert Indicators(LAYOUT)(x).tolist() == [[0.0, 1.0] + [0.0] * 12]


def test_what_goes_together_has_one_gap() -> None:
    date = [Column(name, part_of="day", gaps=True) for name in ("trend", "sine")]
    layout = Layout("table", (4,), (Column("n", gaps=True), *date, Column("m")))
    x = torch.tensor([[1.0, NAN, NAN, 2.0], [NAN, 3.0, 4.0, 5.0]])
    assert Indicators(layout)(x).tolist() == [[1.0, 0, 0, 2, 0, 1], [0.0, 3, 4, 5, 1, 0]]
    assert layout.width == 6


def test_slopes_are_those_of_the_numbers() -> None:
    x = mixed_rows(4).requires_grad_()
    Indicators(LAYOUT)(x).sum().backward()
    wanted = [[float(at in LAYOUT.numbers and not math.isnan(row[at])) for at in range(5)] for row in x.tolist()]
    assert x.grad is not None
    assert x.grad.tolist() == wanted


def test_equal_layouts_share_a_key_and_others_do_not() -> None:
    other = Layout("table", (5,), (*COLUMNS[:4], Column("town", "category", tuple("abcdef"))))
    assert Indicators(LAYOUT).stack_key() == Indicators(Layout("table", (5,), COLUMNS)).stack_key()
    assert Indicators(LAYOUT).stack_key() != Indicators(other).stack_key()


@pytest.mark.parametrize(
    "encoder", [MLP((8,)), MLP((8,), linear="pca"), LatentEncoder((8,))], ids=["mlp", "pca", "latent"]
)
def test_encoders_of_tables_take_mixed_rows(encoder: MLP | LatentEncoder) -> None:
    x = mixed_rows(40).float()
    with_sample = encoder.bind(shape=(5,), layout=LAYOUT, dim=3, sample=x)
    assert with_sample(x).shape == (40, 3)
    assert with_sample(x).isfinite().all()
    loaded = encoder.bind(shape=(5,), layout=LAYOUT, dim=3)
    loaded.load_state_dict(with_sample.state_dict())
    torch.testing.assert_close(loaded(x), with_sample(x))


def test_numbers_alone_are_taken_as_they_are() -> None:
    plain = Layout("table", (2,), (Column("a"), Column("b")))
    assert [type(part) for part in MLP((4,)).bind(shape=(2,), layout=plain, dim=1)] == [nn.Linear, nn.ReLU, nn.Linear]


@pytest.mark.parametrize("dim", [2, 6, 20])
def test_the_linear_path_begins_at_pca(dim: int) -> None:
    x = mixed_rows(60)
    encoder = seeded(0, lambda: MLP((8, 8), linear="pca").bind(shape=(5,), layout=LAYOUT, dim=dim, sample=x.float()))
    expanded = Indicators(LAYOUT)(x)
    centred = expanded - expanded.mean(0)
    rank = int(torch.linalg.matrix_rank(centred))
    left, sizes, _ = torch.linalg.svd(centred, full_matrices=False)
    scores = (left * sizes)[:, : min(dim, rank)]
    found = encoder(x.float()).double().detach()[:, : min(dim, rank)]
    signs = (found * scores).sum(0).sign()
    torch.testing.assert_close(found, signs * scores / scores.square().mean().sqrt(), rtol=1e-3, atol=1e-3)
    assert (encoder(x.float()).std(0) > 0).all()  # dimensions beyond the rank take part too


def test_a_table_of_twenty_thousand_columns_is_encoded_in_little_memory() -> None:
    """Weights, gradients and two moments of them: 16 bytes a weight, at a width that does not grow with the columns."""
    columns = tuple(Column(f"x{place}", gaps=place % 2 == 0) for place in range(20_000))
    layout = Layout("table", (20_000,), columns)
    encoder = MLP((256, 256), linear="pca").bind(shape=(20_000,), layout=layout, dim=64)
    assert 16 * sum(weight.numel() for weight in encoder.parameters()) < 200 * 2**20
    assert encoder(torch.full((2, 20_000), NAN)).isfinite().all()


def test_a_network_of_elsewhere_that_gaps_break_is_refused() -> None:
    x = mixed_rows(40).float()
    context = Context(shape=(5,), layout=LAYOUT, sample=x)
    with pytest.raises(
        InputError, match=r"Linear makes numbers that are not finite .* put probssl.encoders.Indicators"
    ):
        as_encoder(nn.Linear(5, 2), context)
    behind = nn.Sequential(Indicators(LAYOUT), nn.Linear(LAYOUT.width, 2))
    assert as_encoder(behind, context) is behind
    assert as_encoder(nn.Linear(5, 2), Context(shape=(5,), sample=x)).training
