"""Random augmentations of images, and the strengths that papers use."""

from __future__ import annotations

import dataclasses
import difflib
import math
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from probssl.errors import InputError
from probssl.pairings import image_transforms as transforms
from probssl.pairings.views import Needs, SampledPairing, standard_normal
from probssl.parts.part import Setting, explanations

ATTEMPTS = 10
"""Boxes drawn for a crop, of which the first that fits into the image is taken, as in torchvision."""

Change = Callable[[Tensor, "torch.Generator | None"], Tensor]

_STEPS = ("crop", "shift", "flip", "vertical_flip", "jitter", "grey", "blur", "sobel", "noise")
_COLOURS = ("brightness", "contrast", "saturation", "hue")


@dataclass(frozen=True)
class ImageStrengths:
    """What is done to an image, how often and how strongly; by default nothing.

    A name alone is the probability with which an image is changed that way. Strengths are those of torchvision.

    Settings:
        crop: a box of the image, stretched to its size.
        crop_scale: least share of the image's area in the box; the largest is 1.
        crop_ratio: least and largest width over height of the box, uniform in its logarithm.
        shift: a move in both directions, zeros coming in: a crop of the padded image.
        shift_pixels: farthest move in each direction, the padding.
        flip: left and right exchanged.
        vertical_flip: top and bottom exchanged.
        jitter: brightness, contrast, saturation and hue changed, in an order that is drawn for the batch.
        brightness: the factor is uniform in 1 ± this, and not below 0.
        contrast: as for brightness.
        saturation: as for brightness.
        hue: turns of the circle of hues, uniform in ± this.
        grey: colours lost.
        blur: a Gaussian blur, its kernel as wide as a tenth of the image and at least three pixels (SimCLR).
        blur_width: least and largest standard deviation, in pixels.
        sobel: edges in place of the image.
        noise: independent Gaussian noise in every value, which may leave [0, 1].
        noise_std: its standard deviation.
    """

    crop: float = 0.0
    crop_scale: float = 0.08
    crop_ratio: tuple[float, float] = (3 / 4, 4 / 3)
    shift: float = 0.0
    shift_pixels: int = 4
    flip: float = 0.0
    vertical_flip: float = 0.0
    jitter: float = 0.0
    brightness: float = 0.4
    contrast: float = 0.4
    saturation: float = 0.4
    hue: float = 0.1
    grey: float = 0.0
    blur: float = 0.0
    blur_width: tuple[float, float] = (0.1, 2.0)
    sobel: float = 0.0
    noise: float = 0.0
    noise_std: float = 0.03

    def __post_init__(self) -> None:
        for name in _STEPS:
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"{name} is a probability, from 0 to 1, not {getattr(self, name)}")
        for name in ("brightness", "contrast", "saturation", "noise_std", "shift_pixels"):
            if not 0 <= getattr(self, name) < math.inf:
                raise InputError(f"{name} must be at least 0 and finite, not {getattr(self, name)}")
        if not 0 <= self.hue <= 0.5:
            raise InputError(f"hue is a share of the circle in either direction, from 0 to 0.5, not {self.hue}")
        if not 0 < self.crop_scale <= 1:
            raise InputError(f"crop_scale is a share of the area, above 0 and at most 1, not {self.crop_scale}")
        for name in ("crop_ratio", "blur_width"):
            low, high = getattr(self, name)
            if not 0 < low <= high < math.inf:
                raise InputError(f"{name} must be a positive range, not from {low} to {high}")


_ABOUT = explanations(ImageStrengths)

_SIMCLR = ImageStrengths(crop=1.0, flip=0.5, jitter=0.8, grey=0.2)
_GEDI = ImageStrengths(crop=1.0, jitter=0.1, grey=0.1, noise=1.0, noise_std=0.03)
_SIAMESE = ImageStrengths(crop=1.0, crop_scale=0.2, flip=0.5, jitter=0.8, grey=0.2)
_SIMVAE = ImageStrengths(crop=1.0, crop_ratio=(0.75, 1.3), vertical_flip=0.5)
_SIMVAE_COLOUR = dataclasses.replace(
    _SIMVAE, crop_scale=0.6, jitter=0.8, brightness=0.8, contrast=0.8, saturation=0.8, hue=0.2
)

