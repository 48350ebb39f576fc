"""How benchmarks run: results are shown and kept as they come, and Ctrl-C or SIGTERM ends everything at once."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

CHILDREN: list[subprocess.Popen[str]] = []
"""Processes that end when this one is told to."""


def begin(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The options, `--out` among them; from here on SIGTERM ends the process with exit code 143, Ctrl-C with 130."""
    parser.add_argument("--out", type=Path, help="file for the results, as JSON, written after each of them")
    options = parser.parse_args()
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    # Trainings handle these signals themselves, and end alone; the number is written to the pipe all the same.
    told, telling = os.pipe()
    os.set_blocking(telling, False)
    signal.set_wakeup_fd(telling)
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    threading.Thread(target=_end_when_told, args=[told], daemon=True).start()
    return options


def _end_when_told(told: int) -> None:
    while (number := os.read(told, 1)[0]) not in (signal.SIGINT, signal.SIGTERM):
        pass
    for child in CHILDREN:
        child.terminate()
    os._exit(128 + number)


def keep(path: Path | None, results: Any) -> None:
    """Write what there is so far, where a file was asked for."""
    if path is not None:
        part = path.with_name(f"{path.name}.part")
        part.write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        part.replace(path)
