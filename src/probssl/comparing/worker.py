"""A process that trains: reads batches of jobs from its standard input and answers on its standard output.

It is a program of its own, so that scripts that compare need no guard of their main module, in a session of its own,
so that Ctrl-C reaches the parent alone. (loky, joblib's pool, restarts a worker that has come to use 300 MB more than
at first, as training does; that would take seconds of a budget.)
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import BrokenExecutor
from typing import IO, Any

from probssl.comparing.work import Batch, Job, Trainer

START = f"import sys; sys.path[:] = filter(None, sys.path); from {__name__} import main; main()"
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


class Worker:
    """The parent's end of a worker process, which imports from where the parent does, never from the current folder."""

    def __init__(self, pickled_trainer: bytes) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", START],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **ONE_THREAD, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            start_new_session=True,
        )
        self._pickled_trainer: bytes | None = pickled_trainer

    def train(self, jobs: Sequence[Job], **options: Any) -> Batch:
        """`Trainer.train` over there."""
        requests, answers = self._process.stdin, self._process.stdout
        assert requests is not None
        assert answers is not None
        try:
            if self._pickled_trainer is not None:
                requests.write(self._pickled_trainer)
                self._pickled_trainer = None
            pickle.dump((list(jobs), options), requests)
            requests.flush()
            answer: Batch | Exception = pickle.load(answers)
        except (OSError, EOFError, pickle.UnpicklingError) as error:
            raise BrokenExecutor(f"a worker process ended with {self._process.poll()}") from error
        if isinstance(answer, Exception):
            raise answer
        return answer

    def kill(self) -> None:
        """End the process, whatever it is doing."""
        self._process.kill()
        self._process.wait()


def serve(requests: IO[bytes], answers: IO[bytes]) -> None:
    """Answer requests until there are no more."""
    trainer: Trainer = pickle.load(requests)
    while True:
        try:
            jobs, options = pickle.load(requests)
        except EOFError:
            return
        try:
            answer: Batch | Exception = trainer.train(jobs, **options)
        except Exception as error:
            answer = error
        pickle.dump(answer, answers)
        answers.flush()


def main() -> None:
    """The program."""
    import torch

    torch.set_num_threads(1)
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)  # what a library prints must not come between the answers
        serve(sys.stdin.buffer, answers)
