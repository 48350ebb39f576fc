"""Where trials run: processes or threads of this machine, or a Dask or Ray cluster, all by joblib."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from typing import Any

from probssl.errors import InputError, MissingExtra
from probssl.studies.leases import serve

LOCAL = ("loky", "threading")
CLUSTERS = ("dask", "ray")
PATIENCE = 15
"""Seconds to wait for a scheduler to answer."""


def check(backend: str, jobs: int | None, address: str | None) -> None:
    """Refuse what cannot be run, before any work is done."""
    if backend not in (*LOCAL, *CLUSTERS):
        raise InputError(f"the backend is {', '.join((*LOCAL, *CLUSTERS)[:-1])} or ray, not {backend!r}")
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
def started(backend: str, jobs: int | None, address: str | None) -> Iterator[int]:
    """joblib set to the backend for the block; how many jobs it runs at a time. Clusters started here end with it."""
    import joblib

    with contextlib.ExitStack() as stack:
        if backend == "dask":
            count = stack.enter_context(_dask(jobs, address))
        elif backend == "ray":
            count = stack.enter_context(_ray(jobs, address))
        else:
            count = jobs or joblib.cpu_count()
        options: dict[str, Any] = {}
        if backend == "loky":
            options = {"inner_max_num_threads": 1, "initializer": serve, "initargs": (os.getpid(),)}
        stack.enter_context(joblib.parallel_config(backend=backend, n_jobs=count, **options))
        yield count


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
