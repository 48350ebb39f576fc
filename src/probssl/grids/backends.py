"""Where trials run: this process, others of this machine, or a Dask or Ray cluster by joblib."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

from probssl.errors import InputError, MissingExtra
from probssl.grids.grid import Computation
from probssl.grids.workers import Cluster, Here, Processes, Workers

PROCESSES = "processes"
CLUSTERS = ("dask", "ray")
PATIENCE = 15
"""Seconds to wait for a scheduler to answer."""


def check(backend: str, jobs: int | None, address: str | None) -> None:
    """Refuse what cannot be run, before any work is done."""
    if backend not in (PROCESSES, *CLUSTERS):
        raise InputError(f"the backend is {PROCESSES}, dask or ray, not {backend!r}")
    if jobs is not None and jobs < 1:
        raise InputError(f"--jobs must be at least 1, not {jobs}")
    if address is not None and backend not in CLUSTERS:
        raise InputError(f"--address is of a cluster, and {backend} runs on this machine: add --backend dask or ray")
    if address is not None and jobs is not None:
        raise InputError("--jobs is the size of a cluster of its own, and --address names one that is there: give one")
    try:
        if backend == "dask":
            import distributed  # noqa: F401
        elif backend == "ray":
            import ray  # noqa: F401
    except ImportError:
        raise MissingExtra(f"--backend {backend}", backend) from None


@contextlib.contextmanager
def workers(computation: Computation, backend: str, jobs: int | None, address: str | None) -> Iterator[Workers]:
    """Workers for the block, one a core unless `jobs` says how many. Clusters started here end with it."""
    import joblib

    with contextlib.ExitStack() as stack:
        made: Workers
        if backend in CLUSTERS:
            count = stack.enter_context((_dask if backend == "dask" else _ray)(jobs, address))
            stack.enter_context(joblib.parallel_config(backend=backend, n_jobs=count))
            made = Cluster(computation, count)
        else:
            count = jobs or joblib.cpu_count()
            made = Here(computation) if count == 1 else Processes(computation, count)
        try:
            yield made
        finally:
            made.close()


@contextlib.contextmanager
def _dask(jobs: int | None, address: str | None) -> Iterator[int]:
    import joblib
    from distributed import Client, LocalCluster

    with contextlib.ExitStack() as stack:
        if address is None:
            cluster = LocalCluster(
                n_workers=jobs or joblib.cpu_count(),
                threads_per_worker=1,
                dashboard_address=None,
                silence_logs=logging.ERROR,
            )
            place = stack.enter_context(cluster)
        else:
            place = address
        try:
            client = stack.enter_context(Client(place, timeout=PATIENCE))
        except (OSError, ValueError) as error:
            raise InputError(f"there is no Dask scheduler at {address} ({_one_line(error)})") from None
        yield max(1, sum(client.nthreads().values()))


@contextlib.contextmanager
def _ray(jobs: int | None, address: str | None) -> Iterator[int]:
    import joblib
    import ray
    from ray.util.joblib.ray_backend import RayBackend

    class Streaming(RayBackend):
        """joblib takes it that a backend of the pool family cannot hand out results as they come; Ray's can."""

        supports_return_generator = True

    joblib.register_parallel_backend("ray", Streaming)
    ours = not ray.is_initialized()
    if ours:
        own: dict[str, Any] = {"num_cpus": jobs or joblib.cpu_count(), "include_dashboard": False}
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        try:
            ray.init(**quiet, **({"address": "local", **own} if address is None else {"address": address}))
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise InputError(f"there is no Ray cluster at {address} ({_one_line(error)})") from None
    logging.getLogger("ray.util.multiprocessing.pool").setLevel(logging.ERROR)  # it warns of what joblib hands it
    try:
        yield max(1, int(ray.cluster_resources().get("CPU", 1)))
    finally:
        if ours:
            ray.shutdown()


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:160]
