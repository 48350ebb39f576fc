"""How much memory there is, and the refusal of what would need more, before it is allocated."""

from __future__ import annotations

import os
import re
from pathlib import Path

from probssl.errors import InputError

UNKNOWN = 16 * 2**30
"""Bytes that are taken for granted where the system does not tell."""

_TOO_LITTLE = re.compile("out of memory|can't allocate memory|not enough memory|Storage size calculation overflowed")
"""How torch says that there is too little memory, on processors and on cards."""


def available(root: Path = Path("/")) -> int:
    """Bytes that this process can still allocate: what is free, within the limits of its control group and its own."""
    found = [*_free(root), *_control_groups(root), *_limits(root)]
    return max(0, min(found)) if found else _installed()


def require(needed: float, what: str, advice: str) -> None:
    """Refuse `what` where it would need more bytes than there are; `advice` says how to make it smaller."""
    there = available()
    if needed > there:
        raise InputError(
            f"{what} would need about {written(needed)} of memory, and {written(there)} are free: {advice}"
        )


def written(count: float) -> str:
    """A number of bytes to two digits, in units of a thousand: 13 GB."""
    for unit in ("bytes", "kB", "MB", "GB", "TB", "PB"):
        if count < 999.5:
            return f"{count:.{0 if count >= 9.95 or unit == 'bytes' else 1}f} {unit}"
        count /= 1000
    return f"{count:,.0f} EB"


def _installed() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # Windows has none, other systems not these
        return UNKNOWN


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except (OSError, UnicodeDecodeError):
        return []


def _after(words: list[str], name: str) -> int:
    """The number that follows a word; 0 where it does not."""
    return int(words[words.index(name) + 1]) if name in words[:-1] else 0


def _free(root: Path) -> list[int]:
    words = _words(root / "proc/meminfo")
    return [1024 * _after(words, "MemAvailable:")] if "MemAvailable:" in words else []


def _control_groups(root: Path) -> list[int]:
    """What is left within the limits of the process's group and of those around it, of version 1 or 2."""
    found = []
    for line in _words(root / "proc/self/cgroup"):
        number, _, rest = line.partition(":")
        controllers, _, place = rest.partition(":")
        if number == "0":
            base, limit, used = root / "sys/fs/cgroup", "memory.max", "memory.current"
        elif "memory" in controllers.split(","):
            base, limit, used = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
        else:
            continue
        inner = base / place.strip("/")
        for group in (inner, *inner.parents):  # within a container the path may be that of the host
            most, now = _words(group / limit), _words(group / used)
            if most and now and most[0].isdigit():
                cached = _after(_words(group / "memory.stat"), "inactive_file")  # which the system gives up first
                found.append(int(most[0]) - int(now[0]) + cached)
            if group == base:
                break
    return found


def _limits(root: Path) -> list[int]:
    """What is left of the process's own limits, as `ulimit -v` and `ulimit -d` set them."""
    try:
        import resource
    except ImportError:  # Windows
        return []
    pages = [int(word) for word in _words(root / "proc/self/statm")] or [0] * 6
    used = ((resource.RLIMIT_AS, pages[0]), (resource.RLIMIT_DATA, pages[5]))
    soft = [(resource.getrlimit(which)[0], now * resource.getpagesize()) for which, now in used]
    return [most - now for most, now in soft if most != resource.RLIM_INFINITY]


def ran_out(error: BaseException) -> bool:
    """Whether an error says that there was too little memory, as Python and torch say it."""
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and bool(_TOO_LITTLE.search(str(error))))
