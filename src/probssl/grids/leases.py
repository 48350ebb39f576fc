"""Claims on trials that last as long as the process that made them."""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections.abc import Collection

from probssl.errors import InputError
from probssl.grids.store import Store

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

    def take(self, keys: Collection[str]) -> bool:
        """Claim trials, unless all are finished or somebody is working on one of them."""
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
