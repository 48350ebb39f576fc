"""Sums of digits: the distribution, every image at most once, and a clear word when images run out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from probssl.data.addition import SUMS, addition_triples
from probssl.data.mnist import mnist
from probssl.errors import InputError

MNIST = torch.arange(10).repeat_interleave(torch.tensor([5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]))[
    torch.randperm(60_000, generator=torch.Generator().manual_seed(0))
]
"""Labels in the numbers of MNIST's training half."""


@pytest.mark.parametrize("count", [100, 1_000, 10_000])
def test_sums_are_uniform_and_no_image_serves_twice(count: int) -> None:
    index = addition_triples(MNIST, count, torch.Generator().manual_seed(0))
    digits = MNIST[index]
    assert index.shape == (count, 3)
    assert torch.equal(digits[:, 0] + digits[:, 1], digits[:, 2])
    assert len(index.unique()) == 3 * count
    counted = torch.bincount(10 * digits[:, 0] + digits[:, 1], minlength=100)
    assert int((counted > 0).sum()) <= len(SUMS) == 55
    if count == 10_000:
        spread = ((counted[counted > 0] - count / 55) ** 2).sum().item() / (count / 55)
        assert spread < 100  # chi-squared with 54 degrees of freedom: mean 54, standard deviation 10
        share = torch.bincount(digits.flatten(), minlength=10) / 30_000
        assert torch.allclose(share, (21 - torch.arange(10)) / 165, atol=0.006)


def test_images_are_drawn_evenly() -> None:
    labels = torch.arange(10).repeat(6)
    used = torch.zeros(60)
    for seed in range(400):
        used[addition_triples(labels, 2, torch.Generator().manual_seed(seed)).flatten()] += 1
    zeros = used[labels == 0]
    assert zeros.sum() == pytest.approx(2_400 * 21 / 165, rel=0.1)
    assert zeros.max() < 1.6 * zeros.min()


def test_one_seed_decides() -> None:
    first, again, other = (addition_triples(MNIST, 50, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_too_few_images_are_named() -> None:
    with pytest.raises(InputError, match=r"100 additions use \d+ images of the digit 0, .* there are 3: ask"):
        addition_triples(torch.arange(10).repeat(3), 100, torch.Generator().manual_seed(0))
    with pytest.raises(InputError, match="labels"):
        addition_triples(MNIST, 0)


@pytest.mark.skipif(
    not (Path(os.environ.get("PROBSSL_DATA") or "absent") / "mnist").is_dir(), reason="needs MNIST in PROBSSL_DATA"
)
def test_ten_thousand_sums_fit_into_mnist() -> None:
    labels = torch.tensor(mnist().train_labels)
    assert torch.equal(torch.bincount(labels), torch.bincount(MNIST))
    assert len(addition_triples(labels, 10_000, torch.Generator().manual_seed(1)).unique()) == 30_000
