"""Encoders: shapes, seeds that leave the world as it was, and representations that do not depend on batching."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import nn

from probssl.encoders import (
    MLP,
    Centring,
    ConvEncoder,
    LatentEncoder,
    OnSphere,
    Whitening,
    WithHead,
    encode,
    he_weights,
    representation,
    seeded,
)
from probssl.errors import InputError
from tests.objectives.members import normal


@pytest.mark.parametrize("sizes", [[3, 2], [3, 6, 2], (4, 8, 8, 1)])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("batch_norm", [True, False])
def test_mlp_shapes(sizes: list[int], bias: bool, batch_norm: bool) -> None:
    encoder = MLP.of(sizes, bias=bias, batch_norm=batch_norm)
    assert encoder(torch.zeros(5, sizes[0])).shape == (5, sizes[-1])
    assert encoder.sizes == tuple(sizes)
    linear = [layer for layer in encoder if isinstance(layer, nn.Linear)]
    assert [(layer.in_features, layer.out_features) for layer in linear] == list(itertools.pairwise(sizes))
    assert all((layer.bias is not None) == bias for layer in linear)
    assert isinstance(encoder[-1], nn.Linear)
    assert sum(isinstance(layer, nn.BatchNorm1d) for layer in encoder) == (len(sizes) - 2 if batch_norm else 0)


def test_sizes_that_data_decides() -> None:
    assert MLP().bind(shape=(3,), dim=2).sizes == (3, 6, 2)
    assert MLP((), 4).bind(shape=(3,)).sizes == (3, 4)
    assert MLP((5,), 4).bind(shape=(3,), dim=2).sizes == (3, 5, 4)
    images = MLP((5,)).bind(shape=(2, 3, 4), dim=2)
    assert images.sizes == (24, 5, 2)
    assert images(torch.zeros(7, 2, 3, 4)).shape == (7, 2)
    with pytest.raises(InputError, match="without dim"):
        MLP().bind(shape=(3,))
    with pytest.raises(InputError, match="without shape"):
        MLP().bind(dim=2)


@pytest.mark.parametrize(
    ("shape", "widths"),
    [((3, 64, 64), (8, 16, 32, 32)), ((1, 28, 28), (8, 16)), ((1, 9, 40), (8,)), ((1, 3, 3), (8,))],
)
def test_convolutions_that_an_image_has_room_for(shape: tuple[int, int, int], widths: tuple[int, ...]) -> None:
    encoder = ConvEncoder(8, hidden=5).bind(shape=shape, dim=2)
    assert encoder.widths == widths
    assert encoder(torch.zeros(3, *shape)).shape == (3, 2)
    with pytest.raises(InputError, match="leave nothing"):
        ConvEncoder((4,) * 7, 2).bind(shape=shape)
    with pytest.raises(InputError, match="at least one channel"):
        ConvEncoder((), 2)


def test_mlp_formula() -> None:
    encoder = seeded(0, lambda: MLP.of([3, 6, 2])).double()
    first, second = encoder[0], encoder[2]
    x = normal(5, 3)
    hidden = (x @ first.weight.mT + first.bias).clamp_min(0)
    torch.testing.assert_close(encoder(x), hidden @ second.weight.mT + second.bias)


def test_a_linear_path_is_added_to_the_output() -> None:
    """With no hidden unit awake it is all there is: principal components are among what such a network computes."""
    encoder = seeded(0, lambda: MLP.of([3, 6, 2], linear=True)).double()
    line, rest = encoder[0]
    x = normal(5, 3)
    torch.testing.assert_close(encoder(x), x @ line.weight.mT + rest(x))
    rest[0].bias.data.fill_(-100.0)
    torch.testing.assert_close(encoder(x), x @ line.weight.mT + rest[-1].bias)
    images = MLP((4,), 2, linear=True).bind(shape=(1, 2, 3))
    assert images(torch.zeros(5, 1, 2, 3)).shape == (5, 2)
    with pytest.raises(InputError, match="is linear: leave linear out"):
        MLP((), linear=True)


def test_mlp_of_two_sizes_is_linear() -> None:
    encoder = seeded(0, lambda: MLP.of([3, 2], bias=False)).double()
    x, y = normal(5, 3), normal(5, 3, seed=1)
    torch.testing.assert_close(encoder(2 * x - y), 2 * encoder(x) - encoder(y))


def test_batch_statistics_without_running_averages_are_no_state() -> None:
    encoder = MLP.of([3, 4, 2], batch_norm=True, track_running_stats=False)
    assert not list(encoder.buffers())
    x = normal(8, 3, dtype=torch.float32)
    assert torch.equal(encoder(x), encoder.eval()(x))


@pytest.mark.parametrize("sizes", [[], [3], [3, 0, 2], [-1, 2]])
def test_bad_sizes(sizes: list[int]) -> None:
    with pytest.raises(InputError) as error:
        MLP.of(sizes)
    assert "\n" not in str(error.value)


def test_seeded_is_reproducible_and_leaves_the_global_state_alone() -> None:
    torch.manual_seed(5)
    before, elsewhere = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    one, same, other = (seeded(seed, lambda: MLP.of([3, 6, 2])) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert (np.random.get_state()[1] == elsewhere).all()  # noqa: NPY002
    for a, b, c in zip(one.parameters(), same.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)
        assert not torch.equal(a, c)
    torch.manual_seed(6)
    again = seeded(1, lambda: MLP.of([3, 6, 2]))
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), again.parameters(), strict=True))


def test_seeded_restores_the_global_state_after_an_error() -> None:
    before = torch.get_rng_state()

    def fail() -> nn.Module:
        torch.rand(3)
        raise InputError("no")

    with pytest.raises(InputError):
        seeded(1, fail)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_head_is_trained_and_left_out_of_the_representation() -> None:
    backbone, head = MLP.of([3, 4]), MLP.of([4, 2])
    encoder = WithHead(backbone, head)
    x = normal(5, 3, dtype=torch.float32)
    assert torch.equal(encoder(x), head(backbone(x)))
    assert representation(encoder) is backbone
    assert representation(backbone) is backbone
    assert len(list(encoder.parameters())) == 4
    assert torch.equal(encode(encoder, x), backbone(x))
    assert torch.equal(encode(backbone, x), backbone(x))


@pytest.mark.parametrize("batch_size", [1, 3, 10, 100])
@pytest.mark.parametrize("training", [True, False])
def test_encoding_in_batches_is_encoding_at_once(batch_size: int, training: bool) -> None:
    backbone = seeded(0, lambda: nn.Sequential(MLP.of([3, 6, 4], batch_norm=True), nn.Dropout(0.5))).double()
    encoder = WithHead(backbone, MLP.of([4, 2]).double())
    x = 3 * normal(10, 3) + 1
    encoder.train()(x)  # move the running averages
    encoder.train(training)
    state = {name: value.clone() for name, value in encoder.state_dict().items()}
    found = encode(encoder, x, batch_size=batch_size)
    assert [module.training for module in encoder.modules()] == [training] * len(list(encoder.modules()))
    assert all(torch.equal(value, state[name]) for name, value in encoder.state_dict().items())
    assert not found.requires_grad
    torch.testing.assert_close(found, backbone.eval()(x).detach())


def test_a_frozen_part_of_an_encoder_in_training_stays_frozen() -> None:
    encoder = MLP.of([3, 4, 2], batch_norm=True).train()
    frozen = encoder[1].eval()
    encode(encoder, normal(5, 3, dtype=torch.float32))
    assert encoder.training
    assert not frozen.training


def test_the_mode_is_restored_after_an_error() -> None:
    encoder = MLP.of([3, 4, 2], batch_norm=True).train()
    with pytest.raises(RuntimeError):
        encode(encoder, torch.zeros(5, 7))
    assert all(module.training for module in encoder.modules())


def test_no_rows_have_no_representations() -> None:
    assert encode(MLP.of([3, 2]), torch.zeros(0, 3)).shape == (0, 2)


def test_a_slope_makes_the_relu_leaky() -> None:
    plain, leaky = (seeded(0, lambda s=slope: MLP.of([2, 3, 1], slope=s)) for slope in (0.0, 0.2))
    x = normal(50, 2, dtype=torch.float32)
    hidden = x @ plain[0].weight.T + plain[0].bias
    torch.testing.assert_close(leaky(x), nn.functional.leaky_relu(hidden, 0.2) @ plain[2].weight.T + plain[2].bias)
    assert not torch.allclose(leaky(x), plain(x))


def test_whitening_makes_the_covariance_one() -> None:
    x = normal(400, 3) @ normal(3, 3, seed=1) + 5
    torch.testing.assert_close(torch.cov(Whitening(x)(x).T), torch.eye(3, dtype=torch.float64))
    flat = torch.cat([x, torch.full((400, 1), 2.0, dtype=torch.float64)], 1)
    assert bool(Whitening(flat)(flat).isfinite().all())
    with pytest.raises(InputError, match="at least two rows"):
        Whitening(x[:1])


def test_centring_takes_the_mean_of_the_batch_and_later_that_of_recent_ones() -> None:
    centring = Centring(2, momentum=0.1).double()
    for number in range(200):
        z = normal(64, 2, seed=number) + torch.tensor([3.0, -1.0])
        assert centring(z).mean(0).abs().max() < 1e-12
    torch.testing.assert_close(centring.eval().mean, torch.tensor([3.0, -1.0], dtype=torch.float64), atol=0.2, rtol=0)
    torch.testing.assert_close(centring(z), z - centring.mean)


def test_an_encoder_of_latents() -> None:
    x = normal(100, 4, dtype=torch.float32)
    encoder = LatentEncoder((8, 8), 3, sphere=True).bind(shape=(4,), sample=x)
    torch.testing.assert_close(encode(encoder, x).norm(dim=1), torch.ones(100))
    torch.testing.assert_close(OnSphere(2.0)(x).norm(dim=1), torch.full((100,), 2.0))
    plain = LatentEncoder((8,)).bind(shape=(4,), sample=x, dim=3)
    assert len(plain) == 2
    torch.testing.assert_close(torch.cov(plain[0](x).T), torch.eye(4), rtol=1e-3, atol=1e-3)
    blank = LatentEncoder(dim=3).bind(shape=(4,))  # whose whitening is to be loaded
    assert torch.equal(blank[0](x), x)
    assert blank[1].sizes == (4, 40, 40, 40, 3)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Linear(400, 500), (400,)),
        (nn.Conv2d(64, 96, 4, stride=2, padding=1), (64, 16, 16)),
        (nn.ConvTranspose2d(64, 96, 4, stride=2, padding=1), (64, 16, 16)),
    ],
)
def test_he_weights_keep_the_scale(layer: nn.Module, shape: tuple[int, ...]) -> None:
    """E[relu(Wx)²] = E[x²], away from the borders of an image."""
    seeded(0, lambda: he_weights(layer))
    x = torch.randn(64, *shape, generator=torch.Generator().manual_seed(1)).relu()
    after = layer(x).relu().detach()
    inner = after if after.ndim == 2 else after[..., 2:-2, 2:-2]
    assert float(inner.square().mean() / x.square().mean()) == pytest.approx(1, abs=0.15)
