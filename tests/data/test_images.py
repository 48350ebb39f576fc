"""Sets of images: folders, archives, CIFAR and SVHN as their authors lay them out, the cache, and what is refused."""

from __future__ import annotations

import http.server
import io
import os
import sys
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.io import savemat

import probssl
from probssl.data import ImageSet, catalogue, fetch, image_files, load, load_images, unit_floats
from probssl.data import images as module
from probssl.data.checksums import CHECKSUMS
from probssl.data.cifar import CIFAR10_CLASSES, LAYOUTS
from probssl.errors import InputError, MissingExtra

HERE = Path(os.environ.get("PROBSSL_DATA") or "absent")
RNG = np.random.default_rng(0)


def pixels(*shape: int) -> np.ndarray:
    return RNG.integers(0, 256, shape, dtype=np.uint8)


def picture(array: np.ndarray, kind: str = "PNG") -> bytes:
    """An image [h, w] or [h, w, 3] as the contents of a file."""
    stream = io.BytesIO()
    Image.fromarray(array).save(stream, kind)
    return stream.getvalue()


def write(base: Path, files: dict[str, np.ndarray | bytes]) -> Path:
    for name, content in files.items():
        (base / name).parent.mkdir(parents=True, exist_ok=True)
        (base / name).write_bytes(content if isinstance(content, bytes) else picture(content))
    return base


def archive(path: Path, files: dict[str, bytes], compression: str = "xz") -> Path:
    with tarfile.open(path, f"w:{compression}") as stream:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            stream.addfile(member, io.BytesIO(content))
    return path


def refused(part: str, source: object, **options: object) -> str:
    with pytest.raises(InputError) as error:
        load_images(source, **options)
    assert part in str(error.value)
    assert "\n" not in str(error.value)
    return str(error.value)


# --- folders ----------------------------------------------------------------------------------------------------------


def test_a_folder_of_classes(tmp_path: Path) -> None:
    files = {f"{label}/{number}.png": pixels(4, 5, 3) for label in ("dog", "cat") for number in range(3)}
    write(tmp_path, {**files, "cat/notes.txt": b"no image", "cat/.hidden.png": b"none either"})
    found = load_images(tmp_path)
    assert found.classes == ("cat", "dog")
    assert found.shape == (3, 4, 5)
    assert found.train_labels is not None
    assert found.train_labels.tolist() == [0, 0, 0, 1, 1, 1]
    for row, name in zip(found.train_images, sorted(files), strict=True):
        np.testing.assert_array_equal(row.transpose(1, 2, 0), files[name])
    assert found.test_images.shape == (0, 3, 4, 5)
    assert found.test_labels is not None
    assert found.test_labels.shape == (0,)


def test_a_folder_without_classes(tmp_path: Path) -> None:
    files = {f"{name}.png": pixels(6, 6) for name in "bca"}
    found = load_images(str(write(tmp_path, files)))
    assert found.classes == ()
    assert found.train_labels is None
    assert found.test_labels is None
    np.testing.assert_array_equal(found.train_images[:, 0], [files[f"{name}.png"] for name in "abc"])


def test_halves(tmp_path: Path) -> None:
    files = {f"{half}/{label}/0.png": pixels(4, 4) for half in ("train", "test") for label in "ab"}
    found = load_images(write(tmp_path, files))
    assert found.classes == ("a", "b")
    np.testing.assert_array_equal(found.test_images[:, 0], [files["test/a/0.png"], files["test/b/0.png"]])
    assert found.train_labels.tolist() == found.test_labels.tolist() == [0, 1]


def test_a_folder_in_a_folder(tmp_path: Path) -> None:
    write(tmp_path, {f"mine/pets/{label}/{number}.png": pixels(4, 4) for label in "ab" for number in range(2)})
    assert load_images(tmp_path).classes == ("a", "b")
    write(tmp_path / "one", {"cat/0.png": pixels(4, 4), "cat/1.png": pixels(4, 4)})
    assert load_images(tmp_path / "one").classes == ("cat",)


def test_halves_without_classes(tmp_path: Path) -> None:
    found = load_images(write(tmp_path, {"train/0.png": pixels(4, 4), "test/0.png": pixels(4, 4)}))
    assert (len(found.train_images), len(found.test_images), found.train_labels) == (1, 1, None)


