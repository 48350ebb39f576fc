"""The recipe: TOML there and back, typos and wrong values refused in one sentence."""

from __future__ import annotations

import dataclasses
import math
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from probssl import objectives
from probssl.encoders import MLP, WithHead, encode, rows_meet
from probssl.energies import Anisotropic, Cosine, Dot, Euclidean, PNorm
from probssl.errors import InputError
from probssl.pairings import IMAGE_PRESETS, MaskAndNoise
from probssl.recipe import (
    AUGMENTATIONS,
    CLUSTERING_OBJECTIVES,
    COUPLED_NETWORKS,
    ENERGIES,
    ENERGY_OF,
    EVERY_OBJECTIVE,
    NETWORKS,
    OBJECTIVES,
    OF_IMAGES,
    SYMMETRIC_ONLY,
    WITH_CLUSTERS,
    WITH_MEMORY,
    Recipe,
)

from .training.parts import assert_one_sentence

positive = st.floats(1e-12, 1e12)

recipes = st.builds(
    Recipe,
    objective=st.sampled_from(sorted(EVERY_OBJECTIVE)),
    energy=st.sampled_from(sorted(ENERGIES)),
    temperature=positive,
    p=st.floats(1, 100),
    margin=positive,
    dim=st.none() | st.integers(1, 10**6),
    hidden=st.none() | st.lists(st.integers(1, 4096), max_size=4).map(tuple),
    preservation=st.floats(0, 1),
    noise=st.floats(1e-6, 1e12),
    steps=st.integers(1, 10**9),
    batch_size=st.integers(2, 10**6),
    optimiser=st.sampled_from(["adam", "adamw", "sgd"]),
    lr=positive,
    objective_lr=st.none() | positive,
    weight_decay=st.floats(0, 1e6),
    warmup=st.integers(0, 10**6),
    clip_norm=st.just(0.0) | positive,
    seed=st.integers(0, 2**62 - 1),
    precision=st.sampled_from(["float32", "bfloat16"]),
)


def read(text: str) -> Recipe:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "recipe.toml"
        path.write_text(text, encoding="utf-8")
        return Recipe.from_toml(path)


@given(recipe=recipes)
@settings(deadline=None)
def test_toml_there_and_back(recipe: Recipe) -> None:
    assert read(recipe.to_toml()) == recipe
    assert Recipe.from_dict(recipe.as_dict()) == recipe
    assert read(recipe.for_features(7).to_toml()) == recipe.for_features(7)


def test_toml_explains_every_line() -> None:
    text = Recipe(dim=3, hidden=(4, 5), objective_lr=0.1, clip_norm=2.0).to_toml()
    elsewhere = {
        "world": Recipe.for_world("sphere4").to_toml(),
        "clusters": Recipe(objective="swav", clusters=4).to_toml(),
        "head": Recipe(objective="mocov2").for_features(6).to_toml(),
        "likelihood_variance": Recipe(objective="simvae").for_features(6).to_toml(),
        "mean_variance": Recipe(objective="simvae", mean_variance=1.0).to_toml(),
        **dict.fromkeys((*OF_IMAGES, "images", "shape"), Recipe.for_images("mnist").for_shape((1, 28, 28)).to_toml()),
    }
    for entry in dataclasses.fields(Recipe):
        where = elsewhere.get(entry.name, text)
        assert f"# {entry.metadata['help']}\n{entry.name} = " in where