IMAGE_PRESETS: Mapping[str, ImageStrengths] = MappingProxyType(
    {
        "simclr-cifar": _SIMCLR,
        "siamese-cifar": dataclasses.replace(_SIAMESE, blur=0.5),
        "siamese-fisher": dataclasses.replace(_SIAMESE, noise=1.0, noise_std=1.0),
        "siamese-digits": ImageStrengths(crop=1.0, crop_scale=0.4, noise=1.0, noise_std=1.0),
        "gedi-svhn": _GEDI,
        "gedi-cifar10": dataclasses.replace(_GEDI, flip=0.5),
        "gedi-cifar100": dataclasses.replace(_GEDI, flip=0.5),
        "gedi-mnist": dataclasses.replace(_GEDI, crop_scale=0.4, noise_std=0.2),
        "simvae-mnist": dataclasses.replace(_SIMVAE, crop_scale=0.4),
        "simvae-fashion": dataclasses.replace(_SIMVAE, crop_scale=0.4),
        "simvae-cifar10": _SIMVAE_COLOUR,
        "simvae-celeba": _SIMVAE_COLOUR,
    }
)
"""ImageStrengths by paper and data.

simclr-cifar: Chen et al. 2020, appendix B.9: jitter of half strength, no blur.
siamese-cifar, siamese-fisher: Siamese-EBM, section 4.3: those of SimSiam (Chen & He 2021, appendix A), for the Fisher
    loss with noise in place of the blur. Its standard deviation is not printed; 1 is ours, see docs/images.md.
siamese-digits: the same for digits, which are neither turned round nor coloured, and larger boxes.
gedi-*: GEDI, Table 9, which gives probabilities and noise. It prints neither strengths of the jitter nor the scale of
    the crop: those of SimCLR stand in, and for digits the scale of SimVAE, since a twelfth of a digit is not one.
simvae-*: SimVAE, Table 2. Its flip is vertical, in the paper and in the code; the code jitters always.
"""


