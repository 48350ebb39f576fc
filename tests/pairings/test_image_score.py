"""The score of augmented images: Listing 1 of Siamese-EBM, and the exact one where outcomes can be counted."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn

from probssl.encoders import ConvEncoder, seeded
from probssl.energies import Cosine, Euclidean
from probssl.errors import InputError
from probssl.objectives import Fisher, InfoNCE, SlicedFisher
from probssl.objectives.reference import reference_losses
from probssl.pairings import (
    IMAGE_PRESETS,
    CountableImageAugmentation,
    ImageAugmentation,
    ImageStrengths,
    Needs,
    image_preset,
)
from probssl.pairings import image_transforms as transforms
from probssl.pairings.images import has_score
from probssl.parts.registry import KINDS
from tests.objectives.members import generator

SCORED = sorted(name for name in IMAGE_PRESETS if has_score(image_preset(name)))
every_scored = pytest.mark.parametrize("name", SCORED)
FLIPS = ImageStrengths(flip=0.3, vertical_flip=0.5, grey=0.2, sobel=0.4, noise=1, noise_std=0.3)


def images(
    count: int, channels: int = 3, height: int = 4, width: int = 5, dtype: torch.dtype = torch.float64
) -> Tensor:
    return torch.rand(count, channels, height, width, generator=generator(), dtype=dtype)


def listing(pairing: ImageAugmentation, x: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Listing 1, line by line."""
    std, chance = pairing.strengths.noise_std, generator(seed)
    x = x.clone().requires_grad_()
    x_hat = pairing._moved(x, chance)
    x_augmented = x_hat.detach() + std * torch.empty_like(x_hat).normal_(generator=chance)
    log_p_aug_given_x = -0.5 * torch.sum(torch.square(x_augmented - x_hat)) / (std**2)
    log_p_aug_given_x.backward()
    return x_augmented, x.grad.detach()


# --- along the augmentation that was drawn ----------------------------------------------------------------------------


@every_scored
@pytest.mark.parametrize("channels", [1, 3])
def test_the_score_is_that_of_listing_1(name: str, channels: int) -> None:
    pairing, x = ImageAugmentation(name), images(6, channels, 9, 8)
    for fast, slow in zip(pairing.sample_with_score(x, generator(3)), listing(pairing, x, 3), strict=True):
        torch.testing.assert_close(fast, slow, rtol=1e-9, atol=1e-9)


@every_scored
def test_draws_are_those_of_sample(name: str) -> None:
    """With and without a score, a seed means one augmentation, bit by bit."""
    pairing, x = ImageAugmentation(name), images(5, dtype=torch.float32)
    assert torch.equal(pairing.sample_with_score(x, generator(2))[0], pairing.sample(x, generator(2)))
    views = pairing(x, Needs(augmented=2, score=True, directions=3, noise=7), generator(2))
    plain = pairing(x, Needs(augmented=2, directions=3, noise=7), generator(2))
    assert (views.augmented.shape, views.score.shape) == ((2, *x.shape),) * 2
    assert torch.equal(views.augmented, plain.augmented)
    assert torch.equal(views.directions, plain.directions)
    assert torch.equal(views.noise, plain.noise)
    assert not views.score.requires_grad
    assert not views.augmented.requires_grad


def test_it_is_the_slope_of_a_finite_difference() -> None:
    """∇ₓ log N(x̃ − A_a(x) | 0, σ²) with a and x̃ held, pixel by pixel."""
    pairing, x, step = ImageAugmentation("siamese-fisher"), images(2, 3, 4, 4), 1e-6
    x_aug, score = pairing.sample_with_score(x, generator(5))

    def log_density(x: Tensor) -> Tensor:
        return -(x_aug - pairing._moved(x, generator(5))).square().sum((1, 2, 3)) / (2 * pairing.strengths.noise_std**2)

    slow = torch.empty_like(x)
    for place in np.ndindex(*x.shape[1:]):
        move = torch.zeros_like(x)
        move[(slice(None), *place)] = step
        slow[(slice(None), *place)] = (log_density(x + move) - log_density(x - move)) / (2 * step)
    torch.testing.assert_close(score, slow, rtol=1e-4, atol=1e-3)


def test_noise_alone_has_the_score_of_gaussian_noise() -> None:
    pairing, x = ImageAugmentation(ImageStrengths(noise=1, noise_std=0.2)), images(4)
    x_aug, score = pairing.sample_with_score(x, generator())
    torch.testing.assert_close(score, (x_aug - x) / 0.2**2)


