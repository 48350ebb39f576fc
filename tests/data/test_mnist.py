"""The idx files of MNIST: read whole, or refused in one sentence."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import numpy as np
import pytest

from probssl.data import load_images
from probssl.data import mnist as module
from probssl.data.mnist import URLS, mnist, read_idx
from probssl.errors import InputError
from tests.files import idx, write_half

HERE = Path(os.environ.get("PROBSSL_DATA") or "absent")


def write_set(folder: Path, train: int = 5, test: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """A small set of random images; returns its training images and labels."""
    rng = np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    for half, count in (("t10k", test), ("train", train)):
        images = rng.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        labels = rng.integers(0, 10, count, dtype=np.uint8)
        write_half(folder, half, images, labels)
    return images, labels


@pytest.mark.parametrize("name", URLS)
def test_images_and_labels_are_read(folder: Path, name: str) -> None:
    images, labels = write_set(folder / name)
    found = mnist(name)
    assert found.source == name
    assert found.shape == (1, 28, 28)
    np.testing.assert_array_equal(found.train_images[:, 0], images)
    np.testing.assert_array_equal(found.train_labels, labels)
    assert (found.train_images.dtype, found.train_labels.dtype) == (np.uint8, np.int64)
    assert (found.test_images.shape, found.test_labels.shape) == ((3, 1, 28, 28), (3,))
    assert len(found.classes) == 10
    assert found.train_images.flags.writeable
    np.testing.assert_array_equal(load_images(name).train_images, found.train_images)


@pytest.mark.parametrize("shape", [(4,), (2, 3), (2, 3, 5)])
def test_an_idx_file_has_any_number_of_sides(tmp_path: Path, shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(idx(array)))
    np.testing.assert_array_equal(read_idx(path), array)


WHOLE = idx(np.zeros((2, 3), np.uint8))


@pytest.mark.parametrize(
    ("content", "part"),
    [
        pytest.param(b"<html>please log in</html>", "cannot be read as a gzip file", id="a page"),
        pytest.param(gzip.compress(WHOLE)[:-9], "cannot be read as a gzip file", id="cut off"),
        pytest.param(gzip.compress(b""), "begins with nothing", id="empty"),
        pytest.param(gzip.compress(b"\0\0\x0d\x01" + WHOLE[4:]), "it begins with 00 00 0d 01", id="floats"),
        pytest.param(gzip.compress(WHOLE[:9]), "breaks off within its header, after 9 bytes", id="half a header"),
        pytest.param(
            gzip.compress(WHOLE[:-1]), "should hold 2 × 3 = 6 bytes after its header, and holds 5", id="short"
        ),
        pytest.param(gzip.compress(WHOLE + b"0"), "and holds 7", id="long"),
    ],
)
def test_damaged_files_are_named(tmp_path: Path, content: bytes, part: str) -> None:
    path = tmp_path / "damaged.gz"
    path.write_bytes(content)
    with pytest.raises(InputError) as error:
        read_idx(path)
    assert part in str(error.value)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("file", "array", "part"),
    [
        ("train-labels-idx1", np.zeros(4, np.uint8), "has 5 images and labels (4,)"),
        ("train-labels-idx1", np.full(5, 10, np.uint8), "has a label 10"),
        ("t10k-images-idx3", np.zeros((3, 32, 32), np.uint8), "the test half of mnist should be images of 28 × 28"),
        ("t10k-images-idx3", np.zeros((0, 28, 28), np.uint8), "is an array of shape (0, 28, 28)"),
    ],
)
def test_files_that_do_not_belong_together(folder: Path, file: str, array: np.ndarray, part: str) -> None:
    write_set(folder / "mnist")
    (folder / "mnist" / f"{file}-ubyte.gz").write_bytes(gzip.compress(idx(array)))
    with pytest.raises(InputError) as error:
        mnist()
    assert part in str(error.value)


def test_a_file_that_unpacks_to_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LARGEST", 1000)
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(bytes(10_000_000)))
    with pytest.raises(InputError, match="unpacks to over 1,000 bytes"):
        read_idx(path)


def test_what_is_not_there(folder: Path) -> None:
    with pytest.raises(InputError, match="mnist and fashion-mnist, not 'digits'"):
        mnist("digits")
    with pytest.raises(InputError) as error:
        mnist()
    assert str(error.value) == (
        f"mnist: {URLS['mnist'].format(file='train-images-idx3-ubyte.gz')} could not be downloaded (no route to host): "
        f"try again with a network, or put the file at {folder / 'mnist' / 'train-images-idx3-ubyte.gz'} by hand"
    )


@pytest.mark.parametrize("name", URLS)
def test_the_real_files(name: str) -> None:
    if not (HERE / name / "train-images-idx3-ubyte.gz").is_file():
        pytest.skip(f"{HERE / name} is not there")
    found = mnist(name)
    assert (found.train_images.shape, found.test_images.shape) == ((60_000, 1, 28, 28), (10_000, 1, 28, 28))
    assert found.train_images.mean() == pytest.approx(33.3 if name == "mnist" else 72.9, abs=0.1)
    np.testing.assert_array_equal(np.bincount(found.test_labels), [1000] * 10 if "fashion" in name else MNIST_TEST)


MNIST_TEST = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
