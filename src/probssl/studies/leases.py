"""Claims on trials that last as long as the process that made them, and workers that end with the one they serve."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import threading
import time
from collections.abc import Iterable

from probssl.errors import InputError
from probssl.studies.store import Store

LEASE = 60.0
"""Seconds for which a claim is held without a sign of life."""

BEAT = 2.0
"""Seconds between signs of life."""


class Lease:
    """Claims on trials, renewed by a thread while the block lasts, given up at its end."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.owner = secrets.token_hex(8)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="lease", daemon=True)

    def take(self, keys: Iterable[str]) -> list[str]:
        """Claim those of the trials that nobody has finished or is working on."""
        return self.store.claim(keys, self.owner, LEASE)

    def __enter__(self) -> Lease:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()
        with contextlib.suppress(InputError):  # a store that is gone holds no claims, and another error is on its way
            self.store.release(self.owner)

    def _beat(self) -> None:
        while not self._over.wait(BEAT):
            with contextlib.suppress(InputError):  # tried again at the next beat, long before the lease is over
                self.store.renew(self.owner, LEASE)


def serve(parent: int) -> None:
    """Make this process a worker of another: it ends when that has ended, and Ctrl-C, which goes to all, is not for it.

    A study that was killed must not go on in the dark, and one that is stopped ends its workers by itself.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(BEAT / 4)
        os._exit(1)

    threading.Thread(target=watch, name="end-with-parent", daemon=True).start()