# --- the exact score, and that Listing 1 is right in the mean ---------------------------------------------------------


def slow_components(x: np.ndarray) -> list[tuple[float, np.ndarray]]:
    """All outcomes of `FLIPS` on one image, nested loops."""
    found = []
    for flip, upside, grey, sobel in np.ndindex(2, 2, 2, 2):
        moved = torch.from_numpy(x)[None]
        moved = transforms.flipped_horizontally(moved) if flip else moved
        moved = transforms.flipped_vertically(moved) if upside else moved
        moved = transforms.grey(moved) if grey else moved
        moved = transforms.sobel(moved) if sobel else moved
        weight = (0.3 if flip else 0.7) * 0.5 * (0.2 if grey else 0.8) * (0.4 if sobel else 0.6)
        found.append((weight, moved[0].numpy()))
    return found


def test_the_exact_density_is_the_mixture_of_all_outcomes() -> None:
    pairing, x = CountableImageAugmentation(FLIPS), images(3)
    x_aug = pairing.sample(x, generator(1))
    for one, moved, found in zip(x.numpy(), x_aug.numpy(), pairing.log_prob(x_aug, x), strict=True):
        slow = sum(
            weight * math.exp(stats.norm.logpdf(moved, centre, 0.3).sum()) for weight, centre in slow_components(one)
        )
        assert found.item() == pytest.approx(math.log(slow), rel=1e-10)
    every = pairing.pairwise_log_prob(x_aug, x)
    torch.testing.assert_close(every.diagonal(), pairing.log_prob(x_aug, x))
    torch.testing.assert_close(every[0, 2], pairing.log_prob(x_aug[:1], x[2:])[0])


@pytest.mark.parametrize(
    "strengths", [FLIPS, ImageStrengths(shift=0.9, shift_pixels=1, flip=1, noise=1, noise_std=0.2)]
)
def test_the_exact_score_is_the_slope_of_the_density(strengths: ImageStrengths) -> None:
    pairing, x = CountableImageAugmentation(strengths), images(2).requires_grad_()
    x_aug = torch.stack([pairing.sample(x.detach(), generator(seed)) for seed in (0, 1)])
    slow = torch.stack([torch.autograd.grad(pairing.log_prob(one, x).sum(), x)[0] for one in x_aug])
    torch.testing.assert_close(pairing.score(x_aug, x), slow)
    assert torch.autograd.gradcheck(lambda x: pairing.log_prob(x_aug[0], x), x)
    views = pairing(x.detach(), Needs(augmented=2, score=True), generator(4))
    torch.testing.assert_close(views.score, pairing.score(views.augmented, x))


def test_outcomes_are_as_likely_as_they_are_drawn() -> None:
    """The density integrates what `sample` draws: E[h(x̃)] from draws and from the mixture."""
    pairing, x = CountableImageAugmentation(FLIPS), images(1).float()
    draws = pairing.sample(x.expand(40_000, -1, -1, -1), generator()).double()
    exact = sum(weight * torch.from_numpy(centre) for weight, centre in slow_components(x[0].double().numpy()))
    error = (draws.mean(0) - exact) / (draws.std(0) / 200)
    assert error.abs().max().item() < 4.5


def test_the_drawn_score_has_the_exact_one_as_its_mean() -> None:
    """E[s_a | x, x̃] = ∇ₓ log p(x̃ | x): the difference is orthogonal to functions of x̃, whatever overlaps."""
    strengths = ImageStrengths(flip=0.4, grey=0.3, noise=1, noise_std=0.4)  # so noisy that outcomes are mixed up
    x = images(1, 3, 2, 2).float().expand(200_000, -1, -1, -1)
    x_aug, drawn = ImageAugmentation(strengths).sample_with_score(x, generator())
    exact = CountableImageAugmentation(strengths).score(x_aug, x)
    assert (drawn - exact).square().mean().sqrt().item() > 0.5, "one by one they differ"
    gap = (drawn - exact).flatten(1)
    for test in (torch.ones_like(gap), x_aug.flatten(1), x_aug.flatten(1).flip(1), x_aug.flatten(1).square()):
        product = gap * test
        z = product.mean(0) / (product.std(0) / len(product) ** 0.5)
        assert z.abs().max().item() < 4.5


