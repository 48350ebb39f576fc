"""How much memory there is: of the machine, of control groups of either version, and of the process."""

from __future__ import annotations

from pathlib import Path

import pytest

from probssl import memory
from probssl.errors import InputError

GB = 2**30


def system(root: Path, files: dict[str, str]) -> Path:
    for name, text in {"proc/meminfo": f"MemTotal: {32 * 2**20} kB\nMemAvailable: {8 * 2**20} kB\n", **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


GROUP = "sys/fs/cgroup/user.slice/job"
OLD = "sys/fs/cgroup/memory/docker/abc"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 8 * GB),
        (
            {"proc/self/cgroup": "0::/user.slice/job\n", f"{GROUP}/memory.max": "max", f"{GROUP}/memory.current": "5"},
            8 * GB,
        ),
        (
            {
                "proc/self/cgroup": "0::/user.slice/job\n",
                f"{GROUP}/memory.max": f"{2 * GB}\n",
                f"{GROUP}/memory.current": f"{GB}\n",
                f"{GROUP}/memory.stat": f"anon 5\ninactive_file {GB // 2}\n",
            },
            1.5 * GB,
        ),
        (
            {
                "proc/self/cgroup": "0::/user.slice/job\n",
                f"{GROUP}/memory.max": "max",
                f"{GROUP}/memory.current": "0",
                "sys/fs/cgroup/user.slice/memory.max": f"{3 * GB}",
                "sys/fs/cgroup/user.slice/memory.current": "0",
            },
            3 * GB,
        ),
        (
            {
                "proc/self/cgroup": "11:cpu:/\n5:memory:/docker/abc\n",
                f"{OLD}/memory.limit_in_bytes": f"{GB}",
                f"{OLD}/memory.usage_in_bytes": f"{2 * GB}",
            },
            0,
        ),
        (  # in a container the path is that of the host, and the group itself is the root
            {
                "proc/self/cgroup": "5:memory:/docker/elsewhere\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{GB}",
                "sys/fs/cgroup/memory/memory.usage_in_bytes": "0",
            },
            GB,
        ),
    ],
    ids=["none", "unlimited", "version 2", "around", "version 1", "container"],
)
def test_the_least_of_all_limits_counts(tmp_path: Path, files: dict[str, str], expected: float) -> None:
    assert memory.available(system(tmp_path, files)) == expected


def test_limits_of_the_process(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = 2**40 // resource.getpagesize()
    root = system(tmp_path, {"proc/self/statm": f"{pages} 0 0 0 0 0 0\n"})
    try:
        resource.setrlimit(resource.RLIMIT_AS, (2**40 + GB, before[1]))
        assert memory.available(root) == GB
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def test_a_system_that_does_not_tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert memory.available(tmp_path) > 0  # what is installed
    monkeypatch.delattr(memory.os, "sysconf")
    assert memory.available(tmp_path) == memory.UNKNOWN


def test_what_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available", lambda: 8_000_000_000)
    memory.require(8e9, "x", "y")
    with pytest.raises(InputError) as error:
        memory.require(13.4e9, "reading all", "read less")
    assert str(error.value) == "reading all would need about 13 GB of memory, and 8.0 GB are free: read less"


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 bytes"), (999.6, "1.0 kB"), (1234, "1.2 kB"), (12e6, "12 MB"), (3e24, "3,000,000 EB")]
)
def test_sizes_are_written_short(count: float, text: str) -> None:
    assert memory.written(count) == text
