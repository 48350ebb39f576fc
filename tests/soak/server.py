"""A process that has imported everything and computed nothing: forks a victim for every job that it reads.

Forking spares each victim the seconds that importing torch takes.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path

import torch

from tests.soak import jobs


def serve() -> None:
    """Jobs from standard input, a line each; answers the number of the victim, and how it ended."""
    import probssl.estimators
    import probssl.report.run_page
    import probssl.runs.workflow
    import probssl.studies  # noqa: F401

    torch.set_num_threads(1)
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if child == 0:
            os.setsid()
            code = 1
            with open(order["errors"], "w") as errors, contextlib.redirect_stderr(errors):
                try:
                    getattr(jobs, order["function"])(Path(order["folder"]), **order["arguments"])
                    code = 0
                except BaseException as error:
                    errors.write(f"{type(error).__name__}: {error}\n")
            os._exit(code)
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    serve()