def test_halves_in_other_words(tmp_path: Path) -> None:
    for train, test in (("Train", "Test"), ("training", "testing"), ("TRAIN", "valid")):
        files = {f"{half}/{label}/0.png": pixels(4, 4) for half in (train, test) for label in "ab"}
        found = load_images(write(tmp_path / train, files))
        assert found.classes == ("a", "b")
        np.testing.assert_array_equal(found.test_images[:, 0], [files[f"{test}/{label}/0.png"] for label in "ab"])


def test_links_to_folders_are_followed_but_not_in_circles(tmp_path: Path) -> None:
    files = {f"{label}/0.png": pixels(4, 4) for label in "ab"}
    elsewhere, folder = write(tmp_path / "elsewhere", files), tmp_path / "mine"
    folder.mkdir()
    for label in "ab":
        (folder / label).symlink_to(elsewhere / label, target_is_directory=True)
    (elsewhere / "a" / "round").symlink_to(folder, target_is_directory=True)
    found = load_images(folder)
    assert found.classes == ("a", "b")
    np.testing.assert_array_equal(found.train_images[:, 0], list(files.values()))
    (elsewhere / "b" / "1.png").write_bytes((elsewhere / "b" / "0.png").read_bytes())
    assert len(load_images(folder).train_images) == 3


def test_kinds_of_pixels(tmp_path: Path) -> None:
    grey, colour = pixels(8, 8), pixels(8, 8, 3)
    stream = io.BytesIO()
    Image.fromarray(np.concatenate([colour, pixels(8, 8, 1)], 2), "RGBA").save(stream, "PNG")
    smooth = np.linspace(0, 255, 64).reshape(8, 8).astype(np.uint8)
    write(tmp_path, {"a.png": grey, "b.png": colour, "c.png": stream.getvalue(), "d.JPG": picture(smooth, "JPEG")})
    found = load_images(tmp_path)
    assert found.shape == (3, 8, 8)
    np.testing.assert_array_equal(found.train_images[0], [grey] * 3)
    np.testing.assert_array_equal(found.train_images[1].transpose(1, 2, 0), colour)
    np.testing.assert_array_equal(found.train_images[2], found.train_images[1])
    assert np.abs(found.train_images[3].astype(int) - smooth).max() < 10


def test_sizes(tmp_path: Path) -> None:
    write(tmp_path, {"a.png": np.full((4, 6), 200, np.uint8), "b.png": np.full((8, 6), 100, np.uint8)})
    refused("b.png has 8 × 6 pixels, where a.png has 4 × 6: ask for one size", tmp_path)
    found = load_images(tmp_path, size=(2, 3))
    assert found.shape == (1, 2, 3)
    assert (found.train_images[0] == 200).all()
    assert (found.train_images[1] == 100).all()
    assert load_images(tmp_path, size=5).shape == (1, 5, 5)
    refused("at least one pixel", tmp_path, size=(0, 3))


def test_the_middle_of_an_image_is_resized(tmp_path: Path) -> None:
    image = np.zeros((40, 80, 3), np.uint8)
    image[:, 20:60] = 255
    for kind in ("PNG", "JPEG"):
        write(tmp_path / kind, {f"a.{kind.lower()}": picture(image, kind)})
        assert (load_images(tmp_path / kind, size=10).train_images >= 200).all()  # squashed, half would be black


def test_images_that_do_not_fit_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grey, colour = pixels(5, 4), pixels(5, 4, 3)
    write(tmp_path / "own", {"a.png": grey, "b.png": grey, "c.png": colour, "d.png": grey})
    few = load_images(tmp_path / "own")
    monkeypatch.setattr(image_files, "IN_MEMORY", 30)  # from the second on
    many = load_images(tmp_path / "own")
    assert isinstance(many.train_images, np.memmap)
    np.testing.assert_array_equal(many.train_images, few.train_images)
    many.train_images[0] = 0  # a copy, not a file
    assert many.train_images.sum() < few.train_images.sum()


def test_damaged_images_are_named(tmp_path: Path) -> None:
    whole = picture(pixels(16, 16, 3), "JPEG")
    write(tmp_path, {"a.jpg": whole, "b.jpg": whole[:-200], "c.png": b"<html>", "d.png": b""})
    told = refused("b.jpg is damaged", tmp_path)
    assert "corrupt='skip'" in told
    found = load_images(tmp_path, corrupt="skip")
    assert (len(found), list(found.left_out)) == (1, ["b.jpg", "c.png", "d.png"])
    assert found.left_out["b.jpg"] == "it is damaged and cannot be decoded"
    refused("refuse or skip, not 'mend'", tmp_path, corrupt="mend")


