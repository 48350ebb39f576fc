"""Augmentations of images: milliseconds a batch of 256 × 3 × 32 × 32, ours beside kornia's, step by step and whole.

One thread, CPU time, no gradients; the two take turns, and the best of all turns counts. Each step is run with the
probability in brackets. A large piece of memory is freed first, after which the C library keeps what is freed, as it
does in any training: else page faults are most of what is measured, of both. About ten seconds:

    OMP_NUM_THREADS=1 python benchmarks/augmentations.py --out benchmarks/results/augmentations.json
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from running import begin, keep
from torch import Tensor, nn

from probssl.pairings import IMAGE_PRESETS, ImageAugmentation, ImageStrengths

COUNT, SIDE, TURNS = 256, 32, 12

Step = Callable[[Tensor], Tensor]


def ours(strengths: ImageStrengths) -> Step:
    pairing, generator = ImageAugmentation(strengths), torch.Generator().manual_seed(0)
    return lambda x: pairing.sample(x, generator)


def theirs(strengths: ImageStrengths, side: int) -> Step:
    """The same steps with the same strengths, by kornia."""
    import kornia
    from kornia import augmentation

    s = strengths
    steps: list[tuple[float, Callable[[], nn.Module]]] = [
        (
            s.crop,
            lambda: augmentation.RandomResizedCrop(
                (side, side), scale=(s.crop_scale, 1.0), ratio=s.crop_ratio, align_corners=False, p=s.crop
            ),
        ),
        (s.shift, lambda: augmentation.RandomCrop((side, side), padding=s.shift_pixels, p=s.shift)),
        (s.flip, lambda: augmentation.RandomHorizontalFlip(p=s.flip)),
        (s.vertical_flip, lambda: augmentation.RandomVerticalFlip(p=s.vertical_flip)),
        (s.jitter, lambda: augmentation.ColorJitter(s.brightness, s.contrast, s.saturation, s.hue, p=s.jitter)),
        (s.grey, lambda: augmentation.RandomGrayscale(p=s.grey)),
        (s.blur, lambda: augmentation.RandomGaussianBlur((3, 3), s.blur_width, p=s.blur)),
        (s.sobel, lambda: kornia.filters.Sobel()),
        (s.noise, lambda: augmentation.RandomGaussianNoise(std=s.noise_std, p=s.noise)),
    ]
    return nn.Sequential(*(build() for probability, build in steps if probability))


CASES: dict[str, ImageStrengths] = {
    "resized crop (1)": ImageStrengths(crop=1),
    "padded crop (1)": ImageStrengths(shift=1),
    "flip (0.5)": ImageStrengths(flip=0.5),
    "colour jitter (1)": ImageStrengths(jitter=1),
    "· hue alone (1)": ImageStrengths(jitter=1, brightness=0, contrast=0, saturation=0),
    "grey (0.2)": ImageStrengths(grey=0.2),
    "blur (0.5)": ImageStrengths(blur=0.5),
    "Sobel (1)": ImageStrengths(sobel=1),
    "noise (1)": ImageStrengths(noise=1),
    "`simclr-cifar`": IMAGE_PRESETS["simclr-cifar"],
    "`gedi-cifar10`": IMAGE_PRESETS["gedi-cifar10"],
    "`simvae-cifar10`": IMAGE_PRESETS["simvae-cifar10"],
}


def milliseconds(actions: list[Callable[[], object]]) -> list[float]:
    """CPU time of each, the best of several turns that they take one after the other."""
    best = [float("inf")] * len(actions)
    for turn in range(TURNS + 2):  # two to warm up
        for index, action in enumerate(actions):
            started = time.process_time()
            action()
            if turn > 1:
                best[index] = min(best[index], 1000 * (time.process_time() - started))
    return best


@torch.no_grad()
def main() -> None:
    """All steps, then the whole of some presets."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--side", type=int, default=SIDE)
    options = begin(parser)
    torch.set_num_threads(1)
    torch.empty(31 * 2**20, dtype=torch.uint8).zero_()  # freed at once
    x = torch.rand(options.count, 3, options.side, options.side, generator=torch.Generator().manual_seed(0))
    results: dict[str, dict[str, float]] = {}
    print(f"{options.count} × 3 × {options.side} × {options.side}, ms")
    print(f"{'step':<22}{'ours':>8}{'kornia':>9}{'ratio':>8}")
    for name, strengths in CASES.items():
        mine, other = ours(strengths), theirs(strengths, options.side)
        found = milliseconds([lambda f=mine: f(x), lambda f=other: f(x)])  # type: ignore[misc]
        results[name] = {"ours": round(found[0], 2), "kornia": round(found[1], 2)}
        print(f"{name:<22}{found[0]:>8.2f}{found[1]:>9.2f}{found[1] / found[0]:>8.1f}")
        keep(options.out, results)


if __name__ == "__main__":
    main()
