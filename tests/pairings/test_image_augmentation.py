"""Random augmentations of images: probabilities, seeds, boxes, presets, and what is refused."""

from __future__ import annotations

import colorsys
import dataclasses
import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn

from probssl.errors import InputError
from probssl.objectives import Fisher, InfoNCE
from probssl.pairings import IMAGE_PRESETS, Each, ImageAugmentation, ImageStrengths, Needs, image_preset
from probssl.pairings import image_transforms as transforms
from probssl.pairings.images import random_boxes
from tests.objectives.members import SAMPLED, each, generator

every_preset = pytest.mark.parametrize("name", IMAGE_PRESETS)


def images(count: int = 8, channels: int = 3, height: int = 12, width: int = 10, dtype: torch.dtype = torch.float32):
    return torch.rand(count, channels, height, width, generator=generator(3), dtype=torch.float64).to(dtype)


def changed(x: Tensor, found: Tensor) -> np.ndarray:
    """Which images are not what they were."""
    return (x != found).flatten(1).any(1).numpy()


# --- seeds and probabilities ------------------------------------------------------------------------------------------


@every_preset
@pytest.mark.parametrize("channels", [1, 3])
def test_one_seed_is_one_augmentation(name: str, channels: int) -> None:
    pairing, x = ImageAugmentation(name), images(32, channels)
    torch.manual_seed(0)
    before = torch.get_rng_state()
    one, same, other = (pairing.sample(x, generator(seed)) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert one.shape == x.shape


@every_preset
def test_a_seed_means_the_same_in_either_precision(name: str) -> None:
    pairing = ImageAugmentation(image_preset(name, noise=0))
    single, double = (pairing.sample(images(dtype=dtype), generator()) for dtype in (torch.float32, torch.float64))
    assert (single.dtype, double.dtype) == (torch.float32, torch.float64)
    torch.testing.assert_close(single.double(), double, rtol=0, atol=1e-5)


STEPS = ["crop", "shift", "flip", "vertical_flip", "jitter", "grey", "blur", "sobel", "noise"]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("probability", [0.0, 0.1, 0.6, 1.0])
def test_each_image_is_changed_with_the_probability(step: str, probability: float) -> None:
    x = images(1000, height=6, width=6)
    pairing = ImageAugmentation(ImageStrengths(**{step: probability}, crop_scale=0.1))
    share = changed(x, pairing.sample(x, generator())).mean()
    # a shift by nothing, a crop of everything, a blur of a tenth of a pixel
    unmoved = {"shift": 1 / 81, "crop": 0.05, "blur": 0.04}.get(step, 0)
    error = 4 * math.sqrt(probability * (1 - probability) / len(x))
    assert probability * (1 - unmoved) - error - 0.02 * bool(unmoved) <= share <= probability + error


def test_what_is_not_chosen_is_left_as_it_is() -> None:
    x = images(64)
    found = ImageAugmentation(ImageStrengths(flip=0.5)).sample(x, generator())
    flipped = changed(x, found)
    assert 10 < flipped.sum() < 54
    assert torch.equal(found[flipped], x[flipped].flip(3))
    assert torch.equal(found[~flipped], x[~flipped])


@pytest.mark.parametrize(
    ("step", "function"),
    [("grey", transforms.grey), ("sobel", transforms.sobel), ("vertical_flip", transforms.flipped_vertically)],
)
def test_steps_without_strength_are_their_function(step: str, function) -> None:
    x = images()
    assert torch.equal(ImageAugmentation(ImageStrengths(**{step: 1})).sample(x, generator()), function(x))


@pytest.mark.parametrize("part", ["brightness", "contrast", "saturation"])
def test_factors_of_the_jitter_are_uniform(part: str) -> None:
    strengths = dataclasses.replace(
        ImageStrengths(jitter=1, brightness=0, contrast=0, saturation=0, hue=0), **{part: 0.5}
    )
    x = 0.45 + 0.1 * images(2000, height=2, width=2, dtype=torch.float64)  # nothing is clipped
    found = ImageAugmentation(strengths).sample(x, generator())
    if part == "brightness":
        factors = (found / x)[:, 0, 0, 0]
    else:  # both leave grey alone and stretch what differs from it
        factors = (found[:, 0] - found[:, 1])[:, 0, 0] / (x[:, 0] - x[:, 1])[:, 0, 0]
    assert stats.kstest(factors.numpy(), stats.uniform(0.5, 1).cdf).pvalue > 1e-3


def test_turns_of_the_jitter_are_uniform() -> None:
    strengths = ImageStrengths(jitter=1, brightness=0, contrast=0, saturation=0, hue=0.1)
    x = torch.tensor([1.0, 0.5, 0.0], dtype=torch.float64).view(1, 3, 1, 1).repeat(2000, 1, 1, 1)  # half a sextant
    found = ImageAugmentation(strengths).sample(x, generator())[:, :, 0, 0]
    hues = np.array([colorsys.rgb_to_hsv(*pixel)[0] for pixel in found.tolist()])
    turns = (hues - 1 / 12 + 0.5) % 1 - 0.5
    assert stats.kstest(turns, stats.uniform(-0.1, 0.2).cdf).pvalue > 1e-3


@pytest.mark.parametrize("seed", range(4))
def test_the_jitter_spelled_out(seed: int) -> None:
    x, draws = images(16), generator(seed)
    slow = x
    for step in torch.randperm(4, generator=draws).tolist():
        change = (transforms.brightness, transforms.contrast, transforms.saturation, transforms.hue)[step]
        low, high = [(0.0, 2.5), (0.5, 1.5), (0.2, 1.8), (-0.2, 0.2)][step]
        slow = change(slow, torch.empty(16).uniform_(low, high, generator=draws))
    strengths = ImageStrengths(jitter=1, brightness=1.5, contrast=0.5, saturation=0.8, hue=0.2)
    torch.testing.assert_close(ImageAugmentation(strengths).sample(x, generator(seed)), slow)


def test_noise_has_its_standard_deviation() -> None:
    x = images(64)
    found = ImageAugmentation(ImageStrengths(noise=1, noise_std=0.2)).sample(x, generator()) - x
    assert found.std().item() == pytest.approx(0.2, rel=0.02)
    assert abs(found.mean().item()) < 0.01


def test_shifts_are_uniform() -> None:
    x = torch.zeros(4000, 1, 9, 9)
    x[:, :, 4, 4] = 1
    found = ImageAugmentation(ImageStrengths(shift=1, shift_pixels=2)).sample(x, generator())
    assert torch.equal(found.flatten(1).sum(1), torch.ones(4000))
    counts = found.sum((0, 1))[2:7, 2:7]
    assert counts.sum().item() == 4000
    assert stats.chisquare(counts.flatten().numpy()).pvalue > 1e-3


# --- boxes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [0.08, 0.4, 0.9, 1.0])
@pytest.mark.parametrize(("height", "width"), [(32, 32), (28, 20), (5, 40), (3, 3), (1, 1)])
def test_boxes_fit(scale: float, height: int, width: int) -> None:
    boxes = random_boxes(torch.zeros(3000, 1, height, width), scale, (3 / 4, 4 / 3), generator())
    top, left, tall, wide = boxes.T
    assert torch.equal(boxes, boxes.round())
    assert bool((top >= 0).all() & (left >= 0).all() & (tall >= 1).all() & (wide >= 1).all())
    assert bool((top + tall <= height).all() & (left + wide <= width).all())
    if (height, width) == (32, 32):
        ratio, area = wide / tall, tall * wide / 1024
        assert 0.6 < ratio.min().item() < ratio.max().item() < 1.7 or scale == 1  # whole pixels move it a little
        assert area.min().item() > scale - 0.04
        assert area.max().item() <= 1
    if (height, width) == (5, 40):  # at most 5 × 7
        assert wide.max().item() <= 8


def test_area_and_ratio_are_as_torchvision_draws_them() -> None:
    """One image at a time: try until it fits, in a large image, where rounding is nothing."""
    rng, side, found = np.random.default_rng(0), 1000, []
    while len(found) < 4000:
        area, stretch = rng.uniform(0.2, 1) * side**2, math.sqrt(math.exp(rng.uniform(math.log(0.75), -math.log(0.75))))
        tall, wide = round(math.sqrt(area) / stretch), round(math.sqrt(area) * stretch)
        if tall <= side and wide <= side:
            found.append((tall * wide / side**2, wide / tall))
    boxes = random_boxes(torch.zeros(4000, 1, side, 1).expand(-1, -1, -1, side), 0.2, (3 / 4, 4 / 3), generator())
    _, _, tall, wide = boxes.double().T.numpy()
    for ours, theirs in zip((tall * wide / side**2, wide / tall), np.array(found).T, strict=True):
        assert stats.ks_2samp(ours, theirs).pvalue > 1e-3


def test_places_of_boxes_are_uniform() -> None:
    top, left, tall, wide = random_boxes(torch.zeros(6000, 1, 8, 8), 0.2, (1.0, 1.0), generator()).T.numpy()
    for start, length in ((top, tall), (left, wide)):
        free = 8 - length
        assert stats.chisquare(np.bincount(start[free == 4].astype(int), minlength=5)).pvalue > 1e-3


# --- ranges, kinds of images, gradients -------------------------------------------------------------------------------


@every_preset
def test_values_stay_in_range_but_for_noise(name: str) -> None:
    x = images(200).round()  # zeros and ones
    found = ImageAugmentation(image_preset(name, noise=0)).sample(x, generator())
    assert -1e-6 <= found.min().item() <= found.max().item() <= 1 + 1e-6


def test_grey_images_have_no_colours_to_change() -> None:
    x = images(16, 1)
    assert torch.equal(ImageAugmentation(ImageStrengths(jitter=1, grey=1)).sample(x, generator()), x)


@every_preset
def test_gradients_flow(name: str) -> None:
    x = images(2, height=4, width=4, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: ImageAugmentation(name).sample(x, generator(1)), x)


def test_without_a_generator_the_global_one_is_used() -> None:
    pairing, x = ImageAugmentation("simclr-cifar"), images()
    torch.manual_seed(4)
    one = pairing.sample(x)
    torch.manual_seed(4)
    assert torch.equal(pairing.sample(x), one)


@every_preset
def test_no_images(name: str) -> None:
    assert ImageAugmentation(name).sample(images()[:0], generator()).shape == (0, 3, 12, 10)


# --- as a pairing -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("member", each(SAMPLED))
def test_a_pairing_that_is_only_sampled_has_no_density(member) -> None:
    pairing, x = member.built(), images(dtype=torch.float64)
    x = x.unsqueeze(1) if isinstance(pairing, Each) else x
    views = pairing(x, Needs(augmented=2), generator())
    assert views.augmented.shape == (2, *x.shape)
    assert not torch.equal(*views.augmented)
    name = type(pairing).__name__
    for question, what in ((pairing.log_prob, "density"), (pairing.score, "score")):
        with pytest.raises(InputError, match=f"^{name} can be drawn from, but its {what} is not known: "):
            question(x, x)
    with pytest.raises(InputError, match="density"):
        pairing.pairwise_log_prob(x, x)
    with pytest.raises(InputError, match="score"):
        pairing(x, Fisher().needs, generator())


def test_it_trains() -> None:
    pairing, x = ImageAugmentation("simclr-cifar"), images(16)
    objective = InfoNCE(candidates="two-view", pair="augmented")
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(360, 8))
    views = pairing(x, objective.needs, generator())
    objective(encoder, views).total.backward()
    assert encoder[1].weight.grad.abs().sum().item() > 0