def test_what_no_image_set_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused("there is no folder or set of images 'cifra10'; did you mean 'cifar10'", "cifra10")
    refused("holds no images", tmp_path)
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    refused("neither a folder of images nor an archive", tmp_path / "x.csv")
    refused("holds no images, only damaged ones", write(tmp_path / "bad", {"a.png": b""}), corrupt="skip")
    mixed = write(tmp_path / "mixed", {"a.png": pixels(4, 4), "b/b.png": pixels(4, 4)})
    refused("an image outside of them, 'a.png'", mixed)
    half = write(tmp_path / "half", {"train/a/a.png": pixels(4, 4), "other/b.png": pixels(4, 4)})
    refused("has a folder 'train' of images and, outside of it, 'other/b.png'", half)
    refused("has no images to train on", write(tmp_path / "tests", {"test/a/a.png": pixels(4, 4)}))
    deep = io.BytesIO()
    Image.fromarray(RNG.integers(0, 65536, (4, 4)).astype(np.uint16)).save(deep, "PNG")
    refused("8 bits a channel", write(tmp_path / "deep", {"a.png": deep.getvalue()}))
    monkeypatch.setattr(image_files, "LARGEST_IMAGE", 10)
    refused("make it smaller first", write(tmp_path / "large", {"a.png": pixels(4, 4)}))


def test_without_pillow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(MissingExtra) as error:
        load_images(write(tmp_path, {"a.png": b"whatever"}))
    assert str(error.value).endswith("pip install 'probssl[images]'")


def test_progress_ends_at_the_total(tmp_path: Path) -> None:
    steps: list[tuple[int, int | None]] = []
    write(tmp_path / "a", {f"{number}.png": pixels(4, 4) for number in range(3)})
    load_images(tmp_path / "a", progress=lambda done, total: steps.append((done, total)))
    assert len(steps) == 3
    assert steps[-1][0] == steps[-1][1] == sum(file.stat().st_size for file in (tmp_path / "a").iterdir())


# --- archives ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", ["", "gz", "xz", "bz2"])
@pytest.mark.parametrize("top", ["", "./", "pets/"])
def test_an_archive_is_its_folder(tmp_path: Path, compression: str, top: str) -> None:
    files = {f"{half}/{label}/0.png": picture(pixels(4, 4)) for half in ("train", "test") for label in "ba"}
    slow = load_images(write(tmp_path / "folder", files))
    path = tmp_path / ("pets.tar" + (f".{compression}" if compression else ""))
    found = load_images(archive(path, {top + name: content for name, content in files.items()}, compression))
    assert found.classes == slow.classes
    for part in ("images", "labels", "test"):
        np.testing.assert_array_equal(getattr(found, part), getattr(slow, part))
    assert [str(name).removeprefix("pets/") for name in found.ids] == slow.ids.tolist()


@pytest.mark.parametrize("compression", ["gz", "xz", "bz2"])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.999])
def test_archives_that_break_off(tmp_path: Path, compression: str, share: float) -> None:
    path = tmp_path / f"a.tar.{compression}"
    archive(path, {f"a/{number}.png": picture(pixels(20, 20)) for number in range(20)}, compression)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    refused(f"{path} is not a whole tar archive", path)


def test_archives_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(b"<html>please log in</html>" * 50)
    refused("is not a whole tar archive", tmp_path / "a.tar")


def test_nothing_is_unpacked(tmp_path: Path) -> None:
    """Links, devices and paths that lead outside are never followed."""
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as stream:
        for name, kind in (("a/link.png", tarfile.SYMTYPE), ("a/device.png", tarfile.CHRTYPE)):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, "/etc/passwd"
            stream.addfile(member)
        content = picture(pixels(4, 4))
        member = tarfile.TarInfo("a/real.png")
        member.size = len(content)
        stream.addfile(member, io.BytesIO(content))
    assert len(load_images(path).train_images) == 1
    outside = archive(tmp_path / "b.tar", {"../../b.png": content}, "")
    refused("holds no images", outside)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.tar", "b.tar"]


def test_archives_that_swell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_files, "LARGEST_FILE", 1000)
    path = archive(tmp_path / "a.tar.xz", {"a/0.png": bytes(100_000)})
    refused("more than archives of images do: unpack it", path)
    monkeypatch.setattr(image_files, "LARGEST_ARCHIVE", 1500)
    refused("more than archives of images do", archive(path, {f"a/{k}.txt": bytes(900) for k in range(3)}))


