"""Damaged files by the thousand, from one good file of each kind, and what commands make of them.

`damage(path, random)` spoils a file in place and says how: its bytes, or what is in it, written again as if it were
meant (checksums included). `verdict` runs a command on it in this process; `trial` does both, for one of `CASES`.
"""

from __future__ import annotations

import copy
import json
import math
import os
import re
import shutil
import signal
import sqlite3
import tempfile
import tomllib
import traceback
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load, save
from typer.testing import CliRunner

from probssl.cli import app
from probssl.errors import CheckpointError
from probssl.parts.recipe import _toml
from probssl.training.files import load_tensors, save_tensors

OTHERS: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 3, 0.5, -0.5, 1e-300, 1e300, -1e300, 2**31, 2**53, 2**63, -(2**63), 10**30),
    *(math.nan, math.inf, -math.inf, "", "nan", "0", "größer", "x" * 300, "\0", "../..", "[red]", "os:system"),
    *([], [[]], [None], [1, "two"], [-1], [0, 0], [2**62, 2**62], {}, {"": 0}, {"name": "infonce"}, {"name": None}),
    *({"object": "os:system"}, {"name": "gedi", "clusters": 10**15}),
)
"""What a value is replaced by."""

READ_RUN = (
    ("runs", "{folder}"),
    ("report", "{folder}"),
    ("doctor", "{folder}"),
    ("evaluate", "{folder}", "-q"),
    ("embed", "{folder}", "{place}/table.csv", "--out", "{out}.npy", "-q"),
)
RESUME = ("fit", "--resume", "--out", "{folder}", "-q")
COMPARE = ("compare", "{place}/table.csv", "--label", "kind", "--trials", "1", "--jobs", "1", "--out", "{folder}", "-q")
STUDY = ("reproduce", "siamese/circles", "--budget", "smoke", "--jobs", "1", "--out", "{folder}", "-q")
EXPORT = (*STUDY[:2], "--out", "{folder}", "--export", "{out}.csv", "-q")


@dataclass(frozen=True)
class Case:
    """A file to damage, in which of the folders that `make_good` makes, and the commands that read it there."""

    made: str
    file: str
    readers: tuple[tuple[str, ...], ...]

    @property
    def name(self) -> str:
        """What a table calls it."""
        return f"{self.made}/{Path(self.file).name}"


CASES = (
    Case("run", "recipe.toml", (*READ_RUN, RESUME)),
    Case("run", "source.json", (*READ_RUN[1:], RESUME)),
    Case("run", "log.jsonl", (*READ_RUN[:3], RESUME)),
    Case("run", "metrics.json", READ_RUN[:3]),
    Case("run", "projection.npz", READ_RUN[1:2]),
    Case("run", "model.safetensors", READ_RUN),
    Case("half", "recipe.toml", (*READ_RUN[:3], RESUME)),
    Case("half", "source.json", (*READ_RUN[1:3], RESUME)),
    Case("half", "log.jsonl", (*READ_RUN[:3], RESUME)),
    Case("half", "checkpoints/step-00000006.safetensors", (RESUME,)),
    Case("images", "pictures.npz", READ_RUN[1:2]),
    Case("images", "model.safetensors", READ_RUN[:3]),
    Case("study", "store.sqlite", (STUDY, EXPORT)),
    Case("study", "result.json", (STUDY,)),
    Case("compare", "store.sqlite", ((*COMPARE, "--resume"),)),
    Case("compare/best", "source.json", READ_RUN[1:4]),
    Case("compare", "leaderboard.json", ((*COMPARE, "--resume"),)),
)