def test_strengths_are_shown() -> None:
    text = repr(ImageAugmentation(ImageStrengths(flip=0.5, noise=1, noise_std=0.2)))
    assert text == "ImageAugmentation(flip=0.5, noise=1, noise_std=0.2)"


# --- presets and refusals ---------------------------------------------------------------------------------------------


def test_presets_are_those_of_the_papers() -> None:
    for name in ("gedi-svhn", "gedi-cifar10", "gedi-cifar100", "gedi-mnist"):
        found = IMAGE_PRESETS[name]  # GEDI, Table 9
        assert (found.jitter, found.grey, found.crop, found.noise) == (0.1, 0.1, 1, 1)
        assert found.noise_std == (0.2 if name == "gedi-mnist" else 0.03)
        assert found.flip == (0.5 if "cifar" in name else 0)
        assert found.vertical_flip == 0
    for name in ("simvae-mnist", "simvae-fashion", "simvae-cifar10", "simvae-celeba"):
        found = IMAGE_PRESETS[name]  # SimVAE, Table 2
        coloured = name in ("simvae-cifar10", "simvae-celeba")
        assert (found.crop, found.crop_ratio) == (1, (0.75, 1.3))
        assert found.crop_scale == (0.6 if coloured else 0.4)
        assert (found.vertical_flip, found.flip) == (0.5, 0)
        assert found.jitter == (0.8 if coloured else 0)
        if coloured:
            assert (found.brightness, found.saturation, found.contrast, found.hue) == (0.8, 0.8, 0.8, 0.2)