# --- CIFAR ------------------------------------------------------------------------------------------------------------


def cifar_files(name: str, count: int = 3) -> dict[str, bytes]:
    """Small files in the layout of the authors."""
    layout = LAYOUTS[name]
    files = {}
    for file in (*layout.train, *layout.test):
        rows = pixels(count, layout.labels + 3072)
        rows[:, : layout.labels] %= 10
        files[file] = rows.tobytes()
    if layout.class_names:
        files[layout.class_names] = "".join(f"thing_{number}\n" for number in range(100)).encode()
    return files


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("place", ["folder", "folder below", "archive", "archive below"])
def test_cifar_in_binary(folder: Path, name: str, place: str) -> None:
    layout, files = LAYOUTS[name], cifar_files(name)
    base = folder / name if "below" in place else folder
    base.mkdir(exist_ok=True)
    if "folder" in place:
        write(base / layout.folder, files)
    else:
        packed = next(iter(module.NAMED[name].downloads)).rpartition("/")[2]
        archive(base / packed, {f"{layout.folder}/{file}": content for file, content in files.items()}, "gz")
    for _ in range(2):  # the second time from the cache
        found = load_images(name)
        rows = np.frombuffer(b"".join(files[file] for file in layout.train), np.uint8).reshape(-1, layout.labels + 3072)
        assert found.train_labels.tolist() == rows[:, layout.labels - 1].tolist()
        for image, row in zip(found.train_images, rows[:, layout.labels :], strict=True):
            for channel, row_number, column in ((0, 0, 0), (1, 2, 3), (2, 31, 30)):
                assert image[channel, row_number, column] == row[1024 * channel + 32 * row_number + column]
        assert found.test_images.shape == (3, 3, 32, 32)
        assert found.classes[3] == ("cat" if name == "cifar10" else "thing_3")
    entry = next(entry for entry in catalogue() if entry.name == name)
    assert entry.present
    assert entry.where == str(fetch(name))


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (
            {"test_batch.bin": b"x" * 3072},
            "test_batch.bin has 3,072 bytes, which is not a whole number of images of 3,073",
        ),
        ({"data_batch_2.bin": b""}, "data_batch_2.bin has 0 bytes"),
        ({"data_batch_1.bin": b"\x0a" + bytes(3072)}, "has a label 10, where labels run from 0 to 9"),
        ({"data_batch_5.bin": None}, "has no file data_batch_5.bin, which cifar10 is made of"),
    ],
)
def test_damaged_files_of_cifar(folder: Path, change: dict[str, bytes | None], part: str) -> None:
    files = {**cifar_files("cifar10"), **change}
    write(folder / "cifar-10-batches-bin", {name: content for name, content in files.items() if content is not None})
    refused(part, "cifar10")


def cifar_pictures(count: int = 4, kind: str = "JPEG") -> dict[str, bytes]:
    return {
        f"{half}/{label}/{number:04}.{kind.lower()}": picture(np.full((32, 32, 3), 20 * code + number, np.uint8), kind)
        for half in ("train", "test")
        for code, label in enumerate(CIFAR10_CLASSES)
        for number in range(count if half == "train" else 2)
    }


