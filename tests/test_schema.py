"""Type hints as schemas: what fits, what does not, and the words about it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from probssl.errors import DamagedFile, InputError
from probssl.schema import Mismatch, conform, intact, read_arrays, read_json


@dataclass(frozen=True)
class Inner:
    kind: Literal["table", "images"]
    shape: tuple[int, ...] = (1,)


@dataclass(frozen=True)
class Outer:
    name: str
    size: tuple[int, int] | None = None
    inner: Inner | None = None
    rows: dict[str, dict[str, float | None]] = field(default_factory=dict)
    flags: list[bool] = field(default_factory=list)
    anything: Any = None


def test_documents_become_what_they_were() -> None:
    stored = {"name": "a", "size": [1, 2], "inner": {"kind": "images", "shape": [3, 4]}, "anything": [{}]}
    made = conform({**stored, "rows": {"x": {"y": None, "z": 1}}, "flags": [True]}, Outer)
    assert made == Outer("a", (1, 2), Inner("images", (3, 4)), {"x": {"y": None, "z": 1}}, [True], [{}])
    assert conform(Inner("table"), Inner | None) == Inner("table")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"name": 3}, "name must be text, not 3"),
        ({"name": None}, "name must be text, not None"),
        ({"size": [1]}, "size must be a list or null"),
        ({"size": [1, 2.0]}, "size must be a list or null"),
        ({"size": 7}, "size must be a list or null, not 7"),
        ({"inner": {"kind": "table", "shape": [2**63]}}, "inner.shape[0] must be a whole number"),
        ({"inner": {"kind": "table", "shape": [True]}}, "inner.shape[0] must be a whole number, not True"),
        ({"inner": {"kind": "world"}}, "inner.kind must be table or images, not 'world'"),
        ({"inner": {"shape": [1]}}, "inner has no 'kind'"),
        ({"inner": {"kind": "table", "extra": 1}}, "inner cannot have 'extra'"),
        ({"rows": {"x": {"y": "1"}}}, "rows.x.y must be a finite number or null, not '1'"),
        ({"rows": {"x": {"y": float("nan")}}}, "rows.x.y must be a finite number or null, not nan"),
        ({"rows": {"x": {"y": False}}}, "rows.x.y must be a finite number or null, not False"),
        ({"rows": []}, "rows must be a table, not []"),
        ({"flags": [0]}, "flags[0] must be true or false, not 0"),
        ({"other": 0}, "it cannot have 'other'"),
    ],
)
def test_what_does_not_fit_is_named(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(Mismatch) as error:
        conform({"name": "a", **changes}, Outer)
    assert said in str(error.value)


def test_whatever_goes_wrong_while_reading_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    with pytest.raises(DamagedFile, match=r"a\.json is missing: copy it back, or train again"):
        read_json(path, dict)
    for content in ("", "{", "[" * 5000, "[]", '{"a": 1' + "0" * 5000 + "}", "\x00"):
        path.write_text(content)
        with pytest.raises(DamagedFile, match=r"^\S+a\.json is damaged \([^\n]*\): draw lots$"):
            read_json(path, dict[str, float], "draw lots")  # type: ignore[arg-type]
    path.write_bytes(b"\xff{}")
    with pytest.raises(DamagedFile):
        read_json(path, dict)


@pytest.mark.parametrize("error", [InputError("on purpose"), MemoryError(), PermissionError(13, "denied", "a.json")])
def test_errors_that_are_no_damage_pass(error: Exception) -> None:
    with pytest.raises(type(error)), intact(Path("a.json")):
        raise error


def test_arrays_have_their_kinds_and_dimensions(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, z=np.ones((3, 2), np.float32), names=np.array(["a", "b"]))
    assert read_arrays(path, "draw lots", z="f2", names="U1").keys() == {"z", "names"}
    assert read_arrays(path, "draw lots", ("more",), z="f2", more="u5").keys() == {"z"}
    for kinds in ({"z": "f1"}, {"z": "iu2"}, {"names": "iu1"}, {"more": "f1"}):
        with pytest.raises(DamagedFile, match="draw lots"):
            read_arrays(path, "draw lots", **kinds)
    np.savez(path, z=np.array([[np.nan]]))
    with pytest.raises(DamagedFile, match="z has numbers that are not finite"):
        read_arrays(path, "draw lots", z="f2")
    np.savez(path, z=np.array([{}], dtype=object))
    with pytest.raises(DamagedFile):
        read_arrays(path, "draw lots", z="O1")