def test_a_preset_can_be_changed() -> None:
    assert image_preset("gedi-mnist") is not None
    assert image_preset("gedi-mnist", noise_std=0.1) == dataclasses.replace(IMAGE_PRESETS["gedi-mnist"], noise_std=0.1)
    with pytest.raises(InputError, match="did you mean 'gedi-mnist'"):
        ImageAugmentation("gedi-mnits")
    with pytest.raises(InputError, match="no strength 'noize'"):
        image_preset("gedi-mnist", noize=0.1)


def test_single_strengths_are_keywords() -> None:
    changed = image_preset("gedi-mnist", noise_std=0.1)
    assert ImageAugmentation("gedi-mnist", noise_std=0.1).strengths == changed
    assert ImageAugmentation(IMAGE_PRESETS["gedi-mnist"], noise_std=0.1).strengths == changed
    assert ImageAugmentation(flip=0.5).strengths == ImageStrengths(flip=0.5)
    assert ImageAugmentation().strengths == ImageStrengths()
    with pytest.raises(InputError, match="no strength 'noize'"):
        ImageAugmentation("gedi-mnist", noize=0.1)
    with pytest.raises(InputError, match="no strength 'noize'"):
        ImageAugmentation(noize=0.1)


@pytest.mark.parametrize(
    ("wrong", "part"),
    [
        ({"flip": 1.5}, "flip is a probability"),
        ({"crop": math.nan}, "crop is a probability"),
        ({"noise_std": -1}, "noise_std must be at least 0"),
        ({"brightness": math.inf}, "brightness must be at least 0 and finite"),
        ({"hue": 0.6}, "from 0 to 0.5"),
        ({"crop_scale": 0}, "above 0 and at most 1"),
        ({"crop_ratio": (2, 1)}, "crop_ratio must be a positive range"),
        ({"blur_width": (0, 1)}, "blur_width must be a positive range"),
    ],
)
def test_bad_strengths(wrong: dict, part: str) -> None:
    with pytest.raises(InputError) as error:
        ImageStrengths(**wrong)
    assert part in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("x", "part"),
    [
        (torch.zeros(2, 28, 28), "of type float32 and shape (2, 28, 28)"),
        (torch.zeros(2, 3, 8, 8, dtype=torch.uint8), "of type uint8"),
        (torch.zeros(2, 4, 8, 8), "these have 4"),
    ],
)
def test_bad_images(x: Tensor, part: str) -> None:
    with pytest.raises(InputError) as error:
        ImageAugmentation("simclr-cifar").sample(x, generator())
    assert part in str(error.value)
