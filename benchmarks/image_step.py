"""One training step on images, ResNet-18 at batch 256 of 3 × 32 × 32 under SimCLR: ours beside the best that installs.

Ours is what `probssl.training.fit` does: its augmentations, `ResNet18` with the head of SimCLR, the fused loss, SGD.
The other is put together from PyPI without torchvision: kornia's augmentations, a ResNet-18 and an NT-Xent loss as they
are usually written, SGD. Both start from the same weights. Parts are timed apart (augmentation of two views, forward
and backward through the encoder, loss with its gradient in the embeddings, optimiser) and as a whole. The NT-Xent loss
of pytorch-metric-learning, where that is installed, is timed beside: it is far slower than a plain one.

CPU time of one thread, median of a few rounds in which all take turns, after a small batch to warm up. `--contiguous`
is ours in the other memory order, `--compile` ours under torch.compile, `--fit` a step in `fit` itself. A round takes
seconds at width 16 and a minute or two at width 64, that of the papers:

    OMP_NUM_THREADS=1 python benchmarks/image_step.py --width 64 --rounds 1 --out benchmarks/results/image_step.json
"""

from __future__ import annotations

import argparse
import copy
import itertools
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from running import begin, keep
from torch import Tensor, nn
from torch.nn import functional as F

from probssl.encoders import ProjectionHead, ResNet18, WithHead, seeded
from probssl.energies import Cosine
from probssl.objectives import InfoNCE
from probssl.pairings import ImageAugmentation, Views, image_preset
from probssl.training import Reporter, TrainingPlan, fit

BATCH, SIDE, WIDTH, TEMPERATURE, PRESET = 256, 32, 16, 0.1, "simclr-cifar"
PARTS = ("augmentation", "forward and backward", "loss", "optimiser", "whole step")

Augment = Callable[[Tensor], tuple[Tensor, Tensor]]
Loss = Callable[[Tensor, Tensor], Tensor]


