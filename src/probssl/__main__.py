"""`probssl` and `python -m probssl`."""

from __future__ import annotations

import signal
import sys
from typing import Any


def main() -> None:
    """The command line, which SIGTERM ends as Ctrl-C does, wherever it is."""
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        from probssl.cli import app

        app(prog_name="probssl")
    except KeyboardInterrupt:
        sys.stderr.write("stopped\n")
        sys.exit(130)


def _interrupt(number: int, frame: Any) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