class ImageAugmentation(SampledPairing):
    """x̃ = noise(edges(blur(grey(jitter(flip(crop(x)))))), each step with its probability and draws for every image.

    `strengths` are given, or the name of a preset. Images come as [n, c, h, w] in [0, 1]; what is not noisy stays in
    [0, 1]. Images of one channel have no colours to change: jitter and grey leave them alone. Only the images chosen
    for a step are computed.

    The density p(x̃ | x) is not known. Where every image gets noise of standard deviation σ, x̃ = A_a(x) + ε, a batch
    can have the score along the augmentation a that was drawn, s_a = J_aᵀ ε / σ², J_a being the Jacobian of A_a at x
    (Siamese-EBM appendix E.2, Listing 1). The paper means it as an approximation, good where other augmentations make
    images far from x̃; but its mean over the a that may have made x̃ is the score itself,

        ∇ₓ log p(x̃ | x) = E[s_a | x, x̃],   hence   E‖s_a + ∇δ‖² = E‖∇ₓ log p(x̃ | x) + ∇δ‖² + E Var(s_a | x, x̃)

    with a last term that no encoder changes (Vincent 2011, of denoising): `Fisher` and `SlicedFisher` have the same
    gradient in the mean and the same minimiser, whatever is drawn, blurs included; only their value is larger.

    Settings:
        strengths: an `ImageStrengths` or the name of one to begin from; nothing is done to images unless given.
        changes: single strengths in place of those: `ImageAugmentation("simclr-cifar", crop_scale=0.2)`.
    """

    takes = 3

    def __init__(self, strengths: ImageStrengths | str | None = None, **changes: Any) -> None:
        super().__init__()
        given = image_preset(strengths) if isinstance(strengths, str) else strengths or ImageStrengths()
        self.strengths = _changed(given, changes)

    def settings(self) -> dict[str, Any]:
        defaults = ImageStrengths()
        chosen = {field.name: getattr(self.strengths, field.name) for field in dataclasses.fields(ImageStrengths)}
        return {name: value for name, value in chosen.items() if value != getattr(defaults, name)}

    @classmethod
    def declared(cls) -> dict[str, Setting]:
        hints = typing.get_type_hints(ImageStrengths)
        return {
            field.name: Setting(field.name, hints[field.name], field.default, _ABOUT[field.name])
            for field in dataclasses.fields(ImageStrengths)
        }

    @property
    def knows_score(self) -> bool:
        return has_score(self.strengths)

    def sample(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return _change_some(self._moved(x, generator), self.strengths.noise, self._noise, generator)

    def _moved(self, x: Tensor, generator: torch.Generator | None) -> Tensor:
        """All but the noise."""
        strengths = self.strengths
        coloured = self._is_coloured(x)
        steps: list[tuple[float, Change]] = [
            (strengths.crop, self._crop),
            (strengths.shift, self._shift),
            (strengths.flip, lambda rows, _: transforms.flipped_horizontally(rows)),
            (strengths.vertical_flip, lambda rows, _: transforms.flipped_vertically(rows)),
            (strengths.jitter if coloured else 0.0, self._jitter),
            (strengths.grey if coloured else 0.0, lambda rows, _: transforms.grey(rows)),
            (strengths.blur, self._blur),
            (strengths.sobel, lambda rows, _: transforms.sobel(rows)),
        ]
        for probability, change in steps:
            x = _change_some(x, probability, change, generator)
        return x

    def related(self, x: Tensor, needs: Needs, generator: torch.Generator | None) -> tuple[Tensor, Tensor | None]:
        if not needs.score or not needs.augmented:
            return super().related(x, needs, generator)
        draws = [self.sample_with_score(x, generator) for _ in range(needs.augmented)]
        augmented, score = (torch.stack(drawn) for drawn in zip(*draws, strict=True))
        return augmented, score

    def sample_with_score(self, x: Tensor, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """A draw x̃ = A_a(x) + ε, the same as that of `sample`, and its score J_aᵀ ε / σ² along a: [n, c, h, w] each."""
        if not has_score(self.strengths):
            scored = [name for name, strengths in IMAGE_PRESETS.items() if has_score(strengths)]
            raise InputError(
                "an augmentation of images has a score where all of them get noise: set noise=1 and a positive "
                f"noise_std, or choose one of {', '.join(scored)}"
            )
        std = self.strengths.noise_std
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            moved = self._moved(x, generator)
            noise = standard_normal(moved, generator)
            (score,) = torch.autograd.grad(moved, x, noise / std)
        return torch.add(moved.detach(), noise, alpha=std), score

    def _is_coloured(self, x: Tensor) -> bool:
        if x.ndim != 4 or not x.is_floating_point():
            raise InputError(
                f"images to augment are a floating point tensor [n, channels, height, width] from 0 to 1, "
                f"not one of type {str(x.dtype).removeprefix('torch.')} and shape {tuple(x.shape)}"
            )
        if x.shape[1] not in (1, 3) and (self.strengths.jitter or self.strengths.grey):
            raise InputError(f"colours change in images of 3 channels and not in those of 1: these have {x.shape[1]}")
        return x.shape[1] == 3

    def _crop(self, x: Tensor, generator: torch.Generator | None) -> Tensor:
        strengths = self.strengths
        boxes = random_boxes(x, strengths.crop_scale, strengths.crop_ratio, generator)
        return transforms.resized_crop(x, boxes)

    def _shift(self, x: Tensor, generator: torch.Generator | None) -> Tensor:
        reach = self.strengths.shift_pixels
        moves = torch.randint(-reach, reach + 1, (2, len(x)), generator=generator, device=x.device)
        return transforms.shifted(x, *moves)

    def _jitter(self, x: Tensor, generator: torch.Generator | None) -> Tensor:
        strengths = self.strengths
        steps = (
            (transforms.brightness, max(0.0, 1 - strengths.brightness), 1 + strengths.brightness),
            (transforms.contrast, max(0.0, 1 - strengths.contrast), 1 + strengths.contrast),
            (transforms.saturation, max(0.0, 1 - strengths.saturation), 1 + strengths.saturation),
            (transforms.hue, -strengths.hue, strengths.hue),
        )
        for index in torch.randperm(len(steps), generator=generator, device=x.device).tolist():
            change, low, high = steps[index]
            if low < high:
                x = change(x, _uniform(x, low, high, generator))
        return x

    def _blur(self, x: Tensor, generator: torch.Generator | None) -> Tensor:
        taps = max(3, min(x.shape[2:]) // 10 // 2 * 2 + 1)
        return transforms.blurred(x, _uniform(x, *self.strengths.blur_width, generator), taps)

    def _noise(self, x: Tensor, generator: torch.Generator | None) -> Tensor:
        return torch.add(x, standard_normal(x, generator), alpha=self.strengths.noise_std)


def has_score(strengths: ImageStrengths) -> bool:
    """Whether every image gets noise, without which p(x̃ | x) has no density to take the slope of."""
    return strengths.noise >= 1 and strengths.noise_std > 0


def image_preset(name: str, **changes: object) -> ImageStrengths:
    """The strengths of that name, some of them changed: `image_preset("simclr-cifar", crop_scale=0.2)`."""
    if name not in IMAGE_PRESETS:
        close = difflib.get_close_matches(name, IMAGE_PRESETS, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise InputError(f"there are augmentations named {', '.join(IMAGE_PRESETS)}, not {name!r}{hint}")
    return _changed(IMAGE_PRESETS[name], changes)


def _changed(strengths: ImageStrengths, changes: Mapping[str, Any]) -> ImageStrengths:
    unknown = changes.keys() - {field.name for field in dataclasses.fields(ImageStrengths)}
    if unknown:
        raise InputError(f"an augmentation has no strength {min(unknown)!r}")
    return dataclasses.replace(strengths, **changes)


def each_alone(strengths: ImageStrengths | str) -> dict[str, ImageAugmentation]:
    """Every augmentation that these strengths make use of, alone and always applied, by name.

    The jitter is taken apart: `brightness`, `contrast`, `saturation`, `hue`. AnInfoNCE (Table 1) asks of a
    representation whether each can be told from it (`metrics.retention.augmentation_readout`).
    """
    given = image_preset(strengths) if isinstance(strengths, str) else strengths
    found: dict[str, dict[str, float]] = {name: {name: 1.0} for name in _STEPS if getattr(given, name) > 0}
    if found.pop("jitter", None):
        colours = [name for name in _COLOURS if getattr(given, name) > 0]
        found |= {name: {"jitter": 1.0, **{c: 0.0 for c in _COLOURS if c != name}} for name in colours}
    still = dict.fromkeys(_STEPS, 0.0)
    return {
        name: ImageAugmentation(dataclasses.replace(given, **{**still, **alone}))  # type: ignore[arg-type]
        for name, alone in found.items()
    }


def random_boxes(
    x: Tensor, scale: float, ratio: tuple[float, float], generator: torch.Generator | None = None
) -> Tensor:
    """A box of whole pixels for every image: top, left, height, width, [n, 4].

    Its area is uniform in [scale, 1] of the image's and its width over height log-uniform in `ratio`, among the boxes
    that fit; where none of ten does, it is the largest whose ratio is allowed. Its place is uniform.
    """
    count, height, width = len(x), x.shape[2], x.shape[3]
    shape = (count, ATTEMPTS)
    area = _uniform(x, scale, 1.0, generator, shape) * (height * width)
    stretch = (0.5 * _uniform(x, math.log(ratio[0]), math.log(ratio[1]), generator, shape)).exp()
    sides = torch.stack([area.sqrt() / stretch, area.sqrt() * stretch]).round()  # [2, n, attempts]: height, width
    largest = sides.new_tensor([min(height, round(width / ratio[0])), min(width, round(height * ratio[1]))])
    sides = torch.cat([sides, largest.view(2, 1, 1).expand(2, count, 1)], 2)
    limits = sides.new_tensor([height, width])
    fits = ((sides >= 1) & (sides <= limits.view(2, 1, 1))).all(0)
    first = torch.where(fits, torch.arange(ATTEMPTS + 1, device=x.device), ATTEMPTS).amin(1)
    chosen = sides.gather(2, first.expand(2, count).unsqueeze(2)).squeeze(2).T  # [n, 2]
    corner = (_uniform(x, 0.0, 1.0, generator, (count, 2)) * (limits - chosen + 1)).floor()
    return torch.cat([torch.minimum(corner, limits - chosen), chosen], 1)


def _change_some(x: Tensor, probability: float, change: Change, generator: torch.Generator | None) -> Tensor:
    """x with each row changed with that probability; the rows left alone cost a copy."""
    if probability >= 1:
        return change(x, generator)
    if probability <= 0:
        return x
    index = (_uniform(x, 0.0, 1.0, generator) < probability).nonzero().squeeze(1)
    if not len(index):
        return x
    return x.index_copy(0, index, change(x.index_select(0, index), generator))


def _uniform(
    x: Tensor, low: float, high: float, generator: torch.Generator | None, shape: tuple[int, ...] | None = None
) -> Tensor:
    """Uniform numbers, one an image or of a shape; single precision, so that a seed means one augmentation."""
    empty = torch.empty(shape or (len(x),), device=x.device, dtype=torch.float32)
    return empty.uniform_(low, high, generator=generator)
