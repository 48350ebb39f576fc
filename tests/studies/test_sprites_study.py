"""identify/sprites and identify/natural-sprites: the whole path at the smoke budget, and what makes it the study."""

import json

import numpy as np
import pytest
import torch
from torch import nn

from probssl import studies
from probssl.encoders import ConvEncoder, encode, seeded
from probssl.errors import InputError
from probssl.pairings.views import Needs
from probssl.studies import sprites, sprites_page, sprites_trials
from probssl.studies.comparison import published, references
from probssl.studies.sprites_trials import BASELINES, UNTRAINED, SpritePairs
from probssl.worlds.sprites import Sprites
from tests.files import write_kitti


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sprites") / "out"
    return folder, studies.run("identify/sprites", "smoke", folder, quiet=True, jobs=1)


def test_rows(smoke):
    known = references("identify/sprites")
    rows = {(row.setting, row.metric): row for row in smoke[1].rows}
    assert smoke[1].failures == ()
    assert known.keys() <= rows.keys()
    ours = {loss.setting for loss in sprites.Sprites.losses}
    assert {setting for setting, _ in known} - ours == {"UNI, Ada-GVAE", "UNI, SlowVAE", "LAP, SlowVAE"}
    for (setting, metric), row in rows.items():
        if setting not in ours and setting not in BASELINES:  # quoted there from other papers
            assert (row.value, row.verdict) == (None, "not comparable")
            assert row.published is not None
            continue
        assert row.value <= 1 + 1e-9
        assert (row.published is None) == ((setting, metric) not in known)
        assert (row.verdict == "not comparable") == (row.published is None or metric == "DCI")
    assert rows["the factors themselves", "BetaVAE score"].value == 1
    assert rows["the factors themselves", "DCI"].value > 0.9


def test_files(smoke):
    folder, result = smoke
    figures = {"pairs.png", "scores.png", "losses.png", "shares.png", "curves.png"}
    assert {path.name for path in folder.iterdir()} == figures | {"index.html", "result.json", "store.sqlite"}
    page = result.page.read_text()
    for words in ("LAP, AlignUniform(0.99, 1)", "published", "UNI, Ada-GVAE", "not those of dSprites", "guessing"):
        assert words in page
    assert result.trials == len(sprites.Sprites().configs("smoke"))


def test_configs_hold_all_that_a_trial_depends_on():
    for study in (sprites.Sprites(), sprites.NaturalSprites()):
        for budget, scale in sprites.SCALE.items():
            configs = study.configs(budget)
            assert len(configs) == scale.seeds * (len(study.losses) + len(BASELINES))
            for config in configs:
                assert config.keys() >= {"setting", "seed", *scale.settings}
            assert {c["setting"] for c in configs} - set(BASELINES) <= {s for s, _ in references(study.name)}
        assert all(len(cohort) == 1 for cohort in study.cohorts(study.configs("full")))


def test_a_trial_is_a_function_of_its_configuration():
    config = next(c for c in sprites.Sprites().configs("smoke") if c["setting"].startswith("LAP"))
    one, same, other = (sprites_trials.trial(c) for c in (config, config, {**config, "seed": 1}))
    assert one["numbers"] == same["numbers"] != other["numbers"]
    assert json.dumps(one["history"]) == json.dumps(same["history"])
    assert one["failure"] is None


def test_what_cannot_be_trained_leaves_a_gap(tmp_path):
    study = sprites.Sprites()
    configs = [c for c in study.configs("smoke") if c["setting"] in ("LAP, AlignUniform(0.9, 1)", UNTRAINED)]
    results = [(c, sprites_trials.trial({**c, "lr": 1e30, "steps": 4})) for c in configs]
    assert results[0][1]["failure"] is not None
    rows = study.summarise(results, "smoke")
    assert {row.value for row in rows if row.setting == "LAP, AlignUniform(0.9, 1)"} == {None}
    assert "–" in study.page(results, rows, "smoke").write(tmp_path).read_text()


# --- natural-like transitions -----------------------------------------------------------------------------------------


def test_natural_sprites(tmp_path):
    result = studies.run("identify/natural-sprites", "smoke", tmp_path / "out", quiet=True, jobs=1)
    assert result.failures == ()
    rows = {(row.setting, row.metric): row for row in result.rows}
    assert references("identify/natural-sprites").keys() <= rows.keys()
    assert {row.verdict for row in rows.values()} == {"not comparable"}  # nothing here is measured from videos
    assert rows["continuous, AlignUniform(0.5, 1)", "MCC"].value > 0
    assert ("continuous, AlignUniform(0.5, 1)", "MIG") not in rows
    assert "not YouTube-VOS" in sprites.NaturalSprites.claim


@pytest.mark.parametrize(
    ("name", "still"), [("LAP", {0}), ("UNI", set()), ("discrete", {0, 2}), ("continuous", {0, 2})]
)
def test_pairs(name, still):
    source = SpritePairs(name, 16)
    generator = torch.Generator().manual_seed(0)
    before = source.factors(400, generator)
    after = source.move(before, generator)
    assert before.is_floating_point() == after.is_floating_point() == (name == "continuous")
    moved = (before != after).any(0).tolist()
    assert {factor for factor, moves in enumerate(moved) if not moves} == still
    views = source.draw(6, Needs(augmented=2), torch.Generator().manual_seed(1))
    assert views.x.shape == (6, 1, 16, 16)
    assert views.augmented.shape == (2, 6, 1, 16, 16)
    again = source.draw(6, Needs(augmented=0), torch.Generator().manual_seed(1))
    assert torch.equal(again.x, views.x)
    assert again.augmented.shape == (0, 6, 1, 16, 16)
    torch.testing.assert_close(source.sprites.render(views.latents), views.x, atol=1e-3, rtol=0)


