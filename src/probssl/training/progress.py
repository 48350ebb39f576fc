"""What a person sees while training: nothing, or a bar with rate, time left, every term and the live RankMe."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from probssl.training.log import term_names

if TYPE_CHECKING:
    from rich.console import Console, Group


class Reporter:
    """The silent reporter, and the interface of the others."""

    def __enter__(self) -> Reporter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def start(self, total: int, done: int) -> None:
        """Training begins at step `done` of `total`."""

    def advance(self, step: int) -> None:
        """Cheap; called often."""

    def row(self, numbers: dict[str, float]) -> None:
        """A new row of the log."""

    def warn(self, message: str) -> None:
        """Something the user must not miss."""


class ProgressBar(Reporter):
    """A rich progress bar on standard error, with a line of named terms below it.

    `title` stands before it; `console` is rich's, standard error unless given.
    """

    def __init__(self, title: str = "training", console: Console | None = None) -> None:
        from rich.console import Console as RichConsole
        from rich.live import Live
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
        from rich.text import Text

        self._console = console or RichConsole(stderr=True)
        self._bar = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]} steps/s"),
            TimeRemainingColumn(compact=True),
            expand=True,
        )
        self._text = Text
        self._terms = Text("")
        self._task = self._bar.add_task(title, total=None, rate="–")
        self._live = Live(get_renderable=self._render, console=self._console, refresh_per_second=8)

    def _render(self) -> Group:
        from rich.console import Group

        return Group(self._bar, self._terms)

    def __enter__(self) -> Reporter:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def start(self, total: int, done: int) -> None:
        self._bar.update(self._task, total=total, completed=done)

    def advance(self, step: int) -> None:
        speed = self._bar.tasks[0].speed
        self._bar.update(self._task, completed=step, rate=f"{speed:,.0f}" if speed else "–")

    def row(self, numbers: dict[str, float]) -> None:
        shown = [name for name in ("loss", *term_names(numbers)) if name in numbers]
        parts = [f"{name.replace('_', ' ')} {numbers[name]:.4g}" for name in shown]
        if "rankme" in numbers:
            parts.insert(1, f"RankMe {numbers['rankme']:.2f}")  # beside the loss, where a narrow terminal shows it
        if "largest_cluster" in numbers:
            largest, agreement = numbers["largest_cluster"], numbers["label_agreement"]
            parts[2:2] = [f"largest cluster {largest:.0%}", f"labels agree {agreement:.0%}"]
        self._terms = self._text("  " + " · ".join(parts), style="dim", overflow="ellipsis", no_wrap=True)

    def warn(self, message: str) -> None:
        self._console.print(f"[bold yellow]warning:[/] {message}", highlight=False)
