"""Named data sets: found, drawn, downloaded, or refused."""

import dataclasses
import errno
import gzip
import hashlib
import http.server
import os
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest
import torch

from probssl.data import (
    cache_directory,
    catalogue,
    check_trainable,
    data_directory,
    directory,
    fetch,
    load,
    names,
    world_of,
)
from probssl.data.checksums import CHECKSUMS
from probssl.data.directory import checksum_of
from probssl.data.images import NAMED
from probssl.errors import InputError
from probssl.files import fcntl
from probssl.layout import Column, Layout
from probssl.worlds import named_world

HERE = os.environ.get("PROBSSL_DATA")
needs_data = pytest.mark.skipif(not HERE, reason="PROBSSL_DATA names no directory with the PMLB files")
DRAWN = ("sklearn:", "toy:", "world:")
PUBLISHED = [entry for entry in catalogue() if entry.name.startswith("pmlb:") and entry.rows]


@pytest.fixture
def empty(tmp_path, monkeypatch):
    """No data directory, and an empty cache."""
    monkeypatch.delenv("PROBSSL_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "cache"))
    return tmp_path / "cache" / "probssl"


def test_the_catalogue_lists_the_benchmark(empty):
    entries = {entry.name: entry for entry in catalogue()}
    assert len(PUBLISHED) == 18
    assert entries["pmlb:letter"].rows == 20000
    assert not entries["pmlb:letter"].present
    assert entries["pmlb:letter"].where.startswith("https://")
    assert entries["toy:circles"].present
    (empty / "pmlb").mkdir(parents=True)
    for name in ("letter", "mine"):
        (empty / "pmlb" / f"{name}.tsv.gz").write_bytes(gzip.compress(b"a\ttarget\n1\t0\n"))
    entries = {entry.name: entry for entry in catalogue()}
    assert entries["pmlb:letter"].where == str(empty / "pmlb" / "letter.tsv.gz")
    assert entries["pmlb:mine"].present
    assert entries["pmlb:mine"].rows is None


@needs_data
@pytest.mark.parametrize("entry", PUBLISHED, ids=lambda entry: entry.name)
def test_benchmark_files_are_as_published(entry):
    path = Path(HERE or "") / "pmlb" / f"{entry.name.partition(':')[2]}.tsv.gz"
    if not path.exists():
        pytest.skip(f"{path} is not there")
    table = load(entry.name)
    assert (len(table), table.n_features, len(table.classes)) == (entry.rows, entry.dimensions, entry.classes)
    assert np.isfinite(table.features).all()
    assert "target" not in table.feature_names
    assert table.label_name == "target"
    assert fetch(entry.name) == path
    check_trainable(table)  # constant columns (optdigits has two, collins one) are as published
    # the same file given as a file has no labels unless asked, and no special rights
    if entry.name == "pmlb:optdigits":
        plain = load(path)
        assert plain.labels is None
        assert plain.feature_names[-1] == "target"
        assert sum("in every row, and is left out" in note for note in plain.notes) == 2


@pytest.mark.parametrize("entry", [e for e in catalogue() if e.name.startswith(DRAWN)], ids=lambda e: e.name)
def test_sets_that_need_no_file(entry):
    table = load(entry.name)
    assert (len(table), table.n_features, len(table.classes)) == (entry.rows, entry.dimensions, entry.classes or 0)
    check_trainable(table)
    if entry.classes:
        assert load(entry.name, drop=[str(table.label_name)]).labels is None
    with pytest.raises(InputError, match="needs no file"):
        fetch(entry.name)


def test_toys_follow_the_seed():
    table = load("toy:circles", seed=3)
    assert table.feature_names == ("x0", "x1")
    assert table.label_name == "circle"
    assert table.classes == ("inner", "outer")
    radius = np.linalg.norm(table.features, axis=1)
    assert table.labels is not None
    assert radius[table.labels == 0].max() < 0.5 < radius[table.labels == 1].min()
    np.testing.assert_array_equal(table.features, load("toy:circles", seed=3).features)
    assert not np.array_equal(table.features, load("toy:circles", seed=4).features)
    moons = load("toy:moons")
    assert moons.label_name == "moon"
    assert moons.labels is not None
    assert moons.features[moons.labels == moons.classes.index("upper"), 1].mean() > 0.4


def test_worlds_come_with_their_latents():
    table = load("world:sphere3", seed=4)
    assert table.feature_names == ("x0", "x1", "x2")
    assert (table.features.shape, table.labels) == ((5000, 3), None)
    assert table.latents is not None
    np.testing.assert_allclose(np.linalg.norm(table.latents, axis=1), 1, rtol=1e-6)
    seen = named_world("sphere3", seed=4).mixing(torch.from_numpy(table.latents).float())
    np.testing.assert_allclose(seen.numpy(), table.features, atol=1e-6)
    np.testing.assert_array_equal(table.features, load("world:sphere3", seed=4).features)
    assert not np.array_equal(table.features, load("world:sphere3", seed=5).features)
    assert load("sklearn:iris").latents is None
    for unfit in ({"label": "x0"}, {"drop": ["x0"]}):
        with pytest.raises(InputError, match="observed whole"):
            load("world:sphere3", **unfit)
    with pytest.raises(InputError, match="latents of shape"):
        dataclasses.replace(table, latents=table.latents[1:])


@pytest.mark.parametrize(
    ("source", "world"), [("world:box7", "box7"), ("toy:moons", None), ("world", None), ("x.csv", None)]
)
def test_world_of(source, world):
    assert world_of(source) == world


def test_features_of_a_named_set():
    table = load(
        "sklearn:iris", layout=Layout("table", (2,), (Column("petal width (cm)"), Column("sepal length (cm)")))
    )
    assert table.features[0].tolist() == [0.2, 5.1]
    assert table.classes == ("setosa", "versicolor", "virginica")
    by_size = load("sklearn:digits", label="pixel_0_2")
    assert by_size.label_name == "pixel_0_2"
    assert by_size.n_features == 63  # the digit itself does not become a feature


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("sklearn:irsi", "'sklearn:iris'"),
        ("toy:cirkles", "'toy:circles'"),
        ("world:sphre12", "'world:sphere12'"),
        ("sphere10", "'world:sphere10'"),
        ("pmbl:letter", "'pmlb:letter'"),
        ("letter", "'pmlb:letter'"),
        ("optdigit", "'pmlb:optdigits'"),
        ("minst", "'mnist'"),
        ("toy:", "data list"),
        ("pmlb:../../secret", "data list"),
    ],
)
def test_typing_errors(written, meant):
    with pytest.raises(InputError, match="there is no") as error:
        load(written)
    assert meant in str(error.value)
    assert repr(written) in str(error.value)


