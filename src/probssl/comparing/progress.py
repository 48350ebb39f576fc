"""One bar for the whole comparison: what is under way, the best so far, and the time left."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from probssl.comparing.planning import Clock


class Progress:
    """A bar on standard error, or nothing: where that is not a terminal, there is nobody to watch a clock."""

    def __init__(self, clock: Clock, *, shown: bool) -> None:
        self.clock = clock
        self._bar: Any = None
        if shown and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn
            from rich.progress import Progress as Bar

            self._bar = Bar(
                TextColumn("[bold]{task.description}"),
                BarColumn(bar_width=None),
                TextColumn("{task.fields[left]} left"),
                console=Console(stderr=True),
                expand=True,
                transient=True,
            )
            self._task = self._bar.add_task("starting", total=1.0, left="–")

    def __enter__(self) -> Progress:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, what: str, left: float | None = None) -> None:
        """What is under way, and how many seconds are expected to be left."""
        if self._bar is None:
            return
        left = max(0.0, self.clock.left if left is None else min(left, self.clock.left))
        elapsed = self.clock.elapsed
        minutes, seconds = divmod(round(left), 60)
        self._bar.update(
            self._task, description=what, completed=elapsed / (elapsed + left + 1e-9), left=f"{minutes}:{seconds:02d}"
        )