# --- masks of pedestrians ---------------------------------------------------------------------------------------------


def test_kitti_needs_its_file(tmp_path, monkeypatch):
    monkeypatch.setenv("PROBSSL_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(InputError, match=r"KITTI Masks, and there is no .*kitti_peds_v2\.pickle"):
        studies.run("identify/kitti", "smoke", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_kitti_on_a_file_of_the_same_layout(tmp_path, monkeypatch):
    monkeypatch.setenv("PROBSSL_DATA", str(tmp_path))
    write_kitti(tmp_path / "kitti" / "kitti_peds_v2.pickle")
    result = studies.run("identify/kitti", "smoke", tmp_path / "out", quiet=True, jobs=1)
    assert result.failures == ()
    rows = {row.setting: row for row in result.rows}
    assert {setting for setting, _ in references("identify/kitti")} <= rows.keys()
    assert rows["Δt 5, SlowVAE"].value is None
    for setting in ("Δt 1, AlignUniform(0.5, 1)", "Δt 5, AlignUniform(0.5, 2)", "untrained encoder"):
        assert 0 < rows[setting].value <= 1


# --- measuring --------------------------------------------------------------------------------------------------------


def test_codes_of_the_grid_are_those_of_its_images():
    pictures = Sprites(16)
    encoder = seeded(0, lambda: ConvEncoder((4,), 10, hidden=8).bind(shape=(1, 16, 16)))
    codes = sprites_trials.grid_codes(encoder, pictures, [3, 2, 3, 2, 32])
    assert codes.shape == (3, 2, 3, 2, 32, 10)
    some = torch.tensor([[2, 5, 20, 0, 7], [0, 0, 39, 31, 31]])  # ends and middles of the grids that were cut
    seen = np.stack([codes[2, 1, 1, 0, 7], codes[0, 0, 2, 1, 31]])
    np.testing.assert_allclose(seen, encode(encoder, pictures.render(some)).numpy(), rtol=1e-4, atol=1e-5)


def test_effects_of_known_codes():
    """One code is a factor, one a sum of two, one their product, one is dead."""
    a, b = np.meshgrid(np.linspace(-1, 1, 5), np.linspace(-1, 1, 7), indexing="ij")
    found = sprites_trials.effects(np.stack([a, a / a.std() + b / b.std(), a * b, 0 * a], axis=-1))
    np.testing.assert_allclose(found["shares"], [[1, 0], [0.5, 0.5], [0, 0], [0, 0]], atol=1e-3)
    mean, spread = found["curves"][0]
    np.testing.assert_allclose(mean[:, 0], a[:, 0] / a.std(), atol=1e-4)
    np.testing.assert_allclose(spread[:, 0], 0, atol=1e-4)


def test_principal_components_keep_the_most_variance():
    images = Sprites(8).render(Sprites(8).draw(300, torch.Generator().manual_seed(0)))
    codes = encode(sprites_trials.principal_components(images), images)
    kept = torch.cov(codes.double().T)
    values = torch.linalg.eigvalsh(torch.cov(images.flatten(1).double().T)).flip(0)[:10]
    torch.testing.assert_close(kept, torch.diag(values), atol=1e-5, rtol=1e-3)


def test_rising_reads_the_published_table():
    """The paper says that scores increase consistently with the weight of uniformity; of its own table this is left."""
    found = sprites_page.rising(sprites.Sprites(), published("identify/sprites"))
    assert found == {
        "UNI": ["BetaVAE score", "FactorVAE score"],
        "LAP": ["BetaVAE score", "FactorVAE score", "SAP"],
    }


# --- the encoder ------------------------------------------------------------------------------------------------------


def test_conv_encoder():
    encoder = seeded(0, lambda: ConvEncoder((4, 8), 5, hidden=16).bind(shape=(3, 32, 32)))
    assert encoder(torch.zeros(2, 3, 32, 32)).shape == (2, 5)
    assert [layer.out_channels for layer in encoder if isinstance(layer, nn.Conv2d)] == [4, 8]
    assert encoder[-1].sizes == (8 * 8 * 8, 16, 5)
    assert ConvEncoder((32, 32, 64, 64), 10).bind(shape=(1, 64, 64))[-1].sizes == (64 * 4 * 4, 256, 10)
    assert ConvEncoder((4, 8), 5).bind(shape=(1, 21, 30))(torch.zeros(2, 1, 21, 30)).shape == (2, 5)
    images = Sprites(32).render(Sprites(32).draw(256, torch.Generator().manual_seed(0)))
    codes = encode(seeded(0, lambda: ConvEncoder((16, 32, 32), 10).bind(shape=(1, 32, 32))), images)
    assert 0.02 < codes.std(0).mean() < 5  # neither dead nor huge at the start


@pytest.mark.parametrize(
    ("settings", "size"),
    [
        ({"widths": (4, 4, 4)}, (20, 7)),
        ({"widths": (4, 4, 4)}, (4, 4)),
        ({"widths": ()}, (32, 32)),
        ({"hidden": 0}, (32, 32)),
        ({"widths": (4, 0)}, (32, 32)),
        ({"dim": 0}, (32, 32)),
    ],
)
def test_conv_encoder_refuses(settings, size):
    with pytest.raises(InputError) as error:
        ConvEncoder(**{"dim": 10, **settings}).bind(shape=(1, *size))
    assert "\n" not in str(error.value)
