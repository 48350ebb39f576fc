"""Small files that unpack to more than anyone has: refused before the memory is taken."""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

from probssl import memory
from probssl.data import image_files, load, load_images, text
from probssl.data.svhn import read_mat
from probssl.errors import InputError
from probssl.worlds.sprite_files import load_dsprites


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with a megabyte left."""
    monkeypatch.setattr(memory, "available", lambda: 10**6)


def refused(path: Path) -> str:
    with pytest.raises(InputError) as error:
        load(path)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("before", [b"", b"a,b\n1,2\n"], ids=["first line", "later line"])
def test_a_line_of_many_megabytes(tmp_path: Path, before: bytes) -> None:
    path = tmp_path / "long.csv.gz"
    path.write_bytes(gzip.compress(before + b"1," * 8_500_000 + b"1\n", 1))
    assert f"a line has more than {text.BLOCK:,} bytes" in refused(path)


@pytest.mark.parametrize("row", [b"1,2\n", b'1,"2"\n', b"1,x\n"], ids=["plain", "quoted", "words"])
@pytest.mark.usefixtures("little")
def test_lines_that_do_not_fit_into_memory(tmp_path: Path, row: bytes) -> None:
    path = tmp_path / "many.csv.gz"
    path.write_bytes(gzip.compress(b"a,b\n" + row * 300_000))
    assert refused(path).startswith(f"reading {path} would need about ")
    path.write_bytes(gzip.compress(b"a,b\n" + b"1,2\n" * 20_000))
    assert len(load(path)) == 20_000


@pytest.mark.usefixtures("little")
def test_arrays_that_do_not_fit_into_memory(tmp_path: Path) -> None:
    path = tmp_path / "zeros.npz"
    np.savez_compressed(path, x=np.zeros((100_000, 10)))
    assert path.stat().st_size < 20_000
    assert refused(path).startswith(f"unpacking {path} (array 'x') would need about 8.0 MB of memory")
    np.save(tmp_path / "zeros.npy", np.zeros((100_000, 10), np.int8))
    assert "would need about 16 MB of memory" in refused(tmp_path / "zeros.npy")
    with pytest.raises(InputError, match="leave out columns"):
        load(np.zeros((100_000, 10)))
    assert load(np.zeros((1000, 10))).n_features == 10


@pytest.mark.usefixtures("little")
def test_parquet_that_does_not_fit_into_memory(tmp_path: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"a": np.zeros(10**6), "b": np.arange(10**6) % 2}), tmp_path / "zeros.parquet")
    assert "would need about 48 MB of memory" in refused(tmp_path / "zeros.parquet")


def test_an_array_that_claims_more_than_it_holds(tmp_path: Path) -> None:
    path = tmp_path / "claim.npz"
    with zipfile.ZipFile(path, "w") as archive, archive.open("x.npy", "w") as stream:
        np.lib.format.write_array_header_1_0(stream, {"descr": "<f8", "fortran_order": False, "shape": (10**12, 1000)})
    assert "is damaged and cannot be read" in refused(path)


def test_a_header_of_an_archive_that_is_a_bomb(tmp_path: Path) -> None:
    path = tmp_path / "bomb.tar.gz"
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        member = tarfile.TarInfo("a.png")
        member.pax_headers = {"comment": "x" * (image_files.LARGEST_FILE + image_files.LARGEST_HEADER)}
        archive.addfile(member, io.BytesIO())
    assert path.stat().st_size < 2**20
    with pytest.raises(InputError, match="has more between two files than archives of images do"):
        load_images(path)


@pytest.mark.usefixtures("little")
def test_published_files_that_are_bombs(tmp_path: Path) -> None:
    from scipy import io as matlab

    path = tmp_path / "train_32x32.mat"
    images = np.zeros((32, 32, 3, 500), np.uint8)
    matlab.savemat(path, {"X": images, "y": np.ones((500, 1))}, do_compression=True)
    with pytest.raises(InputError, match=r"would need about 4\.6 MB of memory"):
        read_mat(path)
    sprites = tmp_path / "sprites.npz"
    np.savez_compressed(
        sprites, imgs=np.zeros((2, 64, 64), np.uint8), latents_classes=np.zeros(10**6), latents_values=np.zeros(2)
    )
    with pytest.raises(InputError, match=r"would need about 8\.0 MB of memory"):
        load_dsprites(sprites)
