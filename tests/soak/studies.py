"""Every study at its smallest with one process and with several: the stored trials must be equal, byte for byte.

python -m tests.soak.studies [NAME ...] [--jobs 1 4] [--keep FOLDER]
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.files import write_kitti
from tests.soak.jobs import outcome


def data_with_kitti(place: Path) -> Path:
    """A data directory that has all of the user's, and made-up masks of pedestrians, which nobody may pass on."""
    from probssl.data import data_directory

    place.mkdir()
    if data_directory().is_dir():
        for entry in data_directory().iterdir():
            (place / entry.name).symlink_to(entry)
    if not (place / "kitti").exists():
        write_kitti(place / "kitti" / "kitti_peds_v2.pickle")
    return place


def compare(name: str, jobs: Sequence[int], place: Path) -> str | None:
    """Run a study once for each number of processes, and print how long each took; what is wrong, if anything."""
    from probssl import studies

    took, stored = [], []
    for number in jobs:
        folder = place / name / f"jobs-{number}"
        started = time.perf_counter()
        try:
            failures = studies.run(name, "smoke", folder, quiet=True, jobs=number).failures
        except Exception as error:
            return f"--jobs {number} ended with {type(error).__name__}: {error}"
        if failures:
            return f"--jobs {number}: {len(failures)} trials failed, the first with {failures[0][1]}"
        took.append(f"{time.perf_counter() - started:.0f} s")
        stored.append(outcome(folder)["store"])
    print(f"{name:<32} {', '.join(took)}", flush=True)
    apart = [number for number, found in zip(jobs, stored, strict=True) if found != stored[0]]
    return f"--jobs {apart[0]} stores other trials than --jobs {jobs[0]}" if apart else None


def main() -> None:
    """The program."""
    from probssl.studies.experiments import CATALOGUE

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", default=list(CATALOGUE))
    parser.add_argument("--jobs", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where what the studies write is kept")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        os.environ["PROBSSL_DATA"] = str(data_with_kitti(Path(temporary) / "data"))
        place = options.keep or Path(temporary)
        found = {name: compare(name, options.jobs, place) for name in options.names}
    wrong = {name: why for name, why in found.items() if why}
    print(f"{len(found)} studies with --jobs {', '.join(map(str, options.jobs))}: {len(wrong)} differ or fail")
    for name, why in wrong.items():
        print(f"  {name}: {why}")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
