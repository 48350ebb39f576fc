"""ResNet8: milliseconds of a forward and backward pass by width, size of image and memory format, and of what it saves.

Batch 64, one thread, CPU time, best of several turns. "plain" computes every convolution and mean of the table as it is
written; "input" is the gradient in the images too, as Langevin sampling needs. About a minute, two with width 128:

    OMP_NUM_THREADS=1 python benchmarks/resnet.py --out benchmarks/results/resnet.json
"""

from __future__ import annotations

import argparse
import time

import torch
from running import begin, keep
from torch import Tensor
from torch.nn import functional as F

from probssl.encoders import ResNet8, seeded

BATCH, TURNS = 64, 4
IMAGES = ((1, 28), (3, 32))


def plain(network: ResNet8, x: Tensor) -> Tensor:
    """The network layer by layer, as Table 8 of GEDI has it."""

    def leaky(x: Tensor) -> Tensor:
        return F.leaky_relu(x, 0.2)

    conv = network.convolutions
    x = F.avg_pool2d(conv[1](leaky(conv[0](x))), 2) + network.shortcut(F.avg_pool2d(x, 2))
    x = F.avg_pool2d(conv[3](leaky(conv[2](leaky(x)))), 2) + F.avg_pool2d(x, 2)
    x = conv[5](leaky(conv[4](leaky(x)))) + x
    x = conv[7](leaky(conv[6](leaky(x)))) + x
    return x.mean((2, 3))


def step(network: ResNet8, x: Tensor, *, as_written: bool = False) -> float:
    """CPU milliseconds of one forward and backward pass."""
    network.zero_grad(set_to_none=True)
    x.grad = None
    started = time.process_time()
    found = plain(network, x) if as_written else network(x)
    found.square().sum().backward()
    return 1000 * (time.process_time() - started)


def main() -> None:
    """All widths and sizes."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--widths", type=int, nargs="*", default=[32, 64, 128])
    options = begin(parser)
    torch.set_num_threads(1)
    results: dict[str, dict[str, float]] = {}
    columns = ["contiguous", "channels_last", "plain", "plain channels_last", "input"]
    print(f"{'width, image':<18}" + "".join(f"{column:>21}" for column in columns))
    for width in options.widths:
        for channels, side in IMAGES:
            unbound, shape = ResNet8(width), (channels, side, side)
            network = seeded(0, lambda part=unbound, known=shape: part.bind(shape=known))  # type: ignore[misc]
            x = torch.rand(BATCH, channels, side, side, generator=torch.Generator().manual_seed(0))
            best = dict.fromkeys(columns, float("inf"))
            for _ in range(TURNS):
                for column in columns:
                    last = "channels_last" in column
                    network.to(memory_format=torch.channels_last if last else torch.contiguous_format)
                    images = x.to(memory_format=torch.channels_last) if last else x.contiguous()
                    images = images.clone().requires_grad_(column == "input")
                    best[column] = min(best[column], step(network, images, as_written="plain" in column))
            name = f"{width}, {channels} × {side} × {side}"
            results[name] = {column: round(value, 1) for column, value in best.items()}
            print(f"{name:<18}" + "".join(f"{best[column]:>21.1f}" for column in columns))
            keep(options.out, results)


if __name__ == "__main__":
    main()