@pytest.mark.parametrize("place", ["cifar10-jpeg.tar.xz", "cifar10/cifar10-jpeg.tar.xz", "cifar10"])
def test_cifar_as_pictures(folder: Path, place: str) -> None:
    (folder / "cifar10").mkdir()
    files = cifar_pictures()
    if place == "cifar10":
        write(folder / place, files)
    else:
        archive(folder / place, files)
    found = load_images("cifar10")
    assert found.source == "cifar10"
    assert (found.classes, found.shape) == (CIFAR10_CLASSES, (3, 32, 32))
    assert (found.train_images[:, 0, 0, 0] // 20 == found.train_labels).all()  # images and labels stayed together
    assert np.bincount(found.train_labels).tolist() == [4] * 10
    assert np.bincount(found.test_labels).tolist() == [2] * 10
    assert len(set(found.train_labels[:10].tolist())) > 4  # shuffled
    assert fetch("cifar10") == folder / place
    np.testing.assert_array_equal(load_images("cifar10").train_images, found.train_images)


def test_exact_pixels_come_first(folder: Path) -> None:
    archive(folder / "cifar10-jpeg.tar.xz", cifar_pictures())
    assert len(load_images("cifar10").train_images) == 40
    write(folder / "cifar-10-batches-bin", cifar_files("cifar10"))
    assert len(load_images("cifar10").train_images) == 15


def test_pictures_that_are_not_cifar(folder: Path) -> None:
    write(folder / "cifar10", {"train/a/0.png": pixels(8, 8), "test/a/0.png": pixels(8, 8)})
    refused("is not CIFAR-10: it has 1 classes and images of 8 × 8 in 1 channels", "cifar10")


# --- the cache --------------------------------------------------------------------------------------------------------


def test_decoded_images_are_kept(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = archive(folder / "cifar10-jpeg.tar.xz", cifar_pictures())
    first = np.array(load_images("cifar10").train_images)  # a file that is in use must not be damaged below

    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError("what is in the cache is not decoded again")

    with monkeypatch.context() as patch:
        patch.setattr(image_files, "decode", forbidden)
        again = load_images("cifar10")
        assert isinstance(again.train_images, np.memmap)
        np.testing.assert_array_equal(again.train_images, first)
        torch.from_numpy(again.train_images).add_(1)  # a copy of what is written to, not the file
        np.testing.assert_array_equal(load_images("cifar10").train_images, first)
        (kept,) = (tmp_path / "cache" / "probssl" / "images").iterdir()
        del again
        (kept / "images.npy").write_bytes(b"damaged")
        with pytest.raises(AssertionError):
            load_images("cifar10")
    np.testing.assert_array_equal(load_images("cifar10").train_images, first)
    archive(path, cifar_pictures(5))  # another file of that name
    assert len(load_images("cifar10").train_images) == 50
    assert not [file for file in kept.parent.iterdir() if file.name.startswith(".")]


@pytest.mark.parametrize("labelled", [True, False])
@pytest.mark.parametrize("packed", [True, False])
def test_folders_and_archives_are_decoded_once(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, labelled: bool, packed: bool
) -> None:
    monkeypatch.setattr(module, "KEPT_FROM", 1)
    kinds = ("a/", "b/") if labelled else ("",)
    files = {f"{kind}{number}.png": picture(pixels(5, 4, 3)) for kind in kinds for number in range(2)}
    source = archive(folder / "own.tar.gz", files, "gz") if packed else folder / "own"
    if not packed:
        write(source, files)
    first = load_images(source)
    with monkeypatch.context() as patch:
        patch.setattr(image_files, "decode", None)  # which nobody can call
        again = load_images(str(source))
        with pytest.raises(TypeError):
            load_images(source, size=3)
    assert isinstance(again.train_images, np.memmap)
    np.testing.assert_array_equal(again.train_images, first.train_images)
    np.testing.assert_array_equal(again.train_labels, first.train_labels)
    assert (again.classes, again.source) == (first.classes, str(source))
    if not packed:
        (source / "gone.png").symlink_to(source / "nowhere.png")
        (source / "again").symlink_to(source, target_is_directory=True)
        assert len(load_images(source).train_images) == len(first.train_images)
    files["a/2.png" if labelled else "2.png"] = picture(pixels(5, 4, 3))
    if packed:
        archive(source, files, "gz")
    else:
        write(source, files)
    assert len(load_images(source).train_images) == len(first.train_images) + 1
    (kept,) = (tmp_path / "cache" / "probssl" / "images").iterdir()  # what was made of it before is gone
    assert kept.name.startswith("own")


def test_small_folders_are_not_kept(folder: Path, tmp_path: Path) -> None:
    write(folder / "own", {"0.png": pixels(5, 4, 3)})
    assert len(load_images(folder / "own").train_images) == 1
    assert not (tmp_path / "cache").exists()


def test_skipping_is_another_choice(folder: Path) -> None:
    archive(folder / "cifar10-jpeg.tar.xz", {**cifar_pictures(), "train/cat/bad.jpg": b"bad"})
    refused("train/cat/bad.jpg is not an image of a known format", "cifar10")
    for _ in range(2):
        assert list(load_images("cifar10", corrupt="skip").left_out) == ["train/cat/bad.jpg"]
    refused("train/cat/bad.jpg is not an image of a known format", "cifar10")


def test_sets_that_a_killed_process_was_writing_are_swept(folder: Path, tmp_path: Path) -> None:
    killed = tmp_path / "cache" / "probssl" / "images" / ".cifar10-0-0.0123456789ab.partial"
    killed.mkdir(parents=True)
    (killed / "images.npy").write_bytes(b"half")
    archive(folder / "cifar10-jpeg.tar.xz", cifar_pictures())
    assert len(load_images("cifar10").train_images) == 40
    (kept,) = killed.parent.iterdir()
    assert kept.name.startswith("cifar10")


def test_without_a_cache_that_can_be_written(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where a folder should be")
    archive(folder / "cifar10-jpeg.tar.xz", cifar_pictures())
    assert len(load_images("cifar10").train_images) == 40


# --- SVHN -------------------------------------------------------------------------------------------------------------


def write_svhn(folder: Path, count: int = 11) -> dict[str, np.ndarray]:
    content = {"X": pixels(32, 32, 3, count), "y": (np.arange(count, dtype=np.uint8) % 10 + 1)[:, None]}
    (folder / "svhn").mkdir(exist_ok=True)
    for half in ("train", "test"):
        savemat(folder / "svhn" / f"{half}_32x32.mat", content, do_compression=True)
    return content


def test_svhn(folder: Path) -> None:
    content = write_svhn(folder)
    for _ in range(2):
        found = load_images("svhn")
        assert found.train_labels.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]  # their 10 is the digit 0
        np.testing.assert_array_equal(found.train_images[4, 2], content["X"][:, :, 2, 4])
        assert (found.test_images.shape, found.classes[0]) == ((11, 3, 32, 32), "0")
    assert fetch("svhn") == folder / "svhn"


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ({"X": np.zeros((32, 32, 3, 2)), "y": np.ones((2, 1))}, "and holds X [32, 32, 3, 2] of double"),
        ({"X": np.zeros((28, 28, 3, 2), np.uint8), "y": np.ones((2, 1))}, "and holds X [28, 28, 3, 2] of uint8"),
        ({"y": np.ones((2, 1))}, "and holds y [2, 1] of double"),
        ({"X": np.zeros((32, 32, 3, 2), np.uint8), "y": np.ones((3, 1))}, "should hold 2 labels y"),
        ({"X": np.zeros((32, 32, 3, 2), np.uint8), "y": np.full((2, 1), 11)}, "labels that are not digits"),
    ],
)
def test_other_matlab_files(folder: Path, content: dict[str, np.ndarray], part: str) -> None:
    write_svhn(folder)
    savemat(folder / "svhn" / "test_32x32.mat", content)
    refused(part, "svhn")


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_matlab_files_that_break_off(folder: Path, share: float) -> None:
    write_svhn(folder)
    path = folder / "svhn" / "train_32x32.mat"
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    refused(str(path), "svhn")