def test_an_empty_file_is_the_default_and_whole_numbers_stand_for_real_ones() -> None:
    assert read("") == Recipe()
    assert read("lr = 1\nclip_norm = 2\nhidden = []") == Recipe(lr=1.0, clip_norm=2.0, hidden=())


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("objective = 'simvae'\nrelated = 1", ("related", "at least 2")),
        ("objective = 'simvae'\nhead = [3]", ("simvae", "head")),
        ("head = []", ("head", "at least one layer")),
        ("likelihood = 'cauchy'", ("'cauchy'", "gaussian, bernoulli")),
        ("likelihood = 'bernoulli'\nlikelihood_variance = 1.0", ("bernoulli", "leave it out")),
        ("queue = 0", ("queue",)),
        ("momentum = 1.0", ("momentum", "[0, 1)")),
        ("latent_variance = 0.0", ("latent_variance", "positive")),
        ("objectiv = 'snl'", ("'objectiv'", "did you mean 'objective'")),
        ("learning_rate = 0.1", ("'learning_rate'", "recipe knows")),
        ("batchsize = 3", ("did you mean 'batch_size'",)),
        ("[training]\nsteps = 3", ("'training'",)),
        ("objective = 'info-nce'", ("did you mean 'infonce'",)),
        ("objective = 'gan'", ("choose one of infonce",)),
        ("energy = 'cosin'", ("did you mean 'cosine'",)),
        ("objective = 3", ("objective cannot be 3",)),
        ("steps = 10.0", ("steps cannot be 10.0",)),
        ("steps = true", ("steps cannot be True",)),
        ("steps = '10'", ("steps cannot be '10'",)),
        ("lr = 'fast'", ("lr cannot be 'fast'",)),
        ("lr = true", ("lr cannot be True",)),
        ("lr = [0.1]", ("lr cannot be",)),
        ("lr = nan", ("lr must be", "nan")),
        ("lr = inf", ("lr must be", "inf")),
        ("lr = 0", ("lr must be",)),
        ("hidden = 3", ("hidden cannot be 3",)),
        ("hidden = [3, 'a']", ("hidden cannot be",)),
        ("hidden = [3.0]", ("hidden cannot be",)),
        ("hidden = [3, 0]", ("hidden widths",)),
        ("dim = 0", ("dim",)),
        ("dim = 2024-01-01", ("dim cannot be",)),
        ("preservation = 1.5", ("preservation", "1.5")),
        ("preservation = nan", ("preservation",)),
        ("temperature = 0", ("temperature",)),
        ("noise = inf", ("noise",)),
        ("margin = -1", ("margin",)),
        ("p = 0.5", ("p must be at least 1",)),
        ("p = inf", ("p must be", "finite")),
        ("seed = -1", ("seed",)),
        ("batch_size = 1", ("batch size",)),
        ("optimiser = 'lion'", ("'lion'",)),
        ("precision = 'float8'", ("'float8'", "bfloat16")),
        ("warmup = -1", ("warmup",)),
        ("clip_norm = -1", ("clip_norm",)),
        ("weight_decay = -1", ("weight_decay",)),
        ("objective = 'spectral'\nenergy = 'euclidean'", ("spectral", "cosine energy only")),
        ("clusters = 3", ("infonce", "no clusters")),
        ("objective = 'instance'\nclusters = 3", ("instance", "no clusters")),
        ("objective = 'swav'\nclusters = 1", ("clusters must be at least 2",)),
        ("objective = 'swav'\nenergy = 'euclidean'", ("swav", "cosine energy only")),
        ("steps = ", ("not a TOML file",)),
        ("steps = 1\nsteps = 2", ("not a TOML file",)),
    ],
)
def test_bad_recipes_are_refused_in_a_sentence_that_names_the_file(
    text: str, named: tuple[str, ...], tmp_path: Path
) -> None:
    path = tmp_path / "my.toml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        Recipe.from_toml(path)
    assert_one_sentence(caught.value, str(path), *named)