def test_fisher_differs_by_a_constant_alone() -> None:
    """L with drawn scores − L with exact ones is the same for every encoder: the gradients agree in the mean."""
    strengths = ImageStrengths(flip=0.4, noise=1, noise_std=0.4)
    x = images(1, 1, 2, 2).float().expand(100_000, -1, -1, -1)
    generator_ = generator(1)
    views = ImageAugmentation(strengths)(x, Fisher().needs, generator_)
    exact = CountableImageAugmentation(strengths).score(views.augmented, x)
    gaps = []
    for seed in range(3):
        encoder = seeded(seed, lambda: nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)))
        x_ = x.clone().requires_grad_()
        energy = Euclidean().paired(encoder(x_), encoder(views.augmented[0]))
        (slope,) = torch.autograd.grad(energy.sum(), x_)
        each = [(score + slope).flatten(1).square().sum(1) for score in (views.score[0], exact[0])]
        gaps.append(each[0] - each[1])
    for other in gaps[1:]:
        change = gaps[0] - other
        assert abs(change.mean().item()) < 4 * change.std().item() / len(change) ** 0.5
    assert gaps[0].mean().item() > 1


# --- training ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("objective", [Fisher(), Fisher(Cosine(0.2)), Fisher(step=0.1), SlicedFisher(expanded=True)])
@every_scored
def test_fisher_trains_on_images(objective: Fisher | SlicedFisher, name: str) -> None:
    x = images(8, 3, 8, 8).float()
    encoder = seeded(0, lambda: ConvEncoder((4, 4), 4, hidden=8).bind(shape=(3, 8, 8)))
    views = ImageAugmentation(name)(x, objective.needs, generator())
    objective(encoder, views).total.backward()
    gradients = [parameter.grad for parameter in encoder.parameters() if parameter.grad is not None]
    assert all(bool(gradient.isfinite().all()) for gradient in gradients)
    assert sum(gradient.abs().sum().item() for gradient in gradients) > 0


def test_grey_pixels_and_black_ones_have_finite_scores() -> None:
    """The hue of a grey pixel is not defined; its slope must not be infinite."""
    x = torch.zeros(64, 3, 8, 8)
    x[32:] = torch.rand(32, 1, 8, 8, generator=generator())
    _, score = ImageAugmentation(image_preset("siamese-fisher", jitter=1)).sample_with_score(x, generator())
    assert score.isfinite().all()
    assert score.abs().max().item() < 1e3


def test_the_least_possible_loss_is_known_where_outcomes_are_counted() -> None:
    x = images(32, 1).float()
    encoder = seeded(0, lambda: nn.Sequential(nn.Flatten(), nn.Linear(20, 3)))
    pairing = CountableImageAugmentation(ImageStrengths(flip=0.5, noise=1, noise_std=0.3))
    found = reference_losses(encoder, InfoNCE(), pairing, x, batch_size=16, batches=4)
    assert found.optimum.mean < found.model.mean
    exact = reference_losses(encoder, Fisher(), pairing, x, batch_size=16, batches=4)
    assert exact.optimum.mean == pytest.approx(0, abs=1e-6)


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_without_noise_there_is_no_score() -> None:
    assert set(SCORED) < set(KINDS["pairing"])
    for strengths in ("simclr-cifar", ImageStrengths(flip=0.5), image_preset("gedi-mnist", noise=0.5)):
        with pytest.raises(InputError, match=r"set noise=1 and a positive noise_std, or choose one of siamese-fisher"):
            ImageAugmentation(strengths)(images(2), Fisher().needs, generator())


@pytest.mark.parametrize(
    ("strengths", "part"),
    [
        ({"crop": 1, "noise": 1}, "outcomes of crop cannot be counted"),
        ({"jitter": 0.1, "noise": 1}, "outcomes of jitter"),
        ({"blur": 0.1, "noise": 1}, "outcomes of blur"),
        ({"flip": 0.5}, "needs noise on all of them"),
        ({"shift": 1, "shift_pixels": 40, "noise": 1}, "6,561 outcomes, and 4,096 are the most: shift less"),
    ],
)
def test_what_cannot_be_counted_is_refused(strengths: dict, part: str) -> None:
    with pytest.raises(InputError) as error:
        CountableImageAugmentation(ImageStrengths(**strengths))
    assert part in str(error.value)
    assert "\n" not in str(error.value)
