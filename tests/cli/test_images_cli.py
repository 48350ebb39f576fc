"""Images on the command line and in one call: fit, embed, evaluate, doctor, report, sample, ood, resume."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.image import imread, imsave
from safetensors.torch import load_file

from probssl.data import load
from probssl.runs import Run, evaluation
from tests.cli.shell import document, refusal, succeed
from tests.cli.test_fit import FILES

needs_mnist = pytest.mark.skipif("PROBSSL_DATA" not in os.environ, reason="needs MNIST in PROBSSL_DATA")


def bars(count, kind, seed, side=12, channels=1):
    """Bright bars, standing or lying, anywhere in dark images."""
    random = np.random.default_rng(seed)
    images = random.integers(0, 40, (count, channels, side, side), dtype=np.uint8)
    for image in images:
        start = random.integers(0, side - 3)
        image[:, :, start : start + 3] = 220
    return images if kind == "standing" else images.transpose(0, 1, 3, 2)


def narrow(width):
    """Options of a small network of convolutions."""
    return ["--set", f"encoder.widths={width}", "--set", "encoder.hidden=8"]


def write(folder, images):
    folder.mkdir(parents=True)
    for number, image in enumerate(images):
        imsave(folder / f"{number:03}.png", np.broadcast_to(image.transpose(1, 2, 0), (*image.shape[1:], 3)).copy())


@pytest.fixture(scope="module")
def room(tmp_path_factory):
    """Folders of images with classes and halves, without, and of several sizes; a run, and one of a density."""
    base = tmp_path_factory.mktemp("images")
    for seed, kind in enumerate(("standing", "lying")):
        write(base / "bars" / "train" / kind, bars(24, kind, seed, channels=3))
        write(base / "bars" / "test" / kind, bars(8, kind, 10 + seed, channels=3))
    write(base / "plain", bars(10, "lying", 5, side=20, channels=3))
    write(base / "mixed" / "a", bars(3, "lying", 6, side=9, channels=3))
    write(base / "mixed" / "b", bars(3, "lying", 7, side=14, channels=3))
    options = [*narrow(4), "--dim", 6, "--batch-size", 16, "--steps", 12, "-q"]
    density = ["--objective", "gedi", "--set", "objective.clusters=2"]
    succeed("fit", base / "bars", "--objective", "simclr", *options, "--out", base / "run")
    succeed("fit", base / "bars", *density, *options, "--out", base / "density")
    return base


def halves(found):
    """Images for training and for the test."""
    return [found.batch(found.rows(part)).numpy() for part in ("train", "test")]


def test_fit_on_a_folder_writes_a_run(room):
    assert {path.name for path in (room / "run").iterdir()} == {*FILES, "pictures.npz"}
    run = Run(room / "run")
    facts, recipe = run.resolved.facts, run.recipe
    assert (facts.kind, facts.shape, recipe.encoder.name) == ("images", (3, 12, 12), "conv")
    assert recipe.pairing.name == "simclr-cifar"
    page = (room / "run" / "report.html").read_text()
    assert "Images and their augmentations" in page
    assert "Nearest neighbours" in page
    assert "Samples" not in page
    assert "Samples" in (room / "density" / "report.html").read_text()
    assert list(run.comparison.rows) == ["trained encoder", "PCA to 6", "raw pixels", "untrained encoder"]
    assert run.comparison.judged == "16 rows that training never saw, probes fitted on 48 rows that it did see"
    assert run.comparison.deaugmenting == {}
    assert run.comparison.loss.optimum is None
    with np.load(room / "run" / "pictures.npz") as sheets:
        heads = sheets["neighbours"][:, 0]
        test = halves(load(room / "bars"))[1]
        assert all(any(np.array_equal(head, image) for image in test) for head in heads)


def test_probes_are_fitted_on_the_training_half_and_judged_on_the_test_half(room):
    from sklearn.linear_model import LogisticRegression

    run, found = Run(room / "run"), load(room / "bars")
    told = document("evaluate", room / "run")
    probe = LogisticRegression(max_iter=1000).fit(run.model.embed(found, "train"), found.labels[~found.test])
    accuracy = probe.score(run.model.embed(found, "test"), found.labels[found.test])
    assert told["rows"]["trained encoder"]["linear_probe"] == pytest.approx(accuracy)
    assert told["rows"]["trained encoder"]["linear_probe_spread"] is None
    assert told["judged"].startswith("16 rows that training never saw")


def test_embedding_parts_arrays_and_other_folders(room, scratch):
    model, (train, test) = Run(room / "run").model, halves(load(room / "bars"))
    assert document("embed", room / "run", room / "bars", "--out", "all.npy") == {
        "out": "all.npy",
        "rows": 64,
        "dim": 6,
    }
    codes = []
    for half, images in (("train", train), ("test", test)):
        succeed("embed", room / "run", room / "bars", "--half", half, "--out", f"{half}.npy", "-q")
        codes.append(np.load(f"{half}.npy"))
        assert np.array_equal(codes[-1], model.embed(images))
    assert np.allclose(np.load("all.npy"), np.concatenate(codes), atol=1e-5)
    floats = (test / np.float32(255)).astype(np.float64)
    assert np.allclose(model.embed(floats), codes[1], atol=1e-5)
    succeed("embed", room / "run", room / "plain", "--out", "plain.csv", "-q")
    written = pd.read_csv("plain.csv")
    assert list(written.columns) == ["id", *(f"z{i}" for i in range(6))]
    assert list(written["id"]) == [f"{i:03}.png" for i in range(10)], (
        "resized to the model's size, named by their files"
    )
    grey = test[:, :1]
    assert np.array_equal(model.embed(grey), model.embed(grey.repeat(3, axis=1))), "grey is shown three times"
    assert "'both'" in refusal("embed", room / "run", room / "bars", "--half", "both", "--out", "z.npy")
    assert "has no test rows" in refusal("embed", room / "run", room / "plain", "--half", "test", "--out", "z.npy")


def test_doctor_and_report(room, scratch):
    told = document("doctor", room / "run")
    assert told["loss"]["constant"]["mean"] > 0
    assert not any("preservation" in remedy for found in told["findings"] for remedy in found["remedies"])
    page = document("report", room / "run", "--out", "page.html")["report"]
    assert "Nearest neighbours" in Path(page).read_text()


def test_sampling_images(room, scratch):
    told = document("sample", room / "density", "--n", 5, "--steps", 3, "--out", "new.npy")
    assert told == {"out": "new.npy", "rows": 5, "shape": [3, 12, 12]}
    new = np.load("new.npy")
    assert new.shape == (5, 3, 12, 12)
    assert 0 <= new.min() < new.max() <= 1
    succeed("sample", room / "density", "--n", 5, "--steps", 3, "--out", "new.png", "-q")
    picture = imread("new.png")
    assert picture.shape[:2] == (2 * 60 + 5, 3 * 60 + 2 * 5)  # five times as large, with gaps of five, three abreast
    assert "must end in .png or .npy" in refusal("sample", room / "density", "--out", "new.csv")
    assert "no density" in refusal("sample", room / "run", "--out", "other.png")


def test_telling_images_apart(room):
    told = document("ood", room / "density", "--outside", room / "plain")
    assert (told["inside"], told["outside"]) == (16, 10), "of the run's own data, the test half"
    assert set(told["scores"]) == {"log density", "score norm", "largest probability"}


@needs_mnist
def test_images_of_other_shapes_are_refused(room):
    said = refusal("ood", room / "density", "--outside", "mnist")
    assert "12 × 12 pixels in colour" in said
    assert "28 × 28" in said


def test_corrupt_images_are_refused_or_skipped(room, scratch):
    write(scratch / "bad" / "a", bars(6, "lying", 6))
    write(scratch / "bad" / "b", bars(6, "standing", 7))
    (scratch / "bad" / "b" / "torn.png").write_bytes(b"not an image")
    options = [*narrow(2), "--dim", 3, "--steps", 2, "--batch-size", 4]
    said = refusal("fit", "bad", *options, "--out", "r")
    assert "b/torn.png is not an image of a known format" in said
    assert "--corrupt skip" in said
    assert not Path("r").exists()
    told = document("fit", "bad", *options, "--out", "r", "--corrupt", "skip")
    assert list(told["left_out"]) == ["b/torn.png"]
    assert Run(Path("r")).source.corrupt == "skip"
    succeed("evaluate", "r", "-q")  # the run's own choice
    assert "left out b/torn.png: it is not an image" in succeed("fit", "--resume", "--out", "r").stderr
    assert "torn.png" in refusal("embed", "r", "bad", "--out", "z.npy")
    document("fit", "bad", *options, "--objective", "vae", "--out", "v", "--corrupt", "skip")
    assert document("sample", "v", "--n", 3, "--out", "v.npy")["rows"] == 3
    shown = succeed("embed", "r", "bad", "--out", "z.npy", "--corrupt", "skip")
    assert "torn.png" in shown.stderr
    assert np.load("z.npy").shape == (12, 3)
    assert "leave out --corrupt" in refusal("fit", "sklearn:iris", "--corrupt", "skip", "--steps", 2)


@pytest.mark.parametrize("objective", ["fisher", "sliced-fisher"])
def test_objectives_on_scores_train_on_images(room, scratch, objective):
    options = ["--objective", objective, "--dim", 3, "-q"]
    succeed("fit", room / "bars", *options, "--set", "encoder.hidden=8", "--steps", 4, "--out", "r")
    recipe = Run(scratch / "r").recipe
    assert (recipe.encoder.name, recipe.pairing.name) == ("mlp", "siamese-fisher")
    succeed("doctor", "r")
    deep = ["--pairing", "gedi-cifar10", "--encoder", "resnet18", "--set", "encoder.width=2", "--steps", 2]
    fit = ["fit", room / "bars", *options, *deep, "--evaluate", "none", "--out", "deep"]
    assert "normalisation" in refusal(*fit)
    succeed(*fit, "--set", "encoder.normalisation=group")


def test_several_sizes(room):
    assert "mixed" in refusal("fit", room / "mixed", "--steps", 2, "--out", "r")
    options = ["--size", "8,10", *narrow(2), "--steps", 2, "--batch-size", 4]
    found = document("fit", room / "mixed", *options, "--out", "r")
    assert found["judged"] == "± standard deviation over splits of 6 rows", "too few to set some aside"
    run = Run(Path("r"))
    assert (run.resolved.facts.shape, run.source.size) == ((3, 8, 10), (8, 10))
    assert "--size 8,10" in refusal("fit", "--resume", "--out", "r", "--size", "9")
    succeed("evaluate", "r", "-q")
    succeed("fit", "--resume", "--out", "r", "-q")


def test_an_interrupted_run_goes_on_to_the_same_bits(room, scratch, monkeypatch):
    from probssl.training import Reporter

    sizes = [*narrow(2), "--dim", 4, "--batch-size", 8, "--steps", 10, "--evaluate", "none"]
    options = [room / "bars", "--objective", "gedi", *sizes]
    succeed("fit", *options, "--out", "whole", "-q")

    class Stops(Reporter):
        def advance(self, step):
            if step == 4:
                os.kill(os.getpid(), 2)

    monkeypatch.setattr("probssl.runs.workflow.Reporter", Stops)
    from tests.cli.shell import probssl as shell

    stopped = shell("fit", *options, "--out", "parts", "-q")
    assert stopped.exit_code == 130
    assert "stopped at step 4 with a checkpoint" in stopped.stderr
    monkeypatch.setattr("probssl.runs.workflow.Reporter", Reporter)
    succeed("fit", "--resume", "--out", "parts", "-q")
    whole, parts = (load_file(scratch / name / "model.safetensors") for name in ("whole", "parts"))
    assert whole.keys() == parts.keys()
    assert all(whole[name].equal(parts[name]) for name in whole)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--label", "kind"], ["--label", "set of images"]),
        (["--drop", "a"], ["--drop", "set of images"]),
        (["--ids", "a"], ["--ids", "set of images"]),
        (["--set", "pairing.preservation=0.1"], ["pairing 'simclr-cifar'", "'preservation'"]),
        (["--pairing", "mask-and-noise"], ["mask-and-noise is for tables", "images of 3 × 12 × 12"]),
        (["--objective", "fisher", "--pairing", "simclr-cifar"], ["Fisher", "score", "noise"]),
        (["--corrupt", "mend"], ["--corrupt", "mend", "refuse or skip"]),
        (["--encoder", "vgg"], ["'vgg'", "conv"]),
        (["--size", "x"], ["--size"]),
        (["--set", "encoder.width=8"], ["encoder 'conv'", "'width'", "'widths'"]),
    ],
)
def test_what_images_have_no_use_for_is_refused(options, named, room, scratch):
    said = refusal("fit", room / "bars", *options)
    assert all(part in said for part in named), said
    assert not list(scratch.iterdir())


def test_what_tables_have_no_use_for_is_refused(scratch):
    for options in (["--encoder", "conv"], ["--pairing", "gedi-mnist"], ["--size", 8]):
        said = refusal("fit", "sklearn:iris", *options, "--steps", 2)
        assert "images" in said
    assert not list(scratch.iterdir())


def test_tables_and_images_are_not_mixed_up(room, scratch):
    succeed("fit", "sklearn:iris", "--steps", 2, "--evaluate", "none", "--out", "iris", "-q")
    assert "not a set, folder or archive of images" in refusal("embed", room / "run", "sklearn:iris", "--out", "z.npy")
    assert refusal("embed", "iris", room / "bars", "--out", "z.npy")
    assert "30 rows" in succeed("embed", "iris", "sklearn:iris", "--half", "test", "--out", "z.npy").stdout
    np.save("other.npy", np.ones((5, 4)))
    assert "has no test rows" in refusal("embed", "iris", "other.npy", "--half", "test", "--out", "y.npy")


@needs_mnist
def test_digits_by_name(scratch, monkeypatch):
    monkeypatch.setitem(evaluation.MOST_ROWS, "quick", 300)
    found = document("fit", "mnist", *narrow(2), "--dim", 4, "--steps", 3, "--batch-size", 32, "--out", "r")
    assert found["judged"] == "300 rows that training never saw, probes fitted on 300 rows that it did see"
    assert Run(scratch / "r").resolved.facts.shape == (1, 28, 28)