# --- CelebA and ImageNet ----------------------------------------------------------------------------------------------

FACES = {f"{number:06d}.jpg": picture(np.full((218, 178, 3), 40 * number, np.uint8), "JPEG") for number in range(1, 7)}
HALF = dict(zip(FACES, (0, 0, 0, 1, 2, 2), strict=True))
MALE = dict(zip(FACES, (-1, 1, 1, 1, 1, -1), strict=True))


def celeba(folder: Path, *, kaggle: bool = False) -> Path:
    inner = "img_align_celeba/img_align_celeba" if kaggle else "img_align_celeba"
    write(folder / "celeba", {f"{inner}/{name}": content for name, content in FACES.items()})
    write(folder / "celeba", {f"{inner}/._000001.jpg": b"what a Mac leaves behind"})
    if kaggle:
        tables = {
            "list_attr_celeba.csv": "image_id,Bald,Male\n" + "".join(f"{n},1,{m}\n" for n, m in MALE.items()),
            "list_eval_partition.csv": "image_id,partition\n" + "".join(f"{n},{h}\n" for n, h in HALF.items()),
        }
    else:
        tables = {
            "list_attr_celeba.txt": "6\nBald Male \n" + "".join(f"{n}  1 {m}\n" for n, m in MALE.items()),
            "list_eval_partition.txt": "".join(f"{n} {h}\n" for n, h in HALF.items()),
        }
    return write(folder / "celeba", {name: text.encode() for name, text in tables.items()})


@pytest.mark.parametrize("kaggle", [False, True])
def test_celeba(folder: Path, kaggle: bool) -> None:
    celeba(folder, kaggle=kaggle)
    found = load_images("celeba")
    assert (found.classes, found.shape) == (("female", "male"), (3, 64, 64))
    assert found.train_images[:, 0, 0, 0].tolist() == pytest.approx([40, 80, 120], abs=2)
    assert found.test_images[:, 0, 0, 0].tolist() == pytest.approx([200, 240], abs=2)
    assert found.train_labels is not None
    assert found.test_labels is not None
    assert (found.train_labels.tolist(), found.test_labels.tolist()) == ([0, 1, 1], [1, 0])
    assert load_images("celeba", size=(32, 16)).shape == (3, 32, 16)
    assert next(entry for entry in catalogue() if entry.name == "celeba").present


