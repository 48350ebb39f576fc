"""Writing: whole or not at all, when the disk is full and when a process is killed; and what was killed is swept up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from probssl.errors import DamagedFile
from probssl.files import atomic_path, sweep, temporary_beside, write_json, write_text
from probssl.schema import read_json

pytestmark = pytest.mark.skipif(os.name != "posix", reason="locks that end with their process")


def program(text: str, *arguments: object, **options: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", text, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,  # type: ignore[call-overload]
    )


WRITER = """
import sys, time
from pathlib import Path
from probssl.files import atomic_path, temporary_beside
with atomic_path(Path(sys.argv[1])) as temporary, temporary_beside(Path(sys.argv[2]), folder=True) as inside:
    temporary.write_text("half a f")
    (inside / "part").write_text("half")
    print("written", flush=True)
    time.sleep(600)
"""


def test_debris_of_a_killed_process_is_swept_and_what_somebody_writes_stays(tmp_path: Path) -> None:
    writers = [program(WRITER, tmp_path / name, tmp_path / f"{name} cache") for name in ("one", "two")]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "written\n"
    assert len(list(tmp_path.iterdir())) == 4
    others = [tmp_path / ".notes.partial", tmp_path / ".x.0123456789ab.part", tmp_path / "x.0123456789ab.partial"]
    for other in others:
        other.write_text("mine")
    writers[0].send_signal(signal.SIGKILL)
    writers[0].wait()
    sweep.cache_clear()
    write_text(tmp_path / "third", "whole")
    left = {
        path.name.split(".")[1] for path in tmp_path.iterdir() if path.name.endswith("partial") and path.name[0] == "."
    }
    assert left == {"two", "two cache", "notes"}
    assert all(other.is_file() for other in others)
    writers[1].terminate()
    writers[1].wait()
    sweep.cache_clear()
    write_text(tmp_path / "third", "whole")
    assert {path.name for path in tmp_path.iterdir()} == {"third", *(other.name for other in others)}


def test_a_folder_is_swept_once_in_a_process(tmp_path: Path) -> None:
    write_text(tmp_path / "a", "whole")
    stale = tmp_path / ".a.0123456789ab.partial"
    stale.write_text("half")
    write_text(tmp_path / "a", "whole")
    assert stale.exists()


def test_what_is_swept_is_no_link_to_elsewhere(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").write_text("kept")
    place = tmp_path / "place"
    place.mkdir()
    (place / ".a.0123456789ab.partial").symlink_to(elsewhere)
    (place / ".b.0123456789ab.partial").symlink_to(elsewhere / "kept")
    write_text(place / "a", "whole")
    assert (elsewhere / "kept").read_text() == "kept"


def test_temporary_files_and_folders_are_gone_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), temporary_beside(tmp_path / "a", folder=True) as folder:
        (folder / "no" / "such" / "part").write_text("half")
    with pytest.raises(FileNotFoundError), atomic_path(tmp_path / "a") as temporary:
        temporary.with_name("no such").read_text()
    assert not list(tmp_path.iterdir())


LIMITED = """
import resource, sys
import numpy as np
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))
from probssl.cli import app
sys.argv[1:] = sys.argv[2:]
app(prog_name="probssl")
"""


def test_a_checkpoint_without_room_leaves_the_one_before_and_says_what_it_takes(tmp_path: Path) -> None:
    """A limit on the size of files stands for the end of the disk; the log alone is as small as ever."""
    table = tmp_path / "t.csv"
    table.write_text("a,b,c\n" + "".join(f"{n % 7},{n % 5},{n * n % 11}\n" for n in range(60)))
    short = [
        "--steps",
        "40",
        "--set",
        "plan.checkpoint_every=10",
        "--evaluate",
        "none",
        "-q",
        "--out",
        tmp_path / "run",
    ]
    wide = ["--set", "encoder.hidden=[8]"]
    first = program(LIMITED, 2**30, "fit", table, *short, *wide)
    assert first.communicate(timeout=120)[1] == ""
    size = max(path.stat().st_size for path in (tmp_path / "run" / "checkpoints").iterdir())
    longer = program(LIMITED, size - 1000, "fit", "--resume", "--steps", 60, "--evaluate", "none", *short[-3:])
    said = longer.communicate(timeout=120)[1]
    assert longer.returncode == 2, said
    assert said.count("\n") == 1
    assert "has no room for step-00000050.safetensors, which takes " in said
    assert "step-00000040.safetensors is kept, and --resume goes on from it" in said
    assert {path.name for path in (tmp_path / "run" / "checkpoints").iterdir()} >= {"step-00000040.safetensors"}
    assert not list((tmp_path / "run").rglob("*.partial"))
    again = program(LIMITED, 2**30, "fit", "--resume", "--evaluate", "none", *short[-3:])
    assert again.communicate(timeout=120)[1] == ""
    assert (tmp_path / "run" / "model.safetensors").is_file()


def test_json_is_strict_both_ways(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"none": float("nan"), "list": (1, float("inf"))})
    assert read_json(tmp_path / "a.json", dict) == {"none": None, "list": [1, None]}
    (tmp_path / "a.json").write_text('{"a": NaN}')
    with pytest.raises(DamagedFile, match=r"a\.json is damaged \(NaN is no number of JSON\): copy it back"):
        read_json(tmp_path / "a.json", dict)
