"""Images on the command line and in one call: fit, embed, evaluate, doctor, report, sample, ood, resume."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread, imsave
from safetensors.torch import load_file

import probssl
from probssl.data import ImageSet, load_images
from probssl.parts.recipe import Recipe
from probssl.runs import Run
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
    options = ["--width", 4, "--dim", 6, "--batch-size", 16, "--steps", 12, "-q"]
    succeed("fit", base / "bars", "--objective", "simclr", *options, "--out", base / "run")
    succeed("fit", base / "bars", "--objective", "gedi", "--clusters", 2, *options, "--out", base / "density")
    return base


def test_fit_on_a_folder_writes_a_run(room):
    assert {path.name for path in (room / "run").iterdir()} == {*FILES, "pictures.npz"}
    run = Run(room / "run")
    assert (run.recipe.images, run.recipe.shape, run.recipe.network) == ("bars", (3, 12, 12), "conv")
    assert (run.recipe.augmentation, run.recipe.energy) == ("simclr-cifar", "cosine")
    page = (room / "run" / "report.html").read_text()
    assert "Images and their augmentations" in page
    assert "Nearest neighbours" in page
    assert "Samples" not in page
    assert "Samples" in (room / "density" / "report.html").read_text()
    assert list(run.comparison.rows) == ["raw pixels", "PCA to 6", "untrained encoder", "trained encoder"]
    assert run.comparison.judged == "16 test images, probes fitted on 48 training images"
    assert run.comparison.deaugmenting == {}
    assert run.comparison.loss.optimum is None
    with np.load(room / "run" / "pictures.npz") as sheets:
        heads = sheets["neighbours"][:, 0]
        test = load_images(room / "bars").test_images
        assert all(any(np.array_equal(head, image) for image in test) for head in heads)


def test_probes_are_fitted_on_the_training_half_and_judged_on_the_test_half(room):
    from sklearn.linear_model import LogisticRegression

    run, found = Run(room / "run"), load_images(room / "bars")
    told = document("evaluate", room / "run")
    probe = LogisticRegression(max_iter=1000).fit(run.model.embed(found, "train"), found.train_labels)
    accuracy = probe.score(run.model.embed(found, "test"), found.test_labels)
    assert told["rows"]["trained encoder"]["linear_probe"] == pytest.approx(accuracy)
    assert told["rows"]["trained encoder"]["linear_probe_spread"] is None
    assert told["judged"].startswith("16 test images")


def test_embedding_parts_arrays_and_other_folders(room, scratch):
    model, found = Run(room / "run").model, load_images(room / "bars")
    assert document("embed", room / "run", room / "bars", "--out", "all.npy") == {
        "out": "all.npy",
        "rows": 64,
        "dim": 6,
    }
    halves = []
    for part in ("train", "test"):
        succeed("embed", room / "run", room / "bars", "--part", part, "--out", f"{part}.npy", "-q")
        halves.append(np.load(f"{part}.npy"))
        assert np.array_equal(halves[-1], model.embed(getattr(found, f"{part}_images")))
    assert np.allclose(np.load("all.npy"), np.concatenate(halves), atol=1e-5)
    floats = (found.test_images / np.float32(255)).astype(np.float64)
    assert np.allclose(model.embed(floats), halves[1], atol=1e-5)
    succeed("embed", room / "run", room / "plain", "--out", "plain.csv", "-q")
    assert np.loadtxt("plain.csv", delimiter=",", skiprows=1).shape == (10, 6), "resized to the model's size"
    grey = found.test_images[:, :1]
    assert np.array_equal(model.embed(grey), model.embed(grey.repeat(3, axis=1))), "grey is shown three times"
    assert refusal("embed", room / "run", room / "bars", "--part", "both", "--out", "z.npy").count("train, test")
    assert "has no rows for the test" in refusal(
        "embed", room / "run", room / "plain", "--part", "test", "--out", "z.npy"
    )


def test_doctor_and_report(room, scratch):
    told = document("doctor", room / "run")
    assert told["loss"]["constant"]["mean"] > 0
    assert not any("--preservation" in remedy for found in told["findings"] for remedy in found["remedies"])
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
    options = ["--width", 2, "--dim", 3, "--steps", 2, "--batch-size", 4]
    said = refusal("fit", "bad", *options, "--out", "r")
    assert "b/torn.png is not a whole image" in said
    assert "--corrupt skip" in said
    assert not Path("r").exists()
    told = document("fit", "bad", *options, "--out", "r", "--corrupt", "skip")
    assert list(told["left_out"]) == ["b/torn.png"]
    assert Run(Path("r")).source.corrupt == "skip"
    succeed("evaluate", "r", "-q")  # the run's own choice
    assert "left out 1 file: b/torn.png (it is damaged: " in succeed("fit", "--resume", "--out", "r").stderr
    assert "torn.png" in refusal("embed", "r", "bad", "--out", "z.npy")
    document("fit", "bad", *options, "--objective", "vae", "--out", "v", "--corrupt", "skip")
    assert document("sample", "v", "--n", 3, "--out", "v.npy")["rows"] == 3
    shown = succeed("embed", "r", "bad", "--out", "z.npy", "--corrupt", "skip")
    assert "torn.png" in shown.stderr
    assert np.load("z.npy").shape == (12, 3)
    assert "leave out --corrupt" in refusal("fit", "sklearn:iris", "--corrupt", "skip", "--steps", 2)
    assert probssl.fit("bad", corrupt="skip", width=2, dim=3, steps=2, batch_size=4).source.corrupt == "skip"


@pytest.mark.parametrize("objective", ["fisher", "sliced-fisher"])
def test_objectives_on_scores_train_on_images(room, scratch, objective):
    succeed("fit", room / "bars", "--objective", objective, "--hidden", 8, "--dim", 3, "--steps", 4, "-q", "--out", "r")
    recipe = Run(scratch / "r").recipe
    assert (recipe.network, recipe.augmentation, recipe.energy) == ("mlp", "siamese-fisher", "euclidean")
    succeed("doctor", "r")
    options = ["--width", 2, "--augmentation", "gedi-cifar10", "--dim", 3, "--steps", 2]
    fit = ["fit", room / "bars", "--objective", objective, *options, "-q", "--out", "deep", "--network"]
    assert "resnet18-group or mlp" in refusal(*fit, "resnet18")
    succeed(*fit, "resnet18-group")


def test_several_sizes(room):
    assert "mixed" in refusal("fit", room / "mixed", "--steps", 2, "--out", "r")
    found = document(
        "fit", room / "mixed", "--size", "8,10", "--width", 2, "--steps", 2, "--batch-size", 4, "--out", "r"
    )
    assert found["judged"] == "± standard deviation over splits of 6 images"
    run = Run(Path("r"))
    assert (run.recipe.shape, run.source.size) == ((3, 8, 10), (8, 10))
    assert "--size 8,10" in refusal("fit", "--resume", "--out", "r", "--size", "9")
    succeed("evaluate", "r", "-q")
    succeed("fit", "--resume", "--out", "r", "-q")


def test_an_interrupted_run_goes_on_to_the_same_bits(room, scratch, monkeypatch):
    from probssl.training import Reporter, progress

    options = [room / "bars", "--objective", "gedi", "--width", 2, "--dim", 4, "--batch-size", 8, "--steps", 10]
    succeed("fit", *options, "--out", "whole", "-q")

    class Stops(Reporter):
        def advance(self, step):
            if step == 4:
                os.kill(os.getpid(), 2)

    monkeypatch.setattr("probssl.training.Reporter", Stops)
    from tests.cli.shell import probssl as shell

    stopped = shell("fit", *options, "--out", "parts", "-q")
    assert stopped.exit_code == 130
    assert "stopped at step 4 with a checkpoint" in stopped.stderr
    monkeypatch.setattr("probssl.training.Reporter", progress.Reporter)
    succeed("fit", "--resume", "--out", "parts", "-q")
    whole, parts = (load_file(scratch / name / "model.safetensors") for name in ("whole", "parts"))
    assert whole.keys() == parts.keys()
    assert all(whole[name].equal(parts[name]) for name in whole)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--label", "kind"], ["--label", "set of images"]),
        (["--drop", "a"], ["--drop", "set of images"]),
        (["--noise", 0.1], ["noise", "bars is a set of images"]),
        (["--preservation", 0.1], ["preservation", "set of images"]),
        (
            ["--objective", "fisher", "--augmentation", "simclr-cifar"],
            ["fisher", "score", "siamese-fisher", "not simclr-cifar"],
        ),
        (["--corrupt", "mend"], ["'mend'", "refuse or skip"]),
        (["--network", "vgg"], ["'vgg'", "conv"]),
        (["--size", "x"], ["--size"]),
        (["--hidden", "8"], ["hidden", "conv"]),
    ],
)
def test_what_images_have_no_use_for_is_refused(options, named, room, scratch):
    said = refusal("fit", room / "bars", *options)
    assert all(part in said for part in named), said
    assert not list(scratch.iterdir())


def test_what_tables_have_no_use_for_is_refused(scratch):
    for options in (["--network", "conv"], ["--width", 3], ["--augmentation", "gedi-mnist"], ["--size", 8]):
        said = refusal("fit", "sklearn:iris", *options, "--steps", 2)
        assert "images" in said
        assert "table" in said
    assert not list(scratch.iterdir())


def test_help_tells_the_defaults_of_images():
    shown = " ".join(succeed("fit", "--help").stdout.split())
    recipe = Recipe.for_images("x")
    told = f"the {recipe.energy} energy at temperature {recipe.temperature}, {recipe.steps} steps and a learning rate"
    assert f"{told} of {recipe.lr}" in shown


def test_tables_and_images_are_not_mixed_up(room, scratch):
    succeed("fit", "sklearn:iris", "--steps", 2, "--out", "iris", "-q")
    assert "is no set, folder or archive of images" in refusal("embed", room / "run", "sklearn:iris", "--out", "z.npy")
    assert refusal("embed", "iris", room / "bars", "--out", "z.npy")
    assert "--part is for sets of images" in refusal(
        "embed", "iris", "sklearn:iris", "--part", "test", "--out", "z.npy"
    )
    assert "compare sets losses side by side on tables" in refusal("compare", room / "bars")


def test_one_call_in_python(tmp_path):
    images = np.concatenate([bars(20, "standing", 0), bars(20, "lying", 1)])
    labels = np.repeat([0, 1], 20)
    data = ImageSet.of_halves("bars", images[::2], labels[::2], images[1::2], labels[1::2], ("standing", "lying"))
    options = {"dim": 3, "width": 2, "steps": 3, "batch_size": 8, "overwrite": True, "out": tmp_path / "run"}
    run = probssl.fit(data, **options)
    assert run.recipe.augmentation == "gedi-mnist"
    assert run.model.embed(data, "test").shape == (20, 3)
    assert 0 <= probssl.evaluate(run.model, data).rows["trained encoder"]["linear_probe"] <= 1
    assert json.loads((tmp_path / "run" / "source.json").read_text())["data"] == "bars"
    again = probssl.fit(images[::2], **options)
    assert np.array_equal(again.model.embed(images), run.model.embed(images)), "arrays are trained on as sets are"
    floats = probssl.fit(images[::2] / np.float32(255), **options)
    assert np.allclose(floats.model.embed(images), run.model.embed(images), atol=1e-4), "floats are kept"
    assert np.array_equal(probssl.Model.load(tmp_path / "run").embed(images), floats.model.embed(images))


@needs_mnist
def test_digits_by_name(scratch, monkeypatch):
    monkeypatch.setattr("probssl.runs.evaluation.IMAGES", 300)
    found = document("fit", "mnist", "--width", 2, "--dim", 4, "--steps", 3, "--batch-size", 32, "--out", "r")
    assert found["judged"] == "300 test images, probes fitted on 300 training images"
    assert Run(scratch / "r").recipe.shape == (1, 28, 28)
    told = refusal("embed", "r", "mnist", "--part", "none", "--out", "z.npy")
    assert "train, test, all" in told