def test_a_model_reads_faces_in_its_own_size(folder: Path, tmp_path: Path) -> None:
    celeba(folder)
    found = probssl.fit(
        "celeba",
        size=(16, 16),
        steps=2,
        batch_size=2,
        encoder="mlp",
        settings={"encoder.hidden": [4]},
        evaluate="none",
        out=tmp_path / "run",
    )
    assert found.model.embed("celeba", "test").shape == (2, found.dim)


def test_celeba_with_a_damaged_face(folder: Path) -> None:
    place = celeba(folder)
    (place / "img_align_celeba" / "000002.jpg").write_bytes(b"bad")
    refused("000002.jpg is not an image of a known format", "celeba")
    found = load_images("celeba", corrupt="skip")
    assert found.train_images[:, 0, 0, 0].tolist() == pytest.approx([40, 120], abs=2)
    assert found.train_labels is not None
    assert (found.train_labels.tolist(), found.left_out["000002.jpg"]) == (
        [0, 1],
        "it is not an image of a known format",
    )


def test_tables_that_are_not_those_of_celeba(folder: Path) -> None:
    place = celeba(folder)
    (place / "list_eval_partition.txt").write_text("000001.jpg 0\n")
    refused("is not CelebA: 000002.jpg is not in its tables", "celeba")
    (place / "list_attr_celeba.txt").write_text("6\nBald\n000001.jpg 1\n")
    refused("is not the table of CelebA", "celeba")
    (place / "list_attr_celeba.txt").unlink()
    refused("celeba is not here", "celeba")


def test_imagenet(folder: Path) -> None:
    sides = {"train/n01/a.JPEG": (90, 200), "train/n02/b.JPEG": (300, 150), "val/n02/c.JPEG": (64, 64)}
    files = {name: picture(np.full((*side, 3), 90, np.uint8), "JPEG") for name, side in sides.items()}
    write(folder / "imagenet", files)
    found = load_images("imagenet", size=32)
    assert (len(found.train_images), len(found.test_images), found.shape) == (2, 1, (3, 32, 32))
    assert found.classes == ("n01", "n02")
    assert found.test_labels is not None
    assert found.test_labels.tolist() == [1]


# --- names and downloads ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", module.NAMED)
def test_what_is_not_here(folder: Path, name: str) -> None:
    entry = next(entry for entry in catalogue() if entry.name == name)
    url = module.NAMED[name].where
    assert (entry.present, entry.where) == (False, url)
    if module.NAMED[name].by_hand is not None:
        told = refused(f"{name} is not here, and cannot be downloaded: get it from {url}", name)
        assert told.endswith(f" into {folder / name}")
    else:
        told = refused(f"{name}: {url} could not be downloaded (no route to host)", name)
        assert f"put the file at {folder / name}" in told
    assert not list(folder.iterdir())


def test_named_images_are_no_tables_and_have_one_size() -> None:
    with pytest.raises(InputError, match=r"mnist is a set of images, which has no columns .* leave out --drop"):
        load("mnist", drop=["a"])
    refused("cifar10 has images of one size", "cifar10", size=8)


