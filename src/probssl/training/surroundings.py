"""What a training changes about its process while it lasts: tiny numbers, and what Ctrl-C does."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

import torch


@contextlib.contextmanager
def flushed_denormals() -> Iterator[None]:
    """Numbers below 1e-38 count as zero: exponentials of large energies are full of them, and each costs like fifty."""
    already = bool((torch.full((16,), 1e-38) * 1e-3 == 0).all())
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(already)


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