def make_good(place: Path) -> None:
    """Data, and a folder with good files of every kind: of runs, one of them half done, a study and a comparison."""
    random = np.random.default_rng(0)
    kind = random.integers(0, 2, 40)
    rows = random.normal(size=(40, 3)) + 2 * kind[:, None]
    lines = [",".join([*(f"{v:.4f}" for v in row), "cat" if k else "dog"]) for row, k in zip(rows, kind, strict=True)]
    (place / "table.csv").write_text("\n".join(["a,b,c,kind", *lines]) + "\n")
    for name in ("cats", "dogs"):
        folder = place / "pictures" / name
        folder.mkdir(parents=True)
        for number in range(10):
            Image.fromarray(random.integers(0, 255, (8, 8, 3), dtype=np.uint8)).save(folder / f"{number}.png")
    table = ["fit", place / "table.csv", "--label", "kind", "--set", "plan.checkpoint_every=6", "--steps", 12, "-q"]
    _run(*table, "--out", place / "run")
    small = ["--encoder", "conv", "--set", "encoder.widths=[4]", "--set", "encoder.hidden=8"]
    _run("fit", place / "pictures", "--steps", 2, *small, "--out", place / "images", "-q")
    half, clusters = place / "half", ["--objective", "gedi", "--set", "objective.clusters=2"]
    _run(*table, *clusters, "--evaluate", "none", "--out", half)
    for name in ("model.safetensors", "report.html", "checkpoints/step-00000012.safetensors"):
        (half / name).unlink()
    log = (half / "log.jsonl").read_text().splitlines(keepends=True)
    (half / "log.jsonl").write_text("".join(row for row in log if '"step": 12' not in row))


def make_grids(place: Path) -> None:
    """The same for a study and a comparison, which take longer."""
    _run(*_filled(STUDY, place / "study", place))
    _run(*_filled(COMPARE, place / "compare", place))


def _run(*arguments: object) -> None:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], prog_name="probssl")
    assert result.exit_code == 0, (result.stderr, result.exception)


def _filled(command: Sequence[str], folder: Path, place: Path) -> list[str]:
    return [part.format(folder=folder, place=place, out=place / "out") for part in command]


def trial(case: Case, place: Path, seed: object) -> str | None:
    """Damage one file and let one of its readers read it; what is wrong with how that ended. The seed decides all."""
    random, folder = Random(f"{case.name} {seed}"), place / "damaged"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(place / case.made, folder)
    what = damage(folder / case.file, random)
    reader = random.choice(case.readers)
    for path in place.glob("out.*"):
        path.unlink()
    wrong = verdict(*_filled(reader, folder, place))
    return None if wrong is None else f"{reader[0]} of {case.name}, seed {seed}, {what}: {wrong}"


# Damage


def damage(path: Path, random: Random) -> str:
    """Spoil a file in place; how. A third of the time its bytes, else what is in it."""
    content = path.read_bytes()
    inside = INSIDE.get(path.suffix)
    for _ in range(20):
        if inside is None or random.random() < 0.3:
            what, changed = _bytes(content, random)
        else:
            what, changed = inside(content, random)
        if changed != content:
            break
    path.write_bytes(changed)
    return f"{path.name}: {what}"


def _bytes(content: bytes, random: Random) -> tuple[str, bytes]:
    at = random.randrange(len(content) + 1)
    several = [random.randrange(len(content)) for _ in range(random.choice((1, 1, 5, 50)))] if content else []
    flipped = bytearray(content)
    for place in several:
        flipped[place] ^= 1 << random.randrange(8)
    made = {
        f"truncated at {at}": content[:at],
        "emptied": b"",
        f"{len(several)} bits flipped": bytes(flipped),
        f"zeros from {at}": content[:at] + b"\0" * (len(content) - at),
        f"noise put in at {at}": content[:at] + random.randbytes(random.randrange(1, 40)) + content[at:],
        f"cut out behind {at}": content[:at] + content[at + random.randrange(1, 200) :],
        "twice over": content + content,
    }
    return random.choice(list(made.items()))


