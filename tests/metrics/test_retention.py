"""What representations keep: factors, neighbours, augmentations and pictures, of codes where the answer is known."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from probssl.errors import InputError
from probssl.metrics import Factor, adhoc_decoder, augmentation_readout, retrieval, style_retention
from probssl.pairings import GaussianNoise, ImageAugmentation, each_alone
from probssl.pictures import as_bytes, side_by_side
from tests.metrics.codes import blobs, gaussian, rotation

# --- factors ----------------------------------------------------------------------------------------------------------


def world(rows: int = 600, seed: int = 0) -> tuple[dict[str, np.ndarray], np.ndarray]:
    chance = np.random.default_rng(seed)
    size, angle = chance.normal(size=rows), chance.uniform(0, 360, size=rows)
    factors = {"size": size, "angle": angle, "shape": chance.integers(3, size=rows)}
    turn = np.deg2rad(angle)
    return factors, np.column_stack([size, np.cos(turn), np.sin(turn), np.eye(3)[factors["shape"]]])


def declared(factors: dict[str, np.ndarray]) -> dict[str, object]:
    return {**factors, "angle": Factor(factors["angle"], "periodic", period=360)}


def test_what_a_code_holds_is_read_and_what_it_does_not_is_not():
    factors, code = world()
    every = style_retention(code @ rotation(6) * 7 + 3, declared(factors), epochs=60)
    assert {name: found.kind for name, found in every.items()} == {
        "size": "continuous",
        "angle": "periodic",
        "shape": "categorical",
    }
    assert all(found.linear > 0.999 for found in every.values())
    assert all(found.mlp > 0.9 for found in every.values())
    noise = style_retention(gaussian(600, 6), declared(factors), epochs=10)
    assert abs(noise["size"].linear) < 0.1
    assert abs(noise["angle"].mlp) < 0.1
    assert noise["shape"].linear == pytest.approx(noise["shape"].chance, abs=0.1)
    assert noise["size"].chance == 0.0


def test_a_network_reads_what_least_squares_cannot():
    z = gaussian(800, 2)
    found = style_retention(z, {"radius": np.abs(z[:, 0])}, epochs=100)["radius"]
    assert found.linear < 0.1
    assert found.mlp > 0.9
    assert "R²; least squares and a hidden layer" in found.protocol


def test_rows_are_judged_that_no_reader_saw():
    """A code of unrelated noise, wider than its rows, is fitted perfectly and reads nothing."""
    z, factor = gaussian(60, 55), gaussian(60, 1, seed=4)[:, 0]
    assert style_retention(z, {"noise": factor}, epochs=5)["noise"].linear < 0
    factors, code = world(200)
    first, second = ({"size": factors["size"][rows]} for rows in (slice(150), slice(150, None)))
    apart = style_retention(code[150:], second, fitted_on=(code[:150], first), epochs=20)
    assert apart["size"].linear > 0.999
    assert "fitted on 150 rows kept for it, judged by 50 others" in apart["size"].protocol


def test_r2_by_hand():
    z, factor = gaussian(100, 2), gaussian(100, 1, seed=1)[:, 0]
    found = style_retention(z, {"f": factor}, fitted_on=(z[:60], {"f": factor[:60]}), epochs=1)["f"]
    design = np.column_stack([z, np.ones(100)])
    said = design @ np.linalg.lstsq(design[:60], factor[:60], rcond=None)[0]
    assert found.linear == pytest.approx(1 - np.sum((factor - said) ** 2) / np.sum((factor - factor.mean()) ** 2))


@pytest.mark.parametrize(
    ("factors", "says"),
    [
        ({}, "at least one factor"),
        ({"a": np.ones(60)}, "'a' is constant"),
        ({"a": np.arange(59) * 1.0}, "'a' must have one value for each of 60 rows"),
        ({"a": np.arange(59)}, "'a': there are 59 labels for 60 rows"),
        ({"a": np.full(60, np.nan)}, "finite"),
        ({"a": Factor(np.arange(60), "round")}, "not 'round'"),  # type: ignore[arg-type]
        ({"a": Factor(np.arange(60), "periodic", period=0)}, "period"),
        ({"a": Factor(np.array(["x"] * 60), "continuous")}, "finite numbers"),
    ],
)
def test_bad_factors_get_one_sentence(factors, says):
    with pytest.raises(InputError, match=says):
        style_retention(gaussian(60, 2), factors)


def test_factors_of_the_rows_to_fit_on_are_checked_too():
    z, factor = gaussian(60, 2), gaussian(60, 1)[:, 0]
    with pytest.raises(InputError, match="one value for each of 40 rows, not shape"):
        style_retention(z[40:], {"a": factor[40:]}, fitted_on=(z[:40], {"a": factor}))
    with pytest.raises(InputError, match="no factor 'a'"):
        style_retention(z[40:], {"a": factor[40:]}, fitted_on=(z[:40], {"b": factor[:40]}))
    with pytest.raises(InputError, match="dimensions it was fitted in, 1, not 2"):
        style_retention(z[40:], {"a": factor[40:]}, fitted_on=(z[:40, :1], {"a": factor[:40]}))


# --- neighbours -------------------------------------------------------------------------------------------------------


def test_retrieval_against_loops():
    z, y = blobs(60, gap=1.5)
    angle = np.random.default_rng(1).uniform(0, 2 * np.pi, 60)
    found, turned = retrieval(z, y, at=(1, 4)), retrieval(z, Factor(angle, "periodic"), at=[4])
    shares, precisions, apart = [], [], []
    for i in range(60):
        order = sorted((j for j in range(60) if j != i), key=lambda j: float(np.sum((z[i] - z[j]) ** 2)))
        alike = [y[j] == y[i] for j in order]
        shares.append(np.mean(alike[:4]))
        precisions.append(np.mean([np.mean(alike[: r + 1]) for r in range(59) if alike[r]]))
        apart.extend(2 - 2 * np.cos(angle[i] - angle[j]) for j in order[:4])
    everywhere = np.mean([2 - 2 * np.cos(angle[i] - angle[j]) for i in range(60) for j in range(60) if i != j])
    assert found.at[4] == pytest.approx(np.mean(shares))
    assert found.mean_average_precision == pytest.approx(np.mean(precisions))
    assert found.chance == pytest.approx(19 / 59)
    assert turned.at[4] == pytest.approx(1 - np.mean(apart) / everywhere)
    assert turned.mean_average_precision is None


def test_retrieval_at_its_ends():
    factors, _ = world()
    near = retrieval(factors["size"][:, None], factors["size"])
    assert all(score > 0.99 for score in near.at.values())
    noise = retrieval(gaussian(600, 3), factors["size"])
    assert all(abs(score) < 0.1 for score in noise.at.values())
    assert retrieval(*blobs(90)).at == {1: 1.0, 5: 1.0, 10: 1.0}
    assert retrieval(np.ones((40, 2)), np.arange(40) % 2, at=[3]).at[3] <= 1.0  # as many copies as rows


@pytest.mark.parametrize("at", [(), (0,), (60,)])
def test_neighbourhoods_that_are_not(at):
    with pytest.raises(InputError, match="at"):
        retrieval(gaussian(60, 2), np.arange(60) % 2, at=at)


# --- augmentations ----------------------------------------------------------------------------------------------------


def pictures(count: int = 400, channels: int = 3, side: int = 8, seed: int = 0) -> np.ndarray:
    """Coloured, smooth, so that blur and crop change them little and colours are there to be lost."""
    chance = np.random.default_rng(seed)
    colour = chance.uniform(0.2, 0.8, size=(count, channels, 1, 1))
    waves = np.sin(np.linspace(0, 6, side)[:, None] * chance.uniform(0.5, 2, size=(count, 1, 1, side)))
    return np.clip(255 * (colour + 0.2 * waves), 0, 255).astype(np.uint8)


def test_a_code_that_sees_colours_tells_grey_and_one_that_does_not_cannot():
    images, changes = pictures(), {"grey": each_alone("simclr-cifar")["grey"]}

    def spread(x):
        return x.std(1).flatten(1)

    def luma(x):
        return (x.mean((2, 3)) @ x.new_tensor([0.299, 0.587, 0.114]))[:, None]

    assert augmentation_readout(spread, images, changes).probes["grey"].mean > 0.95
    assert augmentation_readout(luma, images, changes).mean == pytest.approx(0.5, abs=0.15)


def test_readout_is_balanced_seeded_and_of_other_images():
    images = pictures(101)
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(192, 8), nn.BatchNorm1d(8))
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    changes = each_alone("simclr-cifar")
    found = augmentation_readout(encoder, images, changes, seed=3)
    assert list(found.probes) == ["crop", "flip", "grey", "brightness", "contrast", "saturation", "hue"]
    assert found.mean == pytest.approx(np.mean([probe.mean for probe in found.probes.values()]))
    assert "fitted on 81 rows kept for it, judged by 20 others" in found.probes["hue"].protocol
    fewer = augmentation_readout(encoder, images, {"hue": changes["hue"]}, seed=3)
    assert fewer.probes["hue"] == found.probes["hue"]  # whatever else is asked for
    assert encoder.training
    assert all(torch.equal(before[name], value) for name, value in encoder.state_dict().items())
    same = augmentation_readout(
        lambda x: torch.zeros(len(x), 1), images[:20], fitted_on=images[20:], augmentations=changes
    )
    assert same.mean == 0.5  # a constant code is right for one half


def test_any_pairing_will_do_and_bad_input_gets_a_sentence():
    images = torch.rand(200, 1, 6, 6, generator=torch.Generator().manual_seed(0))
    found = augmentation_readout(lambda x: x.flatten(1).std(1, keepdim=True), images, {"noise": GaussianNoise(0.5)})
    assert found.mean > 0.95
    with pytest.raises(InputError, match="at least one augmentation"):
        augmentation_readout(nn.Flatten(), images, {})
    with pytest.raises(InputError, match="too few"):
        augmentation_readout(nn.Flatten(), images[:8], {"noise": GaussianNoise(0.5)})
    with pytest.raises(InputError, match="bytes or real numbers"):
        augmentation_readout(nn.Flatten(), np.zeros((9, 1, 2, 2), dtype=int), {"noise": GaussianNoise(0.5)})


def test_each_alone_is_one_change_at_a_time():
    found = each_alone("gedi-mnist")
    assert set(found) == {"crop", "grey", "noise", "brightness", "contrast", "saturation", "hue"}
    assert all(isinstance(change, ImageAugmentation) for change in found.values())
    brighter = found["brightness"].strengths
    assert (brighter.jitter, brighter.brightness, brighter.contrast, brighter.hue, brighter.crop) == (1, 0.4, 0, 0, 0)
    assert found["noise"].strengths.noise_std == 0.2
    assert found["crop"].strengths.crop_scale == 0.4
    x = torch.rand(5, 3, 6, 6)
    ratio = found["brightness"].sample(0.5 * x, torch.Generator().manual_seed(0)) / (0.5 * x)
    torch.testing.assert_close(ratio, ratio[:, :1, :1, :1].expand_as(ratio))


# --- reconstructions --------------------------------------------------------------------------------------------------


def test_a_decoder_shows_what_a_code_keeps():
    chance = np.random.default_rng(0)
    images = (chance.normal(size=(400, 2)) @ chance.normal(size=(2, 12))).reshape(400, 1, 3, 4).astype(np.float32)
    flat = images.reshape(400, 12)
    directions = np.linalg.svd(flat - flat.mean(0), full_matrices=False)[2]

    def principal(count):
        return lambda x: x.flatten(1).numpy() @ directions[:count].T * 1e3  # whatever the scale

    options = {"epochs": 25, "lr": 3e-3, "batch_size": 32}
    both, one, none = (
        adhoc_decoder(encoder, images, **options)
        for encoder in (principal(2), principal(1), lambda x: torch.zeros(len(x), 1))
    )
    assert both.explained > 0.98
    assert 0.1 < one.explained < both.explained
    assert none.explained == pytest.approx(0, abs=0.1)
    assert both.reconstruct(images[:5]).shape == (5, 1, 3, 4)
    error = float((both.reconstruct(images) - torch.from_numpy(images)).square().mean())
    assert error < 0.1 * one.error
    again = adhoc_decoder(principal(2), images, **options)
    assert (again.error, again.epochs) == (both.error, both.epochs)
    assert "320" not in again.protocol  # a fifth held out, a tenth of the rest to choose by
    assert "trained on 288 images" in again.protocol


def test_a_linear_decoder_ends_at_least_squares():
    x = torch.from_numpy(gaussian(500, 6)).float()
    held = torch.from_numpy(gaussian(200, 6, seed=1)).float()
    core = nn.Linear(2, 6)
    before = core.weight.clone()
    found = adhoc_decoder(lambda rows: rows[:, :2], x, held_out=held, decoder=core, epochs=80, lr=1e-2)
    assert found.error == pytest.approx(4 / 6, rel=0.15)  # what is not in the code cannot be shown
    assert found.baseline == pytest.approx(float((held - x.mean(0)).square().mean()), rel=0.02)
    assert torch.equal(core.weight, before)
    assert "Linear trained on 450 images" in found.protocol


def test_bytes_are_images_from_0_to_1_and_the_encoder_stays_frozen():
    images = pictures(60, channels=1)
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(64, 3), nn.BatchNorm1d(3))
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    found = adhoc_decoder(encoder, images, epochs=2)
    assert found.baseline < 0.2
    assert all(torch.equal(before[name], value) for name, value in encoder.state_dict().items())
    rows = side_by_side(images[:7], {"one": found, "again": found})
    assert (rows.shape, rows.dtype) == ((3, 7, 1, 8, 8), np.uint8)
    np.testing.assert_array_equal(rows[0], images[:7])
    np.testing.assert_array_equal(rows[1], as_bytes(found.reconstruct(images[:7])))
    floats = adhoc_decoder(encoder, images / 255.0, epochs=2)
    assert floats.error == pytest.approx(found.error, rel=1e-4)


@pytest.mark.parametrize(
    ("images", "options", "says"),
    [
        (np.zeros((9, 1, 2, 2), np.float32), {}, "too few"),
        (np.zeros((40, 1, 2, 2), np.float32), {"held_out": np.zeros((4, 1, 3, 3), np.float32)}, "shape of the others"),
        (np.zeros((40, 1, 2, 2), np.float32), {"epochs": 0}, "epochs"),
        (np.zeros(40, np.float32), {}, r"\[n, \.\.\.\]"),
    ],
)
def test_bad_images_get_one_sentence(images, options, says):
    with pytest.raises(InputError, match=says):
        adhoc_decoder(nn.Flatten(), images, **options)


def test_either_side_may_say_the_kind_of_a_factor() -> None:
    rng = np.random.default_rng(0)
    angle = rng.uniform(0, 2 * np.pi, 400)
    z = np.column_stack([np.cos(angle), np.sin(angle)])
    half, other = slice(0, 300), slice(300, 400)
    plain, told = {"a": angle[half]}, {"a": Factor(angle[other], "periodic")}
    found = style_retention(z[other], told, fitted_on=(z[half], plain), epochs=2)
    assert found["a"].kind == "periodic"
    assert found["a"].linear > 0.999
    with pytest.raises(InputError, match="'a' is continuous and periodic of 6"):
        style_retention(z[other], told, fitted_on=(z[half], {"a": Factor(angle[half], "continuous")}))
    with pytest.raises(InputError, match="leave 0 to fit on"):
        style_retention(z[:10], {"a": angle[:10]}, test_size=0.95)