class PlainBlock(nn.Module):
    """The basic block as it is usually written."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.shortcut = nn.Sequential()
        if stride != 1 or before != after:
            self.shortcut = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x: Tensor) -> Tensor:
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(out + self.shortcut(x))


class PlainResNet18(nn.Module):
    """ResNet-18 with the stem for CIFAR as it is usually written."""

    def __init__(self, width: int) -> None:
        super().__init__()
        sizes = [(width, width, 1), (width, 2 * width, 2), (2 * width, 4 * width, 2), (4 * width, 8 * width, 2)]
        blocks = [PlainBlock(*((a, b, s) if k == 0 else (b, b, 1))) for a, b, s in sizes for k in range(2)]
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(True))
        self.blocks = nn.Sequential(*blocks)
        self.pool = nn.AdaptiveAvgPool2d(1)

    def forward(self, x: Tensor) -> Tensor:
        return self.pool(self.blocks(self.stem(x))).flatten(1)


def plain_nt_xent(a: Tensor, b: Tensor) -> Tensor:
    """NT-Xent as it is usually written."""
    z = F.normalize(torch.cat([a, b]), dim=1)
    logits = (z @ z.T / TEMPERATURE).masked_fill(torch.eye(len(z), dtype=torch.bool), -torch.inf)
    return F.cross_entropy(logits, torch.arange(len(z)).roll(len(a)))


def library_loss() -> Loss | None:
    """The NT-Xent loss of pytorch-metric-learning; None where it is not installed."""
    try:
        from pytorch_metric_learning.losses import NTXentLoss, SelfSupervisedLoss
    except ImportError:
        return None
    return SelfSupervisedLoss(NTXentLoss(TEMPERATURE))


def their_augmentation() -> nn.Module:
    """`simclr-cifar` by kornia."""
    from kornia import augmentation

    s = image_preset(PRESET)
    return nn.Sequential(
        augmentation.RandomResizedCrop((SIDE, SIDE), scale=(s.crop_scale, 1.0), ratio=s.crop_ratio),
        augmentation.RandomHorizontalFlip(p=s.flip),
        augmentation.ColorJitter(s.brightness, s.contrast, s.saturation, s.hue, p=s.jitter),
        augmentation.RandomGrayscale(p=s.grey),
    )


class Side:
    """One way to make a step: how images are augmented, encoded and judged."""

    def __init__(self, augment: Augment, encoder: nn.Module, loss: Loss) -> None:
        self.augment, self.encoder, self.loss = augment, encoder, loss
        self.optimiser = torch.optim.SGD(encoder.parameters(), lr=0.01, momentum=0.9)

    def step(self, x: Tensor) -> dict[str, float]:
        """CPU seconds of every part of one step, and of the whole."""
        marks = [time.process_time()]
        with torch.no_grad():
            views = self.augment(x)
        marks.append(time.process_time())
        self.optimiser.zero_grad(set_to_none=True)
        z = [self.encoder(view) for view in views]  # faster than both in one batch
        marks.append(time.process_time())
        cut = [side.detach().requires_grad_() for side in z]
        self.loss(*cut).backward()
        marks.append(time.process_time())
        torch.autograd.backward(z, [side.grad for side in cut])
        marks.append(time.process_time())
        self.optimiser.step()
        marks.append(time.process_time())
        augmentation, forward, loss, backward, optimiser = (b - a for a, b in itertools.pairwise(marks))
        parts = (augmentation, forward + backward, loss, optimiser, marks[-1] - marks[0])
        return dict(zip(PARTS, parts, strict=True))


def made(width: int) -> WithHead:
    """ResNet-18 with the head of SimCLR."""
    head = ProjectionHead(2, dim=128).bind(shape=(8 * width,))
    return WithHead(ResNet18(width).bind(shape=(3, SIDE, SIDE)), head)


def simclr() -> InfoNCE:
    return InfoNCE(Cosine(TEMPERATURE), candidates="two-view", pair="augmented")


def sides(width: int, contiguous: bool, compiled: bool) -> dict[str, Side]:
    """Ours and theirs from the same weights, and ours in other ways."""
    ours = seeded(0, lambda: made(width))
    theirs = nn.Sequential(PlainResNet18(width), copy.deepcopy(ours.head))
    with torch.no_grad():
        for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            other.copy_(mine)
    pairing, generator = ImageAugmentation(PRESET), torch.Generator().manual_seed(0)
    objective, kornia_steps = simclr(), their_augmentation()

    def augment(x: Tensor) -> tuple[Tensor, Tensor]:
        return pairing.sample(x, generator), pairing.sample(x, generator)

    def loss(a: Tensor, b: Tensor) -> Tensor:
        return objective(nn.Identity(), Views(x=a, augmented=torch.stack([a, b]))).total

    def plainly(x: Tensor) -> tuple[Tensor, Tensor]:
        return kornia_steps(x), kornia_steps(x)

    found = {
        "ours": Side(augment, ours, loss),
        "theirs": Side(plainly, theirs, plain_nt_xent),
    }
    if contiguous:
        other = copy.deepcopy(ours).to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
        found["ours, contiguous"] = Side(augment, other, loss)
    if compiled:
        found["ours, compiled"] = Side(augment, torch.compile(copy.deepcopy(ours)), loss)  # type: ignore[arg-type]
    return found


def seconds_of_fit(width: int, images: Tensor, steps: int) -> float:
    """CPU seconds a step of `fit`, with its log, its checks and the looks at the representation; the first left out."""
    encoder = seeded(0, lambda: made(width))
    plan = TrainingPlan(steps=steps + 1, batch_size=BATCH, optimiser="sgd", lr=0.01, warmup=0)
    clock = Clock()
    fit(encoder, simclr(), ImageAugmentation(PRESET), images, plan, reporter=clock)
    return statistics.median(b - a for a, b in itertools.pairwise(clock.marks))


class Clock(Reporter):
    """The CPU time at the end of every step."""

    def __init__(self) -> None:
        super().__init__()
        self.marks: list[float] = []

    def advance(self, step: int) -> None:
        self.marks.append(time.process_time())


def summary(options: argparse.Namespace, times: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    """What the rounds so far say."""
    medians = {
        name: {part: round(statistics.median(round_[part] for round_ in rounds), 4) for part in PARTS}
        for name, rounds in times.items()
    }
    ratios = [b["whole step"] / a["whole step"] for a, b in zip(times["ours"], times["theirs"], strict=True)]
    return {
        "width": options.width,
        "rounds": len(ratios),
        "seconds": medians,
        "theirs / ours, of whole steps by round": [round(ratio, 3) for ratio in ratios],
    }


def main() -> None:
    """All parts, side by side."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--width", type=int, default=WIDTH)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--contiguous", action="store_true")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--fit", action="store_true")
    options = begin(parser)
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    x = torch.rand(BATCH, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
    found = sides(options.width, options.contiguous, options.compile)
    times: dict[str, list[dict[str, float]]] = {name: [] for name in found}
    results: dict[str, Any] = {}
    for name, side in found.items():
        began = time.perf_counter()
        side.step(x[:8])
        print(f"{name}: the first step, of 8 images, took {time.perf_counter() - began:.1f} s")
    for _ in range(options.rounds):
        for name, side in found.items():
            times[name].append(side.step(x))
            told = "   ".join(f"{part} {times[name][-1][part]:.3f}" for part in PARTS)
            print(f"{name:<18}{told}")
        results = summary(options, times)
        keep(options.out, results)
    library = library_loss()
    if library is not None:
        z = [torch.randn(BATCH, 128, generator=torch.Generator().manual_seed(k)).requires_grad_() for k in (0, 1)]
        began = time.process_time()
        library(*z).backward()
        results["loss of pytorch-metric-learning, seconds"] = round(time.process_time() - began, 3)
    if options.fit:
        results["fit, seconds a step"] = round(seconds_of_fit(options.width, x.repeat(2, 1, 1, 1), options.rounds), 4)
    print(json.dumps(results, indent=2))
    keep(options.out, results)


if __name__ == "__main__":
    main()