def _document(document: Any, random: Random) -> str:
    """Change one value of a JSON document, in place; how."""
    places = list(_places(document))
    if not places:
        return "nothing"
    holder, key, path = random.choice(places)
    way = random.random()
    if way < 0.15:
        del holder[key]
        return f"{path} removed"
    if way < 0.2 and isinstance(holder, dict):
        holder[random.choice(("", "extra", f"{key}2", "event", "object"))] = holder.pop(key)
        return f"{path} renamed"
    if way < 0.25 and isinstance(holder, list):
        holder[key:key] = [copy.deepcopy(holder[key])] * random.choice((1, 3))
        return f"{path} repeated"
    value: Any = copy.deepcopy(random.choice(OTHERS))
    if way < 0.35 and isinstance(holder[key], int | float) and not isinstance(holder[key], bool):
        value = random.choice(
            (-holder[key], holder[key] * 1e9, holder[key] + 0.25, holder[key] * 10**12, str(holder[key]))
        )
    elif way < 0.4:
        value = [holder[key]] if way < 0.37 else {"value": holder[key]}
    elif way < 0.41:
        for _ in range(3000):
            value = [value]
    holder[key] = value
    return f"{path} = {_short(value)}"


def _short(value: Any) -> str:
    try:
        return repr(value)[:60]
    except RecursionError:
        return "nested lists"


def _places(value: Any, path: str = "") -> Iterator[tuple[Any, Any, str]]:
    """Every value in a document: what holds it, under which key, and how it is reached."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, entry in list(entries):
        yield value, key, f"{path}.{key}"
        yield from _places(entry, f"{path}.{key}")


def _dumped(document: Any) -> bytes:
    try:
        return json.dumps(document).encode()
    except RecursionError:
        return b'{"a":' * 3000 + b"0" + b"}" * 3000


def _json(content: bytes, random: Random) -> tuple[str, bytes]:
    if random.random() < 0.05:
        whole = random.choice(OTHERS)
        return f"the whole = {whole!r}", _dumped(whole)
    document = json.loads(content)
    return _document(document, random), _dumped(document)


def _lines(content: bytes, random: Random) -> tuple[str, bytes]:
    lines = content.split(b"\n")[:-1]
    at = random.randrange(len(lines))
    way = random.random()
    if way < 0.1:
        what, lines = "in reverse", lines[::-1]
    elif way < 0.2:
        what = f"line {at} removed"
        del lines[at]
    elif way < 0.3:
        what, lines[at] = f"line {at} changed", _dumped(random.choice(OTHERS))
    else:
        row = json.loads(lines[at])
        if random.random() < 0.2:
            row |= random.choice(
                (
                    {"event": "collapse"},
                    {"event": "recovery", "kind": "cluster"},
                    {"event": "collapse", "kind": "what", "message": ""},
                    {"event": "collapse", "kind": "label", "message": "step 1: so it is"},
                    {"event": 3},
                    {"event": "failure"},
                )
            )
        what = f"line {at}{_document(row, random)}"
        lines[at] = _dumped(row)
    return what, b"\n".join([*lines, b""])


def _recipe(content: bytes, random: Random) -> tuple[str, bytes]:
    document = tomllib.loads(content.decode())
    what = _document(document, random)
    text = []
    try:
        for name, value in sorted(document.items(), key=lambda pair: isinstance(pair[1], dict)):
            if isinstance(value, dict):
                text += [f"[{name or 'empty'}]", *(f"{_key(key)} = {_value(entry)}" for key, entry in value.items())]
            else:
                text.append(f"{_key(name)} = {_value(value)}")
    except RecursionError:
        text = ["seed = " + "[" * 3000]
    return what, "\n".join(text).encode()


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name)


def _value(value: Any) -> str:
    """TOML has neither null nor JavaScript's names of numbers."""
    return re.sub(r"\bnull\b", '"null"', _toml(value)).replace("NaN", "nan").replace("Infinity", "inf")