def test_files_that_are_not_there_or_not_text(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no recipe at"):
        Recipe.from_toml(tmp_path / "nowhere.toml")
    (tmp_path / "image.toml").write_bytes(b"\x89PNG\r\n\xff\xfe")
    with pytest.raises(InputError, match="not a TOML file"):
        Recipe.from_toml(tmp_path / "image.toml")
    with pytest.raises(InputError, match="cannot be read"):
        Recipe.from_toml(tmp_path)


# Options and fixed energies


def test_options_that_are_none_change_nothing() -> None:
    recipe = Recipe(objective="snl", dim=3)
    assert recipe.with_options(objective=None, dim=None) == recipe
    assert recipe.with_options(dim=5) == dataclasses.replace(recipe, dim=5)
    with pytest.raises(InputError, match="did you mean 'preservation'"):
        recipe.with_options(preservatoin=0.3)


@pytest.mark.parametrize("objective", ENERGY_OF)
def test_fixed_energies(objective: str) -> None:
    fixed = ENERGY_OF[objective]
    assert Recipe(objective=objective).energy == fixed, "the default energy gives way"
    assert Recipe().with_options(objective=objective).energy == fixed
    assert Recipe().with_options(objective=objective, energy=fixed).energy == fixed
    for other in set(ENERGIES) - {fixed}:
        with pytest.raises(InputError) as caught:
            Recipe().with_options(objective=objective, energy=other)
        assert_one_sentence(caught.value, objective, fixed, other)
        with pytest.raises(InputError):
            Recipe(objective=objective).with_options(energy=other)


def test_a_recipe_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Recipe().lr = 0.1  # type: ignore[misc]


# What it makes


@pytest.mark.parametrize(("features", "dim", "hidden"), [(1, 2, (2,)), (4, 2, (8,)), (13, 6, (26,)), (64, 32, (128,))])
def test_dimensions_follow_the_features(features: int, dim: int, hidden: tuple[int, ...]) -> None:
    sized = Recipe().for_features(features)
    assert (sized.dim, sized.hidden) == (dim, hidden)
    assert sized.for_features(999) == sized
    assert Recipe().build_encoder(features)(torch.zeros(3, features)).shape == (3, dim)
    assert Recipe(dim=5, hidden=()).build_encoder(features)(torch.zeros(3, features)).shape == (3, 5)


CLASSES = {
    "infonce": objectives.InfoNCE,
    "snl": objectives.SNL,
    "nce": objectives.NCE,
    "fisher": objectives.Fisher,
    "simclr": objectives.InfoNCE,
    "spectral": objectives.Spectral,
    "triplet": objectives.Triplet,
    "simsiam": objectives.SimSiam,
    "sliced-fisher": objectives.SlicedFisher,
    "jensen-shannon": objectives.JensenShannon,
    "chi-squared": objectives.ChiSquared,
    "renyi": objectives.RenyiInfoNCE,
    "barlow": objectives.BarlowTwins,
    "vicreg": objectives.VICReg,
    "wmse": objectives.WMSE,
    "corinfomax": objectives.CorInfoMax,
    "aninfonce": objectives.InfoNCE,
}


@pytest.mark.parametrize("objective", CLASSES)
@pytest.mark.parametrize("energy", ENERGIES)
def test_every_objective_with_every_energy(objective: str, energy: str) -> None:
    recipe = Recipe(objective=objective, energy=energy, temperature=0.3, p=3.0)
    encoder, made = recipe.build_encoder(6), recipe.build_objective(6)
    assert type(made) is CLASSES[objective]
    pairing = recipe.build_pairing()
    assert isinstance(pairing, MaskAndNoise)
    x = torch.randn(8, 6, generator=torch.Generator().manual_seed(0))
    loss = made(encoder, pairing(x, made.needs, torch.Generator().manual_seed(0)))
    assert math.isfinite(loss.check_finite())


BESIDE = {
    "swav": objectives.SwAV,
    "protocpc": objectives.ProtoCPC,
    "deepcluster": objectives.DeepClustering,
    "instance": objectives.InstanceDiscrimination,
    "gedi": objectives.GEDI,
    "jem": objectives.GEDI,
}


DECODING = {
    "vae": objectives.VAE,
    "beta-vae": objectives.VAE,
    "cr-vae": objectives.CRVAE,
    "simvae": objectives.SimVAE,
}

TAUGHT = {"moco": objectives.MoCo, "mocov2": objectives.MoCo, "byol": objectives.BYOL}


def test_every_objective_is_tried() -> None:
    assert {*CLASSES, *BESIDE, *DECODING, *TAUGHT} == {*EVERY_OBJECTIVE}


@pytest.mark.parametrize("objective", DECODING)
def test_decoders_mirror_the_encoder(objective: str) -> None:
    recipe = Recipe(objective=objective, hidden=(12, 5), related=3, beta=2.0, consistency=0.3, latent_variance=0.4)
    encoder, made = recipe.build_encoder(6), recipe.build_objective(6)
    assert type(made) is DECODING[objective]
    assert isinstance(made, objectives.GenerativeObjective)
    (decoder,) = (part for part in made.decoder.modules() if isinstance(part, MLP))
    assert decoder.sizes == encoder.sizes[::-1] == (3, 5, 12, 6)
    assert made.likelihood.variance == 0.1
    x = torch.randn(8, 6, generator=torch.Generator().manual_seed(0))
    views = recipe.build_pairing()(x, made.needs, torch.Generator().manual_seed(0))
    assert math.isfinite(made(encoder, views).check_finite())
    assert (
        made.weights
        == {
            "vae": {},
            "beta-vae": {"divergence": 2.0},
            "cr-vae": {"divergence": 1.0, "consistency": 0.3},
            "simvae": {},
        }[objective]
    )
    if isinstance(made, objectives.SimVAE):
        assert (made.related, made.variance, made.mean_variance) == (3, 0.4, None)


def test_what_a_decoder_says_of_the_data_is_a_choice() -> None:
    bernoulli = Recipe.for_images("mnist", objective="vae", likelihood="bernoulli", width=2).for_shape((1, 4, 4))
    assert bernoulli.likelihood_variance is None
    assert isinstance(bernoulli.build_objective(16).likelihood, objectives.BernoulliLikelihood)
    with pytest.raises(InputError, match="rows of a table or world are not: use the gaussian one"):
        Recipe(objective="vae", likelihood="bernoulli").for_features(6)
    images = Recipe.for_images("mnist", objective="simvae", width=2, dim=4).for_shape((1, 28, 28))
    assert (images.likelihood_variance, images.augmentation, images.batch_size) == (0.02, "simvae-mnist", 32)
    assert images.build_objective(784).decode(torch.zeros(2, 4), (1, 28, 28)).shape == (2, 1, 28, 28)
    assert Recipe.for_images("fashion-mnist", objective="vae").for_shape((1, 28, 28)).augmentation == "simvae-fashion"
    for network in ("mlp", "resnet8"):
        made = Recipe.for_images("some", objective="vae", network=network, dim=4).for_shape((3, 16, 12))
        assert made.build_objective(576).decode(torch.zeros(2, 4), (3, 16, 12)).shape == (2, 3, 16, 12)


@pytest.mark.parametrize("objective", TAUGHT)
def test_teachers_start_as_the_encoder(objective: str) -> None:
    recipe = Recipe(objective=objective, queue=20, momentum=0.9, temperature=0.3)
    encoder, made = recipe.build_encoder(6), recipe.build_objective(6)
    assert type(made) is TAUGHT[objective]
    assert isinstance(made, objectives.MoCo | objectives.BYOL)
    assert made.momentum == 0.9
    theirs = made.teacher.state_dict()
    assert theirs.keys() == encoder.state_dict().keys()
    assert all(torch.equal(value, theirs[name]) for name, value in encoder.state_dict().items())
    if isinstance(made, objectives.MoCo):
        assert (made.keys.shape, made.energy.temperature) == ((20, 3), 0.3)


def test_a_head_is_trained_and_left_out_of_the_representation() -> None:
    recipe = Recipe(objective="infonce", head=(7, 2)).for_features(6)
    encoder = recipe.build_encoder(6)
    assert isinstance(encoder, WithHead)
    assert encoder(torch.zeros(4, 6)).shape == (4, 2)
    assert encode(encoder, torch.zeros(4, 6)).shape == (4, 3)
    bare = Recipe(objective="infonce").build_encoder(6).state_dict()
    assert all(torch.equal(value, bare[name]) for name, value in encoder.backbone.state_dict().items())
    assert isinstance(Recipe(objective="snl", head=(2,)).build_objective(6), objectives.SNL)
    assert Recipe(objective="mocov2").for_features(6).head == (3, 3)
    assert Recipe(objective="moco").for_features(6).head is None


@pytest.mark.parametrize("objective", CLUSTERING_OBJECTIVES)
def test_clusterings_are_beside_the_compared_objectives(objective: str) -> None:
    assert objective not in OBJECTIVES
    recipe = Recipe(objective=objective, temperature=0.02)
    made = recipe.build_objective(6, 40)
    assert type(made) is BESIDE[objective]
    if isinstance(made, objectives.GEDI):
        assert isinstance(made.energy, Euclidean)
        assert made.buffer is not None
        assert made.buffer.chains.shape == (1000, 6)
    else:
        assert recipe.energy == "cosine"
        assert isinstance(made.energy, Cosine)
        assert made.energy.temperature == 0.02
    sized = recipe.for_features(6)
    assert sized.clusters == (10 if objective in WITH_CLUSTERS else None)
    assert Recipe.from_dict(sized.as_dict()) == sized
    assert (objective in WITH_MEMORY) == made.needs.index
    remembers = objective in WITH_MEMORY or isinstance(made, objectives.GEDI)
    assert remembers == (next(made.buffers(), None) is not None)
    if objective in WITH_CLUSTERS:
        assert isinstance(made, objectives.ClusteringObjective)
        assert made.clusters == 10
        assert Recipe(objective=objective, clusters=4).build_objective(6, 40).clusters == 4
    if objective in WITH_MEMORY:
        assert len(made.get_buffer("bank")) == 40
        with pytest.raises(InputError) as caught:
            Recipe(objective=objective, world="sphere4")
        assert_one_sentence(caught.value, objective, "remembers", "world:sphere4")


@pytest.mark.parametrize("asymmetry", ["predictor", "encoder"])
@pytest.mark.parametrize("objective", [name for name in OBJECTIVES if name not in SYMMETRIC_ONLY])
def test_an_asymmetric_energy_starts_as_the_symmetric_one(objective: str, asymmetry: str) -> None:
    x = torch.randn(8, 6, generator=torch.Generator().manual_seed(0))
    losses = []
    for kind in ("none", asymmetry):
        recipe = Recipe(objective=objective, asymmetry=kind)
        encoder, made = recipe.build_encoder(6), recipe.build_objective(6)
        if isinstance(made, objectives.normalised.Biased):
            made.bias = objectives.normalised.NoBias()  # drawn after the energy, and so with other weights
        views = recipe.build_pairing()(x, made.needs, torch.Generator().manual_seed(0))
        losses.append(made(encoder, views).total)
    assert losses[1].item() == pytest.approx(losses[0].item(), rel=1e-5)
    losses[1].backward()
    own = [p for p in made.energy.parameters() if p.grad is not None and p.grad.abs().max() > 0]
    assert own, "the augmented side learns parameters of its own"


@pytest.mark.parametrize("objective", SYMMETRIC_ONLY)
def test_objectives_that_need_symmetry_say_so(objective: str) -> None:
    with pytest.raises(InputError, match="asymmetry none only"):
        Recipe(objective=objective, asymmetry="encoder")


@pytest.mark.parametrize(
    ("energy", "kind", "settings"),
    [
        ("euclidean", Euclidean, {}),
        ("cosine", Cosine, {"temperature": 0.3}),
        ("dot", Dot, {"temperature": 0.3}),
        ("pnorm", PNorm, {"p": 3.0}),
        ("anisotropic", Anisotropic, {}),
    ],
)
def test_energies_get_their_settings(energy: str, kind: type, settings: dict[str, Any]) -> None:
    made = Recipe(energy=energy, temperature=0.3, p=3.0).build_energy(4)
    assert type(made) is kind
    assert {name: getattr(made, name) for name in settings} == settings


def test_the_plan_carries_every_choice_of_the_optimisation() -> None:
    plan = Recipe(
        steps=7,
        batch_size=9,
        optimiser="sgd",
        lr=0.5,
        objective_lr=0.4,
        weight_decay=0.3,
        warmup=2,
        clip_norm=0.1,
        precision="bfloat16",
    ).plan()
    assert dataclasses.astuple(plan)[:6] == (7, 9, "sgd", 0.5, 0.4, 0.3)
    assert (plan.warmup, plan.clip_norm, plan.precision) == (2, 0.1, "bfloat16")


def test_the_seed_decides_the_initial_weights_whatever_the_objective() -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    first = Recipe(seed=1, objective="snl").build_encoder(6)[0].weight
    assert torch.equal(first, Recipe(seed=1, objective="fisher").build_encoder(6)[0].weight)
    assert not torch.equal(first, Recipe(seed=2).build_encoder(6)[0].weight)
    one, other = (Recipe(seed=1, objective="snl").build_objective(6) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    assert torch.equal(torch.get_rng_state(), before)


# Images


def test_recipes_for_images_go_there_and_back_and_fill_in_what_depends_on_the_shape() -> None:
    grey = Recipe.for_images("mnist").for_shape((1, 28, 28))
    assert (grey.network, grey.width, grey.dim, grey.augmentation) == ("conv", 16, 64, "gedi-mnist")
    assert Recipe.for_images("photographs").for_shape((3, 40, 30)).augmentation == "simclr-cifar"
    assert Recipe.for_images("svhn").for_shape((3, 32, 32)).augmentation == "gedi-svhn"
    for recipe in (grey, Recipe.for_images("x", network="mlp", dim=3).for_shape((3, 8, 6)), Recipe(network="resnet8")):
        assert read(recipe.to_toml()) == recipe
        assert Recipe.from_dict(recipe.as_dict()) == recipe
    assert not {"noise", "preservation"} & set(grey.as_dict())
    assert grey.for_shape((1, 28, 28)) == grey


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (3, 21, 50), (1, 6, 5)])
def test_networks_of_images_of_any_size(network: str, shape: tuple[int, int, int]) -> None:
    recipe = Recipe.for_images("x", network=network, dim=5).for_shape(shape)
    assert recipe.build_encoder(math.prod(shape))(torch.zeros(2, *shape)).shape == (2, 5)