def test_where_data_is_looked_for(tmp_path, monkeypatch, empty):
    assert data_directory() == cache_directory() == empty
    monkeypatch.setenv("PROBSSL_DATA", str(tmp_path / "mine"))
    assert data_directory() == tmp_path / "mine"
    for base, digit in ((tmp_path / "mine", 1), (empty, 2)):
        (base / "pmlb").mkdir(parents=True)
        (base / "pmlb" / "tiny.tsv.gz").write_bytes(gzip.compress(f"a\ttarget\n{digit}\t0\n".encode()))
    assert load("pmlb:tiny").features.tolist() == [[1]]
    (tmp_path / "mine" / "pmlb" / "tiny.tsv.gz").unlink()
    assert load("pmlb:tiny").features.tolist() == [[2]]


@pytest.mark.parametrize(
    ("platform", "variables", "expected"),
    [
        ("linux", {}, "home/.cache/probssl"),
        ("linux", {"XDG_CACHE_HOME": "xdg"}, "xdg/probssl"),
        ("darwin", {}, "home/Library/Caches/probssl"),
        ("win32", {"LOCALAPPDATA": "local"}, "local/probssl"),
        ("win32", {}, "home/AppData/Local/probssl"),
    ],
)
def test_cache_by_platform(monkeypatch, platform, variables, expected):
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(Path, "home", lambda: Path("home"))
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert cache_directory() == Path(expected)


def test_a_user_without_a_home_has_a_cache(monkeypatch):
    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    for name in ("XDG_CACHE_HOME", "PROBSSL_DATA"):
        monkeypatch.delenv(name, raising=False)
    assert cache_directory().parent == Path(tempfile.gettempdir())
    assert "sklearn:iris" in {entry.name for entry in catalogue()}


def files_below(path):
    return [file for file in path.rglob("*") if file.is_file()]


def test_offline(empty, monkeypatch):
    def unplugged(*_, **__):
        raise urllib.error.URLError("no route\nto host")

    monkeypatch.setattr(urllib.request.OpenerDirector, "open", unplugged)
    with pytest.raises(InputError) as error:
        load("pmlb:letter")
    assert str(error.value) == (
        f"pmlb:letter: {names.PMLB_URL.format(name='letter')} could not be downloaded (no route to host): "
        f"try again with a network, or put the file at {empty / 'pmlb' / 'letter.tsv.gz'} by hand"
    )
    with pytest.raises(InputError, match=r"did you mean 'pmlb:letter'"):
        load("pmlb:leter")
    assert not files_below(empty)


CONTENT = gzip.compress(b"a\tb\ttarget\n1\t2\t0\n3\t4\t1\n")


class Handler(http.server.BaseHTTPRequestHandler):
    content = CONTENT

    def do_GET(self):
        name = self.path.rpartition("/")[2].partition(".")[0]
        if name == "absent":
            self.send_error(404)
            return
        if name == "broken":
            self.send_error(503)
            return
        if name == "moved":
            self.send_response(302)
            self.send_header("Location", "http://elsewhere.invalid/moved.tsv.gz")
            self.end_headers()
            return
        body = b"<html>please log in</html>" if name == "portal" else self.content
        self.send_response(200)
        if name != "truncated":
            self.send_header("Content-Length", str(len(body) + (500 if name == "interrupted" else 0)))
        self.end_headers()
        self.wfile.write(body[:30] if name == "truncated" else body)

    def log_message(self, *_):
        pass


