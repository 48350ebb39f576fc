"""Claims on trials that last as long as the process that made them, and no longer."""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
from collections.abc import Iterable

from probssl.errors import InputError
from probssl.studies.store import Store

LEASE = 60.0
"""Seconds for which a claim is held without a sign of life."""

BEAT = 2.0
"""Seconds between signs of life."""


class Lease:
    """Claims on trials, renewed by a thread while the block lasts, given up at its end.

    In a worker process the same thread watches the process that started it, and ends with it: a study whose main
    process was killed must not go on in the dark.
    """

    def __init__(self, store: Store, *, parent: int | None = None) -> None:
        self.store = store
        self.owner = secrets.token_hex(8)
        self._parent = parent
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
        waited = 0.0
        while not self._over.wait(BEAT / 4):
            if self._parent is not None and os.getppid() != self._parent:
                os._exit(1)
            waited += BEAT / 4
            if waited >= BEAT:
                waited = 0.0
                with contextlib.suppress(InputError):  # tried again at the next beat, long before the lease is over
                    self.store.renew(self.owner, LEASE)