@pytest.mark.parametrize("network", NETWORKS)
def test_networks_in_which_images_meet_are_those_that_are_listed(network: str) -> None:
    recipe = Recipe.for_images("x", network=network, dim=5).for_shape((1, 8, 8))
    meet = any(rows_meet(layer) for layer in recipe.build_encoder(64).modules())
    assert meet == (network in COUPLED_NETWORKS)


@pytest.mark.parametrize("objective", EVERY_OBJECTIVE)
def test_every_objective_trains_on_images(objective: str) -> None:
    recipe = Recipe.for_images("x", objective=objective, dim=4, batch_size=8, sgld_steps=1).for_shape((1, 8, 8))
    rows = 40
    encoder, made = recipe.build_encoder(64), recipe.build_objective(64, rows)
    x = torch.rand(8, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    views = recipe.build_pairing()(x, made.needs, torch.Generator().manual_seed(0))
    views.index = torch.arange(8)
    assert math.isfinite(made(encoder, views).check_finite())
    if isinstance(made, objectives.GEDI):
        assert made.buffer is not None
        assert 0 <= made.buffer.chains.min() < made.buffer.chains.max() <= 1


def test_the_names_of_augmentations_are_those_there_are() -> None:
    assert set(AUGMENTATIONS) == set(IMAGE_PRESETS)


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (
            lambda: Recipe.for_images("x", objective="fisher", augmentation="simclr-cifar"),
            ("fisher", "score", "noise", "siamese-fisher", "or gedi-mnist, not simclr-cifar"),
        ),
        (
            lambda: Recipe.for_images("x", objective="fisher", network="resnet18"),
            ("fisher", "meet", "batch normalisation of resnet18", "conv, resnet8, resnet18-group or mlp"),
        ),
        (lambda: Recipe.for_images("x", noise=0.3), ("noise", "x is a set of images", "augmentation")),
        (lambda: Recipe.for_images("x", noise=0.25), ("noise", "set of images")),
        (lambda: Recipe(preservation=0.9).on(images="x"), ("preservation", "x is a set of images")),
        (lambda: Recipe(network="conv").on(), ("network", "the data is a table")),
        (lambda: Recipe(augmentation="gedi-mnist").on(world="sphere4"), ("augmentation", "world:sphere4")),
        (lambda: Recipe.for_images("x", hidden=(3,)), ("hidden", "conv", "width")),
        (lambda: Recipe.for_images("x", network="mlp", width=3), ("mlp", "hidden")),
        (lambda: Recipe.for_images("x", network="resnet"), ("'resnet'", "'resnet8'")),
        (lambda: Recipe.for_images("x", augmentation="simclr"), ("'simclr'", "'simclr-cifar'")),
        (lambda: Recipe.for_images("x", width=0), ("width must be at least 1",)),
        (lambda: Recipe.for_images("x").for_shape((3, 3)), ("shape of images",)),
        (lambda: Recipe.for_images("x").build_encoder(3), ("does not know the shape",)),
    ],
)
def test_what_does_not_suit_the_data_is_refused(make: Any, named: tuple[str, ...]) -> None:
    with pytest.raises(InputError) as caught:
        make()
    assert_one_sentence(caught.value, *named)
