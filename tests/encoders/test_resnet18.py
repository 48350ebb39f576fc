"""ResNet-18: the same values layer by layer, its size, stems and normalisations; and the papers' projection heads."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from probssl.encoders import ProjectionHead, ResNet18, WithHead, encode, representation, rows_meet, seeded
from probssl.errors import InputError
from probssl.objectives import Fisher, InfoNCE, Objective
from probssl.pairings import ImageAugmentation
from tests.objectives.members import generator


def images(count: int, channels: int = 3, height: int = 32, width: int = 32) -> Tensor:
    return torch.rand(count, channels, height, width, generator=generator())


def slow(network: ResNet18, x: Tensor) -> Tensor:
    """He et al. 2016, Table 1, by name of every weight, in training mode."""
    weights = dict(network.named_parameters())

    def conv(x: Tensor, name: str, stride: int = 1) -> Tensor:
        weight = weights[f"{name}.weight"].contiguous()
        return F.conv2d(x, weight, weights.get(f"{name}.bias"), stride=stride, padding=weight.shape[-1] // 2)

    def norm(x: Tensor, name: str) -> Tensor:
        if network.normalisation == "none":
            return x
        scale, shift = (weights[f"{name}.{part}"].view(1, -1, 1, 1) for part in ("weight", "bias"))
        if network.normalisation == "group":  # each image by itself, of as few channels as here all of them
            return torch.stack([standard(image, (0, 1, 2)) for image in x]) * scale + shift
        return standard(x, (0, 2, 3)) * scale + shift

    def standard(x: Tensor, over: tuple[int, ...]) -> Tensor:
        return (x - x.mean(over, keepdim=True)) / (x.var(over, unbiased=False, keepdim=True) + 1e-5).sqrt()

    x = norm(conv(x, "first", 1 if network.stem == "cifar" else 2), "norm").clamp_min(0)
    if network.stem == "imagenet":
        x = F.max_pool2d(x, 3, 2, 1)
    for block in range(8):
        name, stride = f"blocks.{block}", 2 if block in (2, 4, 6) else 1
        inner = norm(conv(x, f"{name}.first", stride), f"{name}.first_norm").clamp_min(0)
        inner = norm(conv(inner, f"{name}.second"), f"{name}.second_norm")
        around = norm(conv(x, f"{name}.around.0", stride), f"{name}.around.1") if stride == 2 else x
        x = (inner + around).clamp_min(0)
    return x.mean((2, 3))


@pytest.mark.parametrize("normalisation", ["batch", "group", "none"])
@pytest.mark.parametrize("stem", ["cifar", "imagenet"])
@pytest.mark.parametrize("size", [(32, 32), (28, 28), (17, 24)])
def test_values_and_gradients_are_those_of_the_table(stem: str, size: tuple[int, int], normalisation: str) -> None:
    network = seeded(0, lambda: ResNet18(2, stem=stem, normalisation=normalisation).bind(shape=(3, *size))).double()
    for layer in network.modules():
        if getattr(layer, "bias", None) is not None:
            nn.init.normal_(layer.bias, generator=generator(1))
    x = images(5, 3, *size).double()
    found, wanted = network(x), slow(network, x)
    torch.testing.assert_close(found, wanted)
    parameters = list(network.parameters())
    for one, other in zip(
        torch.autograd.grad(found.square().sum(), parameters),
        torch.autograd.grad(wanted.square().sum(), parameters),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(
    ("channels", "width", "stem", "dim", "normalisation", "count"),
    [
        (3, 64, "cifar", None, "batch", 11_168_832),
        (3, 64, "cifar", None, "group", 11_168_832),
        (3, 64, "cifar", None, "none", 11_168_832 - 4_800),
        (3, 64, "imagenet", None, "batch", 11_176_512),
        (3, 64, "imagenet", 1000, "batch", 11_689_512),  # the network of the authors
        (1, 64, "cifar", None, "batch", 11_167_680),
        (1, 8, "cifar", None, "batch", 175_608),
    ],
)
def test_number_of_parameters(
    channels: int, width: int, stem: str, dim: int | None, normalisation: str, count: int
) -> None:
    with torch.device("meta"):
        network = ResNet18(width, dim, stem=stem, normalisation=normalisation).bind(shape=(channels, 32, 32))
    assert sum(value.numel() for value in network.parameters()) == count


def test_the_stem_for_small_images_keeps_their_size() -> None:
    network, seen = ResNet18(4).bind(shape=(3, 32, 32)), []
    network.blocks[0].register_forward_hook(lambda _, __, out: seen.append(tuple(out.shape)))
    network.blocks[7].register_forward_hook(lambda _, __, out: seen.append(tuple(out.shape)))
    assert network(images(2)).shape == (2, 32)
    assert seen == [(2, 4, 32, 32), (2, 32, 4, 4)]


def test_memory_order_of_images_changes_no_bit() -> None:
    network, x = seeded(0, lambda: ResNet18(8, dim=5).bind(shape=(3, 32, 32))), images(4)
    assert network.first.weight.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(encode(network, x), encode(network, x.to(memory_format=torch.channels_last)))
    again = seeded(1, lambda: ResNet18(8, dim=5).bind(shape=(3, 32, 32)))
    again.load_state_dict({name: value.contiguous() for name, value in network.state_dict().items()})
    assert again.blocks[2].first.weight.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(encode(again, x), encode(network, x))


@pytest.mark.parametrize("normalisation", ["batch", "group", "none"])
def test_the_start_is_sane(normalisation: str) -> None:
    """The features of a batch vary, and no block lets the signal vanish or grow."""
    network = seeded(0, lambda: ResNet18(16, normalisation=normalisation).bind(shape=(3, 32, 32)))
    x, sizes = images(16), []
    for block in network.blocks:
        block.register_forward_hook(lambda _, __, out: sizes.append(out.square().mean().sqrt().item()))
    z = network(x)
    assert all(0.3 < size < 5 for size in sizes), sizes
    assert z.std(0).mean().item() > 0.01


@pytest.mark.parametrize(
    ("width", "groups"), [(2, [1, 1, 1, 1]), (8, [1, 1, 2, 4]), (12, [1, 1, 3, 6]), (64, [4, 8, 16, 32])]
)
def test_groups_have_at_least_sixteen_channels(width: int, groups: list[int]) -> None:
    with torch.device("meta"):
        network = ResNet18(width, normalisation="group").bind(shape=(3, 32, 32))
    assert [network.blocks[block].second_norm.num_groups for block in (0, 2, 4, 6)] == groups


@pytest.mark.parametrize(("normalisation", "meet"), [("batch", True), ("group", False), ("none", False)])
def test_images_of_a_batch_meet_in_batch_normalisation_alone(normalisation: str, meet: bool) -> None:
    network = seeded(0, lambda: ResNet18(4, dim=5, normalisation=normalisation).bind(shape=(3, 32, 32))).double()
    x = images(4).double()
    others = torch.cat([x[:1], images(7).double()[4:]])
    assert torch.allclose(network(x)[0], network(others)[0], rtol=1e-12, atol=0) is not meet
    assert any(rows_meet(layer) for layer in network.modules()) is meet


@pytest.mark.parametrize("normalisation", ["group", "none"])
@pytest.mark.parametrize("objective", [InfoNCE(candidates="two-view"), Fisher()], ids=lambda o: type(o).__name__)
def test_networks_without_batch_normalisation_train(normalisation: str, objective: Objective) -> None:
    """The loss on one batch falls in a few steps, and every weight takes part."""
    encoder = seeded(0, lambda: ResNet18(4, dim=8, normalisation=normalisation).bind(shape=(3, 16, 16)))
    pairing, x = ImageAugmentation("siamese-fisher"), images(16, 3, 16, 16)
    views = pairing(x, objective.needs, generator())
    optimiser = torch.optim.Adam(encoder.parameters(), lr=3e-3)
    losses = []
    for _ in range(8):
        optimiser.zero_grad()
        loss = objective(encoder, views).total
        loss.backward()
        if not losses:
            idle = [name for name, weight in encoder.named_parameters() if weight.grad is None or not weight.grad.any()]
            assert set(idle) <= {"head.bias"}  # distances do not depend on it
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


@pytest.mark.parametrize(
    ("wrong", "part"),
    [
        ({"width": 0}, "at least one channel"),
        ({"dim": 0}, "at least one channel"),
        ({"stem": "mnist"}, "cifar, imagenet, not 'mnist'"),
        ({"normalisation": "layer"}, "batch, group, none, not 'layer'"),
    ],
)
def test_refusals(wrong: dict, part: str) -> None:
    with pytest.raises(InputError) as error:
        ResNet18(**{"width": 2, **wrong})
    assert part in str(error.value)


def test_other_images_are_refused() -> None:
    with pytest.raises(InputError, match=r"\[n, 3, height, width\], not \[2, 1, 32, 32\]"):
        ResNet18(2).bind(shape=(3, 32, 32))(images(2, 1))


# --- heads ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("head", "widths", "normalised"),
    [
        pytest.param(ProjectionHead(2, dim=128), [64, 64, 128], 0, id="simclr and moco-v2"),
        pytest.param(ProjectionHead(2, 4096, 256, batch_norm=True), [64, 4096, 256], 1, id="byol"),
        pytest.param(ProjectionHead(3, batch_norm=True, last_norm=True), [64, 64, 64, 64], 3, id="simsiam"),
        pytest.param(ProjectionHead(3, 8192, 8192, batch_norm=True), [64, 8192, 8192, 8192], 2, id="barlow and vicreg"),
        pytest.param(ProjectionHead(2, 2048, 128, batch_norm=True), [64, 2048, 128], 1, id="swav"),
        pytest.param(ProjectionHead(1, dim=3), [64, 3], 0, id="linear"),
    ],
)
def test_heads_are_those_of_the_papers(head: ProjectionHead, widths: list[int], normalised: int) -> None:
    with torch.device("meta"):
        head = head.bind(shape=(64,))
    linear = [layer for layer in head.modules() if isinstance(layer, nn.Linear)]
    assert [linear[0].in_features, *(layer.out_features for layer in linear)] == widths
    assert sum(isinstance(layer, nn.BatchNorm1d) for layer in head.modules()) == normalised


def test_a_head_knows_its_dimensions() -> None:
    head = ProjectionHead(hidden=5, dim=3, batch_norm=True).bind(shape=(8,))
    assert head(torch.zeros(4, 8)).shape == (4, 3)
    assert (head.dim, ProjectionHead().bind(shape=(8,)).dim) == (3, 8)
    for wrong in ({"layers": 0}, {"hidden": 0}, {"dim": 0}):
        with pytest.raises(InputError, match="at least one layer"):
            ProjectionHead(**wrong)


def test_a_network_trains_behind_its_head() -> None:
    def made() -> WithHead:
        head = ProjectionHead(2, 8, 4, batch_norm=True).bind(shape=(16,))
        return WithHead(ResNet18(2).bind(shape=(3, 32, 32)), head)

    encoder, x = seeded(0, made), images(8)
    objective = InfoNCE(candidates="two-view", pair="augmented")
    objective(encoder, ImageAugmentation("simclr-cifar")(x, objective.needs, generator())).total.backward()
    assert all(parameter.grad is not None for parameter in encoder.parameters())
    assert encode(encoder, x).shape == (8, 16)
    assert representation(encoder) is encoder.backbone