@pytest.fixture
def server(empty, monkeypatch):
    for variable in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        url = f"http://127.0.0.1:{running.server_port}/{{name}}/{{name}}.tsv.gz"
        monkeypatch.setattr(names, "PMLB_URL", url)
        yield url
        running.shutdown()
        thread.join()


def test_download(server, empty, monkeypatch):
    steps = []
    table = load("pmlb:fresh", progress=lambda done, total: steps.append((done, total)))
    assert table.features.tolist() == [[1, 2], [3, 4]]
    assert table.classes == ("0", "1")
    assert table.trusted
    assert steps[-1] == (len(CONTENT), len(CONTENT))
    assert sorted(files_below(empty)) == [empty / "pmlb" / f"fresh.tsv.gz{end}" for end in ("", ".sha256")]
    assert [entry.name for entry in catalogue() if entry.name == "pmlb:fresh"] == ["pmlb:fresh"]

    def forbidden(*_, **__):
        raise AssertionError("what is there is never downloaded")

    monkeypatch.setattr(urllib.request.OpenerDirector, "open", forbidden)
    assert fetch("pmlb:fresh") == empty / "pmlb" / "fresh.tsv.gz"


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("interrupted", "broke off after"),
        ("truncated", "could not be downloaded"),
        ("portal", "ot a gzip"),
        ("absent", "PMLB has no data set 'absent'"),
        ("broken", "503"),
        ("moved", "http://elsewhere.invalid/moved.tsv.gz is not an https address"),
        ("sonar", "is not the file that was published (sha256 "),
    ],
)
def test_a_failed_download_leaves_nothing(server, empty, name, part):
    with pytest.raises(InputError) as error:
        fetch(f"pmlb:{name}")
    assert part in str(error.value)
    assert server.format(name=name) in str(error.value)
    assert "\n" not in str(error.value)
    assert not files_below(empty)


def test_the_first_download_is_trusted_and_later_ones_must_agree(server, empty, monkeypatch):
    path = fetch("pmlb:fresh")
    record = path.with_name(f"{path.name}.sha256")
    assert record.read_text() == f"{hashlib.sha256(CONTENT).hexdigest()}  fresh.tsv.gz\n"
    path.unlink()
    assert fetch("pmlb:fresh") == path
    path.unlink()
    monkeypatch.setattr(Handler, "content", gzip.compress(b"a\ttarget\n9\t0\n"))
    with pytest.raises(InputError) as error:
        fetch("pmlb:fresh")
    assert "has changed since it was first downloaded" in str(error.value)
    assert str(error.value).endswith(f"nothing of it was kept: remove {record} if you trust the new file")
    assert files_below(empty) == [record]
    record.unlink()
    assert load("pmlb:fresh").features.tolist() == [[9]]


def test_published_files_are_those_of_the_checksums(server, empty, monkeypatch):
    monkeypatch.setitem(CHECKSUMS, "pmlb/fresh.tsv.gz", f"sha256:{hashlib.sha256(CONTENT).hexdigest()}")
    path = fetch("pmlb:fresh")
    assert files_below(empty) == [path]  # nothing is recorded of what is known


def test_every_published_file_has_an_address_and_a_checksum():
    addresses = [names.PMLB_URL, *(url for known in NAMED.values() for url in known.downloads.values())]
    assert all(url.startswith("https://") for url in addresses)
    files = {f"pmlb/{entry.name.removeprefix('pmlb:')}.tsv.gz" for entry in PUBLISHED}
    assert files | {path for known in NAMED.values() for path in known.downloads} == set(CHECKSUMS)


@needs_data
@pytest.mark.parametrize(("relative", "known"), CHECKSUMS.items())
def test_checksums_are_those_of_the_files(relative, known):
    if not (Path(HERE or "") / relative).exists():
        pytest.skip(f"{relative} is not there")
    kind, _, expected = known.partition(":")
    assert checksum_of(Path(HERE or "") / relative, kind) == expected


def test_an_interrupt_leaves_nothing(server, empty):
    def interrupt(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch("pmlb:fresh", progress=interrupt)
    assert not files_below(empty)


def test_what_a_killed_download_left_is_swept(server, empty):
    (empty / "pmlb").mkdir(parents=True)
    debris = empty / "pmlb" / ".fresh.tsv.gz.0123456789ab.partial"
    debris.write_bytes(CONTENT[:9])
    fetch("pmlb:fresh")
    assert not debris.exists() or fcntl is None


def test_a_full_disk_is_not_taken_for_a_missing_network(server, empty, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(directory, "_copy", full)
    with pytest.raises(InputError, match=r"has no room for fresh\.tsv\.gz .*make room and try again"):
        fetch("pmlb:fresh")
    assert not files_below(empty)


def test_a_cache_that_cannot_be_written(server, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "file"))
    with pytest.raises(InputError, match="cannot be written to"):
        fetch("pmlb:fresh")


def test_import_is_light():
    heavy = ("torch", "pandas", "sklearn", "scipy", "pyarrow", "urllib.request")
    code = f"import sys, probssl.data; print(*(name for name in {heavy} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