@pytest.fixture
def server(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, bytes]]:
    """A server of the files that a test puts into the dictionary."""
    served: dict[str, bytes] = {}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = served[self.path.rpartition("/")[2]]
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    monkeypatch.undo()  # the network is back, and with it the real directories
    for variable in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PROBSSL_DATA", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder.parent / "cache"))
    monkeypatch.setenv("LOCALAPPDATA", str(folder.parent / "cache"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        for known in module.NAMED.values():
            for relative in known.downloads:
                address = f"http://127.0.0.1:{running.server_port}/{Path(relative).name}"
                monkeypatch.setitem(known.downloads, relative, address)
        yield served
        running.shutdown()
        thread.join()


def test_downloads(server: dict[str, bytes], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for relative in ("cifar100/cifar-100-binary.tar.gz", "svhn/train_32x32.mat", "svhn/test_32x32.mat"):
        monkeypatch.delitem(CHECKSUMS, relative)  # these are smaller than the published files
    cache = folder.parent / "cache" / "probssl"
    packed = archive(tmp_path / "x.tar.gz", cifar_files("cifar100"), "gz").read_bytes()
    server["cifar-100-binary.tar.gz"] = packed
    steps: list[tuple[int, int | None]] = []
    assert len(load_images("cifar100", progress=lambda *step: steps.append(step)).train_images) == 3
    assert (len(packed), len(packed)) in steps
    assert fetch("cifar100") == cache / "cifar100" / "cifar-100-binary.tar.gz"
    write_svhn(tmp_path)
    for half in ("train", "test"):
        server[f"{half}_32x32.mat"] = (tmp_path / "svhn" / f"{half}_32x32.mat").read_bytes()
    assert len(load_images("svhn").test_images) == 11


@pytest.mark.parametrize(("name", "file"), [("cifar10", "cifar-10-binary.tar.gz"), ("svhn", "train_32x32.mat")])
def test_a_page_is_not_the_published_file(server: dict[str, bytes], folder: Path, name: str, file: str) -> None:
    server[file] = b"<html>please log in</html>"
    refused("is not the file that was published (md5 ", name)
    assert not list((folder.parent / "cache" / "probssl" / name).iterdir())


# --- the set itself ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"train": np.zeros((2, 1, 4, 4))}, "the training half of x should be bytes"),
        ({"test": np.zeros((1, 1, 4, 5), np.uint8)}, "the test half of x should be bytes"),
        ({"train": np.zeros((2, 4, 4), np.uint8)}, "[n, channels, height, width]"),
        ({"test_labels": None}, "the test half of x has 1 image and no labels"),
        ({"train_labels": np.zeros(3, np.int64)}, "2 images and 3 labels"),
        ({"train_labels": np.array([0, 2])}, "has a label 2, where labels run from 0 to 1"),
        ({"train_labels": np.array([0, -2])}, "has a label -2"),
    ],
)
def test_sets_that_do_not_fit(change: dict[str, object], part: str) -> None:
    whole = {
        "source": "x",
        "train": np.zeros((2, 1, 4, 4), np.uint8),
        "train_labels": np.array([0, 1]),
        "test": np.zeros((1, 1, 4, 4), np.uint8),
        "test_labels": np.array([1]),
        "classes": ("a", "b"),
    }
    assert ImageSet.of_halves(**whole).shape == (1, 4, 4)
    with pytest.raises(InputError) as error:
        ImageSet.of_halves(**{**whole, **change})
    assert part in str(error.value)


def test_unit_floats() -> None:
    found = unit_floats(np.array([0, 51, 255], np.uint8))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, [0, 0.2, 1], rtol=1e-6)


def test_the_real_pictures_of_cifar() -> None:
    """Some of them: all take a while to decode."""
    path = HERE / "cifar10-jpeg.tar.xz"
    if not path.is_file():
        pytest.skip(f"{path} is not there")
    taken = []
    for name, content in image_files.members(path, lambda name: not image_files._no_image(name)):
        taken.append((name, image_files.decode(content, name)))
        if len(taken) == 300:
            break
    assert all(image.shape == (32, 32, 3) for _, image in taken)
    assert {name.split("/")[1] for name, _ in taken} <= set(CIFAR10_CLASSES)
    assert 80 < np.mean([image.mean() for _, image in taken]) < 160


def test_files_that_are_left_out_are_named(tmp_path: Path) -> None:
    write(tmp_path, {"a.png": pixels(4, 4), "b.gif": b"", "notes.txt": b"", ".hidden.png": b"", "c.png": b"bad"})
    (tmp_path / "gone.png").symlink_to(tmp_path / "nowhere.png")
    found = load(tmp_path, corrupt="skip")
    assert list(found.left_out) == [".hidden.png", "b.gif", "c.png", "gone.png", "notes.txt"]
    assert found.left_out["notes.txt"].startswith("its name ends in none of .png")
    assert found.left_out["c.png"].startswith("it is not an image")
    assert found.ids.tolist() == ["a.png"]
    packed = archive(tmp_path / "own.tar", {"a.png": picture(pixels(4, 4)), "b.txt": b"x"}, "")
    assert list(load(packed).left_out) == ["b.txt"]


@pytest.mark.parametrize("kind", ["webp", "bmp", "tiff"])
def test_other_formats(tmp_path: Path, kind: str) -> None:
    smooth = np.full((8, 8, 3), 90, np.uint8)
    write(tmp_path, {f"a.{kind}": picture(smooth, kind.upper())})
    assert np.abs(load(tmp_path).images.astype(int) - 90).max() < 10