def _arrays(content: bytes, random: Random) -> tuple[str, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "arrays.npz"
        path.write_bytes(content)
        with np.load(path) as stored:
            arrays = dict(stored)
        name = random.choice(list(arrays))
        old = arrays.pop(name)
        number = old.dtype.kind not in "US"
        made: dict[str, Any] = {
            "removed": None,
            "flat": old.reshape(-1),
            "one dimension more": old[..., None],
            "one dimension less": old[0] if len(old) else old,
            "a number": np.float64(3.0),
            "nothing": old[:0],
            "shorter": old[:-1],
            "longer": np.concatenate([old, old]),
            "text": np.array(["a"] * len(old)).reshape(len(old)),
            "objects": np.array([{"a": 1}] * len(old), dtype=object),
            "of other length": np.zeros((3, *old.shape[1:])),
            "complex": old.astype(complex) if number else old,
            "as double": old.astype(float) if number else old,
            "as bytes": old.astype(np.uint8) if number else old,
            "negative": -1 - old.astype(int) if number else old,
            "huge": np.full(old.shape, 1e300) if number else old,
            "not a number": np.full(old.shape, np.nan) if number else old,
            "infinite": np.full(old.shape, np.inf) if number else old,
            "flags": np.zeros(old.shape, dtype=bool),
            "dates": np.zeros(old.shape, dtype="datetime64[s]"),
            "structured": np.zeros(old.shape, dtype=[("a", "f4")]),
        }
        what, new = random.choice(list(made.items()))
        if new is not None:
            arrays[name] = new
        np.savez_compressed(path, **arrays)
        if random.random() < 0.05:
            what = "a member with a false header"
            with zipfile.ZipFile(path, "a") as archive:
                archive.writestr(f"{name}.npy", random.randbytes(60))
        return f"{name} {what}", path.read_bytes()


def _tensors(content: bytes, random: Random) -> tuple[str, bytes]:
    """Another checkpoint or model, with a checksum of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file.safetensors"
        path.write_bytes(content)
        try:
            tensors, metadata = load_tensors(path)
        except CheckpointError:
            return _bytes(content, random)
        if random.random() < 0.6:
            what = _document(metadata, random)
        else:
            what = _tensor(tensors, random)
        try:
            save_tensors(path, tensors, metadata)
        except (RecursionError, TypeError):
            return _bytes(content, random)
        return what, path.read_bytes()


def _tensor(tensors: dict[str, torch.Tensor], random: Random) -> str:
    name = random.choice(list(tensors))
    old = tensors.pop(name)
    made: dict[str, Any] = {
        "removed": lambda: None,
        "flat": lambda: old.reshape(-1).clone(),
        "one dimension more": lambda: old[None],
        "a number": lambda: torch.tensor(3.0),
        "nothing": lambda: old.reshape(-1)[:0],
        "longer": lambda: torch.cat([old.reshape(-1), old.reshape(-1)]),
        "bytes": lambda: torch.zeros(old.shape, dtype=torch.uint8),
        "double": lambda: old.double(),
        "whole": lambda: old.long(),
        "half": lambda: old.bfloat16(),
        "flags": lambda: old.bool(),
        "huge": lambda: torch.full(old.shape, 1e38),
        "not a number": lambda: torch.full(old.shape, torch.nan),
        "infinite": lambda: torch.full(old.shape, torch.inf),
        "negative": lambda: torch.full(old.shape, -7.0),
        "zero": lambda: torch.zeros_like(old),
    }
    what, make = random.choice(list(made.items()))
    new = make()
    if new is not None:
        tensors[random.choice((name, name, name, name, f"{name}.1", "encoder.extra"))] = new
    return f"{name} {what}"


def _store(content: bytes, random: Random) -> tuple[str, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.sqlite"
        path.write_bytes(content)
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode = DELETE")
            table = random.choice(("trials", "trials", "trials", "weights", "failures", "claims"))
            rows = [row for (row,) in connection.execute(f"SELECT rowid FROM {table}")]
            way = random.random()
            if way < 0.1 or not rows:
                what, statement = random.choice(
                    (
                        ("of the next format", "PRAGMA user_version = 99"),
                        ("of an old format", "PRAGMA user_version = 1"),
                        ("of another program", "PRAGMA application_id = 7"),
                        (f"without {table}", f"DROP TABLE {table}"),
                        (f"another {table}", f"ALTER TABLE {table} RENAME COLUMN key TO other"),
                        ("without results", "ALTER TABLE trials DROP COLUMN result"),
                    )
                )
                connection.execute(statement)
                return what, path.read_bytes()
            row = random.choice(rows)
            columns = [name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")]
            column = "result" if table == "trials" and random.random() < 0.6 else random.choice(columns)
            if column in ("result", "config"):
                (stored,) = connection.execute(f"SELECT {column} FROM {table} WHERE rowid = ?", (row,)).fetchone()
                what, new = _json(stored.encode(), random)
                value: Any = new.decode()
            elif column == "weights":
                (stored,) = connection.execute("SELECT weights FROM weights WHERE rowid = ?", (row,)).fetchone()
                what, value = _kept(stored, random)
            else:
                value = random.choice(("", "x", -1, 2**62, 1e300, b"\0\xff", "{}"))
                what = f"= {value!r}"
            connection.execute(f"UPDATE OR REPLACE {table} SET {column} = ? WHERE rowid = ?", (value, row))
        return f"{table}.{column} {what}", path.read_bytes()


def _kept(content: bytes, random: Random) -> tuple[str, bytes]:
    """What a comparison keeps of a training: a line of JSON, then tensors."""
    line, _, blob = content.partition(b"\n")
    if random.random() < 0.3:
        return _bytes(content, random)
    if random.random() < 0.5:
        what, line = _json(line, random)
    else:
        tensors = load(blob)
        what, blob = _tensor(tensors, random), save({name: tensor.contiguous() for name, tensor in tensors.items()})
    return what, line + b"\n" + blob


INSIDE: dict[str, Callable[[bytes, Random], tuple[str, bytes]]] = {
    ".json": _json,
    ".jsonl": _lines,
    ".toml": _recipe,
    ".npz": _arrays,
    ".safetensors": _tensors,
    ".sqlite": _store,
}
"""Damage that knows the format, by the ending of a file."""


# What comes of it

ONE_SENTENCE = re.compile(r"error: \S[^\n]*[^\n.]\n")


def verdict(*arguments: object, seconds: float = 30) -> str | None:
    """What is wrong with how a command ended; None where it did its work, or refused in one sentence with exit code 2.

    A command that is still at work after so many seconds is stopped as Ctrl-C would: damage may ask for more steps.
    """
    with _stopped_after(seconds) as stopped:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments], prog_name="probssl")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        last = traceback.extract_tb(result.exception.__traceback__)[-1]
        place = [
            frame for frame in traceback.extract_tb(result.exception.__traceback__) if "/probssl/" in frame.filename
        ]
        at = place[-1] if place else last
        said = " ".join(str(result.exception).split())[:160]
        return f"{type(result.exception).__name__}: {said} ({Path(at.filename).name}:{at.lineno})"
    if result.exit_code == 0 or (result.exit_code == 130 and stopped):
        return None
    if result.exit_code == 1 and result.stderr.startswith("error: training stopped at step"):
        return None  # weights may be as large as those of a training that diverged
    if result.exit_code != 2:
        return f"exit code {result.exit_code}: {result.stderr[:300]}"
    if not ONE_SENTENCE.fullmatch(result.stderr):
        return f"not one sentence: {result.stderr[:400]!r}"
    return None


@contextmanager
def _stopped_after(seconds: float) -> Iterator[list[bool]]:
    stopped: list[bool] = []

    def stop(number: int, frame: object) -> None:
        stopped.append(True)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield stopped
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
