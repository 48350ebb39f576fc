"""What a training changes about its process while it lasts: tiny numbers, threads, and what Ctrl-C does."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

import torch
from torch import Tensor, nn


@contextlib.contextmanager
def flushed_denormals() -> Iterator[None]:
    """Numbers below 1e-38 count as zero: exponentials of large energies are full of them, and each costs like fifty."""
    already = bool((torch.full((16,), 1e-38) * 1e-3 == 0).all())
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(already)


SMALL_STEP = 2**28
"""Multiplications of weights per step below which a second thread waits longer than it works."""


def is_small(module: nn.Module, sample: Tensor, batch_size: int) -> bool:
    """Whether a network of rows trains as fast on one thread: few enough weights, each used once per row."""
    weights = sum(parameter.numel() for parameter in module.parameters())
    return sample.ndim == 2 and weights * batch_size < SMALL_STEP


@contextlib.contextmanager
def one_thread(alone: bool = True) -> Iterator[None]:
    """Torch and NumPy's linear algebra on one thread while this lasts, unless not `alone`."""
    if not alone or torch.get_num_threads() == 1:
        yield
        return
    from threadpoolctl import threadpool_limits

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def interruptible(stop: threading.Event | None = None) -> Iterator[threading.Event]:
    """An event (`stop`, where given) that the first Ctrl-C or SIGTERM sets, for training to end between two steps.

    A second one aborts.
    """
    stop = threading.Event() if stop is None else stop
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    asked = False

    def request(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        stop.set()

    previous = {number: signal.signal(number, request) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)  # None: not installed from Python
