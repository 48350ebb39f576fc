"""The recipe: parts by name or as objects, TOML there and back, typos and wrong values refused in one sentence."""

from __future__ import annotations

import dataclasses
import inspect
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from probssl.cli.fit import parsed
from probssl.encoders import MLP, LatentEncoder, WithHead
from probssl.energies import Asymmetric, Cosine, Euclidean
from probssl.errors import InputError
from probssl.objectives import GEDI, SNL, BiasNetwork, InfoNCE, NoBias
from probssl.pairings import (
    GaussianNoise,
    HardNegatives,
    ImageAugmentation,
    InTurn,
    MaskAndNoise,
    Needs,
    ResampledColumns,
)
from probssl.parts import defaults
from probssl.parts.describe import describe, describe_plan
from probssl.parts.facts import Facts
from probssl.parts.recipe import Named, Recipe
from probssl.parts.registry import KINDS
from probssl.parts.resolve import resolve
from probssl.samplers import SGLD
from probssl.training import TrainingPlan

from ..fitting import resolved
from ..training.parts import assert_one_sentence

TABLE = Facts("table", (6,), 64)
GREY, COLOUR = (Facts("images", (channels, 16, 16), 64) for channels in (1, 3))
WORLD = Facts("world", (4,), 64, "sphere4")
HARD = HardNegatives(MaskAndNoise(), GaussianNoise(1.0))
NEED_MORE = {"ensemble", "latent-regression", "tricl"}
"""Objectives that no table can be trained with by their name alone."""

names = [name for name, entry in KINDS["objective"].items() if not entry.plugin and name not in NEED_MORE]
positive = st.floats(1e-9, 1e9)
recipes = st.builds(
    lambda objective, dim, noise, steps, lr, seed: Recipe(objective=objective, seed=seed).with_settings(
        {"encoder.dim": dim, "pairing.noise": noise, "plan.steps": steps, "plan.lr": lr}
    ),
    st.sampled_from(names),
    st.integers(1, 10**6),
    positive,
    st.integers(1, 10**9),
    positive,
    st.integers(0, 2**62 - 1),
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


@pytest.mark.parametrize("facts", [TABLE, GREY, COLOUR], ids=["table", "grey", "colour"])
@pytest.mark.parametrize("objective", names)
def test_what_was_resolved_resolves_to_itself(objective: str, facts: Facts) -> None:
    """Spelled out, written and read again, every choice is the same, and so are the initial weights."""
    first = resolve(Recipe(objective=objective), facts)
    again = resolve(read(first.recipe.to_toml()), facts, own=True)
    assert again.recipe.as_dict() == first.recipe.as_dict()
    one, other = first.bind(), again.bind()
    for part, twin in ((one.encoder, other.encoder), (one.objective, other.objective)):
        assert all(map(torch.equal, part.state_dict().values(), twin.state_dict().values()))


@pytest.mark.parametrize("facts", [TABLE, GREY, COLOUR, WORLD], ids=["table", "grey", "colour", "world"])
@pytest.mark.parametrize("objective", names)
def test_every_objective_takes_a_step_or_says_why_not(objective: str, facts: Facts) -> None:
    entry = KINDS["objective"][objective].load()
    if facts.kind == "world" and (entry.scores or resolve(Recipe(objective=objective), TABLE).objective.needs.index):
        with pytest.raises(InputError, match="world:sphere4"):
            resolve(Recipe(objective=objective), facts)
        return
    bound = resolve(Recipe(objective=objective), facts).bind()
    if bound.pairing is None:
        return
    x = torch.rand(8, *facts.shape, generator=torch.Generator().manual_seed(0))
    views = dataclasses.replace(
        bound.pairing(x, bound.objective.needs, torch.Generator().manual_seed(1)), index=torch.arange(8)
    )
    bound.encoder.train()
    bound.objective(bound.encoder, views).total.backward()
    assert any(weight.grad is not None for weight in bound.encoder.parameters())


@pytest.mark.parametrize("energy", [name for name, entry in KINDS["energy"].items() if not entry.plugin])
@pytest.mark.parametrize("objective", ["infonce", "snl", "nce", "simclr", "triplet", "fisher"])
def test_objectives_with_every_energy(objective: str, energy: str) -> None:
    if energy == "asymmetric" and objective == "simclr":
        with pytest.raises(InputError, match="symmetric"):
            resolved(objective=objective, energy=energy)
        return
    found = resolved(objective=objective, energy=energy)
    assert KINDS["energy"].name_of(type(found.energy)) == energy


def test_published_names_fix_their_settings() -> None:
    jem = resolved(objective="jem").objective
    assert isinstance(jem, GEDI)
    assert set(jem.weights) == {"generative", "magnitude"}
    simclr = resolved(objective="simclr").objective
    assert isinstance(simclr, InfoNCE)
    assert simclr.candidates == "two-view"
    mocov2 = resolved(objective="mocov2")
    assert mocov2.head is not None
    assert mocov2.objective.energy.temperature == 0.2
    with pytest.raises(InputError, match="defined with the anisotropic energy"):
        resolved(objective="aninfonce", energy="cosine")
    with pytest.raises(InputError, match="has its own energy"):
        resolved(objective="vicreg", energy="cosine")


def test_the_defaults_suit_the_data() -> None:
    table, images, world = (resolve(Recipe(), facts) for facts in (TABLE, GREY, WORLD))
    assert isinstance(table.energy, Euclidean)
    assert isinstance(table.encoder, MLP)
    assert table.encoder.settings()["hidden"] == (12,)
    assert table.encoder.dim == 3
    assert isinstance(table.pairing, MaskAndNoise)
    mixed = resolve(Recipe(), TABLE.with_gaps())
    assert mixed.encoder.linear == "pca"
    assert isinstance(mixed.pairing, ResampledColumns)
    assert isinstance(images.energy, Cosine)
    assert isinstance(images.pairing, ImageAugmentation)
    assert images.objective.pair == "augmented"
    assert world.pairing is None
    assert isinstance(world.encoder, LatentEncoder)
    assert world.energy.temperature == 0.25
    assert resolve(Recipe(), Facts("world", (4,), 64, "anisotropic4")).called("objective") == "aninfonce"


def test_every_default_is_of_a_class_that_has_the_setting() -> None:
    """`defaults.py` fills in settings by capability: none of them may be unknown to the part it is for."""
    for facts in (TABLE, GREY, COLOUR, WORLD):
        for name in names:
            cls = KINDS["objective"].find(name).load()
            assert defaults.objective_settings(cls, facts, {}).keys() <= cls.declared().keys()


# Objects


def test_objects_are_parts() -> None:
    encoder, objective = nn.Linear(6, 2), InfoNCE(Cosine(0.3))
    made = resolve(Recipe(objective=objective, encoder=encoder, pairing=GaussianNoise(0.2)), TABLE)
    bound = made.bind()
    assert bound.encoder is not encoder
    assert torch.equal(bound.encoder.weight, encoder.weight)
    assert bound.objective is not objective
    assert made.recipe.as_dict()["objective"]["name"] == "infonce"
    assert made.recipe.as_dict()["energy"] == {"name": "cosine", "temperature": 0.3}
    assert made.recipe.as_dict()["encoder"] == {"object": "torch.nn.modules.linear:Linear"}


def test_a_file_cannot_make_an_object_and_says_who_can() -> None:
    written = resolve(Recipe(encoder=nn.Linear(6, 2)), TABLE).recipe.to_toml()
    with pytest.raises(InputError, match="name it again") as error:
        resolve(read(written), TABLE, own=True)
    assert "torch.nn.modules.linear:Linear" in str(error.value)
    handed = read(written).with_trusted(encoder=nn.Linear(6, 2))
    assert resolve(handed, TABLE, own=True).bind().encoder.out_features == 2


def test_a_file_never_decides_what_is_imported() -> None:
    text = '[encoder]\nname = "antigravity:geohash"\n'
    with pytest.raises(InputError, match="another package"):
        resolve(read(text), TABLE, own=True)
    with pytest.raises(InputError, match="cannot be imported"):
        resolve(Recipe(encoder="no.such.module:Net"), TABLE)


def test_a_class_by_its_path_gets_its_settings() -> None:
    made = resolve(
        Recipe(encoder="torch.nn:Linear").with_settings({"encoder.in_features": 6, "encoder.out_features": 2}), TABLE
    )
    assert made.bind().encoder.out_features == 2
    again = read(made.recipe.to_toml()).with_trusted(encoder="torch.nn:Linear")
    assert resolve(again, TABLE, own=True).bind().encoder.out_features == 2


@pytest.mark.parametrize("base", ["euclidean", "cosine"])
@pytest.mark.parametrize("by", ["predictor", "encoder"])
def test_an_asymmetric_energy_starts_as_its_base(by: str, base: str) -> None:
    energy = {"name": "asymmetric", "by": by, "base": base}
    bound = resolved(energy=energy).bind()
    plain = resolved(energy={"name": base}).bind()
    assert isinstance(bound.objective.energy, Asymmetric)
    x = torch.randn(9, 6, generator=torch.Generator().manual_seed(3))
    views = MaskAndNoise(0.5, 0.2)(x, Needs(), torch.Generator().manual_seed(4))
    assert bound.objective(bound.encoder, views).total.item() == pytest.approx(
        plain.objective(plain.encoder, views).total.item(), rel=1e-4
    )


def test_a_head_is_trained_and_left_out_of_the_representation() -> None:
    made = resolved(head="projection", objective="infonce")
    bound = made.bind()
    assert isinstance(bound.encoder, WithHead)
    assert made.recipe.as_dict()["head"]["name"] == "projection"


def test_the_seed_decides_the_initial_weights_whatever_the_objective() -> None:
    one, other, third = (
        resolved(seed, objective=name, encoder="mlp").bind() for seed, name in ((4, "snl"), (4, "vicreg"), (5, "snl"))
    )
    weights = [bound.encoder[0].weight for bound in (one, other, third)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


# Settings


def test_settings_are_reached_by_their_paths() -> None:
    changes = {
        "objective.candidates": "two-view",
        "energy.temperature": 0.3,
        "encoder.hidden": [5, 5],
        "pairing.preservation": 0.9,
        "plan.warmup": 0,
    }
    made = resolve(Recipe(energy="cosine").with_settings(changes), TABLE)
    assert made.objective.candidates == "two-view"
    assert made.energy.temperature == 0.3
    assert made.encoder.settings()["hidden"] == (5, 5)
    assert made.pairing.settings()["preservation"] == 0.9
    assert made.plan.warmup == 0


@pytest.mark.parametrize(
    ("facts", "settings"),
    [
        (TABLE, {"objective.pair": "augmented", "objective.anchor": "symmetric", "objective.group_size": 8}),
        (TABLE, {"pairing.preservation": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]}),
        (GREY, {"pairing.crop_scale": 0.3, "pairing.noise": 1.0, "pairing.noise_std": 0.2}),
        (COLOUR, {"pairing.jitter": 0.5, "pairing.brightness": 0.2}),
    ],
)
def test_what_the_papers_choose_can_be_said(facts: Facts, settings: dict[str, Any]) -> None:
    made = resolve(Recipe().with_settings(settings), facts)
    for path, value in settings.items():
        part, name = path.split(".")
        assert made.recipe.as_dict()[part][name] == value


@pytest.mark.parametrize(
    ("objective", "settings"),
    [
        ("nce", {"objective.prior": 0.3, "objective.bias": {"name": "network", "hidden": 7}}),
        ("spectral", {"objective.squared_radius": 3.0}),
        ("infonce", {"energy": {"name": "anisotropic", "initial": [1.0, 2.0, 3.0]}}),
        ("align-uniform", {}),
        ("gedi", {"objective.sampler.steps": 9, "objective.clusters": 3, "objective.prior": "learnt"}),
        ("simvae", {"objective.related": 4, "objective.likelihood.variance": 0.5}),
    ],
)
def test_settings_of_parts_within_parts(objective: str, settings: dict[str, Any]) -> None:
    energy = settings.pop("energy", None)
    made = resolve(Recipe(objective=objective, energy=energy).with_settings(settings), TABLE)
    told = made.recipe.as_dict()
    for path, value in settings.items():
        found: Any = told
        for name in path.split("."):
            found = found[name]
        assert found == value or (isinstance(value, dict) and value.items() <= found.items())


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: Recipe(objective="infonse"), ("infonce",)),
        (lambda: Recipe(energy="cosinus"), ("cosine",)),
        (lambda: Recipe(seed=-1), ("seed",)),
        (lambda: Recipe().with_settings({"objektive.pair": 1}), ("objective.pair",)),
        (lambda: Recipe().with_settings({"pair": 1}), ("'pair'", "objective")),
        (lambda: Recipe().with_settings({"objective.candidate": "batch"}), ("candidate", "'candidates'")),
        (lambda: Recipe().with_settings({"objective.queue": 9}), ("infonce", "queue", "its settings are")),
        (lambda: Recipe(energy="euclidean").with_settings({"energy.temperature": 0.1}), ("euclidean", "temperature")),
        (lambda: Recipe().with_settings({"plan.stepz": 9}), ("stepz", "'steps'")),
        (lambda: Recipe().with_settings({"plan.steps": "many"}), ("plan.steps", "'many'", "whole number")),
        (lambda: Recipe().with_settings({"objective.pair": "both"}), ("objective.pair", "original, augmented")),
        (lambda: Recipe().with_settings({"encoder.dim": 2.5}), ("encoder.dim", "2.5")),
        (lambda: Recipe(pairing="simclr-cifar"), ()),
        (lambda: Recipe(objective=SNL()).with_settings({"objective.pair": "augmented"}), ("object", "pair")),
        (lambda: Recipe(objective=SNL(), energy="cosine"), ("SNL", "leave energy out")),
        (lambda: Recipe(objective="vae", head="projection"), ("VAE", "head")),
        (
            lambda: Recipe(objective="vae").with_settings({"objective.likelihood": "bernoulli"}),
            ("bernoulli", "gaussian"),
        ),
        (lambda: Recipe(objective="fisher", pairing="scarf"), ("Fisher", "score")),
        (lambda: Recipe().with_settings({"objective.candidates": "given"}), ("InfoNCE", "hard-negatives")),
        (lambda: Recipe(pairing=HARD), ("does not use the negatives", "batch-and-given")),
        (lambda: Recipe(pairing=InTurn([ImageAugmentation()])), ("in-turn is for images", "table of 6 columns")),
        (lambda: Recipe(pairing=ImageAugmentation()), ("image is for images", "table of 6 columns")),
        (lambda: Recipe(encoder="resnet8"), ("resnet8 is for images", "table of 6 columns")),
        (lambda: Recipe(objective="latent-regression"), ("only a world knows",)),
        (lambda: Recipe().with_settings({"plan.foo": 1}), ("plan has no setting 'foo'; its settings are steps",)),
        (lambda: Recipe(encoder="mlp").with_settings({"plan.freeze": "typo"}), ("'typo'", "0, 1, 2")),
        (lambda: Recipe().with_settings({"plan.momentum": 0.5}), ("momentum", "sgd", "adam")),
        (lambda: Recipe().with_settings({"plan.freeze": True}), ("plan.freeze", "list of")),
        (lambda: Recipe().with_settings({"plan.steps": "none"}), ("plan.steps", "whole number")),
        (lambda: Recipe().with_settings({"plan.initial_weights.alignment": "x"}), ("alignment", "number")),
        (lambda: Recipe().with_settings({"encoder.hidden": "big"}), ("encoder.hidden", "list of whole numbers")),
        (lambda: Recipe().with_settings({"encoder.track_running_stats": False}), ("batch_norm",)),
        (lambda: Recipe().with_settings({"pairing.preservation": [0.1, 0.2]}), ("2 features", "6")),
        (lambda: Recipe(pairing="rotations"), ("2 features", "6")),
        (lambda: Recipe(encoder=nn.Linear(6, 2)).with_settings({"encoder.dim": 3}), ("dim is set by your encoder",)),
        (lambda: Recipe(encoder=MLP()).with_settings({"encoder.dim": 3}), ("pass dim to the constructor of MLP",)),
        (
            lambda: Recipe(objective="fisher", encoder="mlp").with_settings({"encoder.batch_norm": True}),
            ("batch normalisation (layer '1') mixes",),
        ),
        (lambda: Recipe(objective="simclr", energy="asymmetric"), ("symmetric",)),
        (lambda: Recipe(objective=SNL), ("objective SNL is a class", "SNL(…)")),
        (lambda: Recipe(objective=3), ("objective", "3")),
        (lambda: Recipe(encoder=nn.Linear(7, 2)), ("Linear", "[6]")),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence_that_names_the_part(make: Any, named: tuple[str, ...]) -> None:
    if not named:
        return
    with pytest.raises(InputError) as error:
        resolve(make(), TABLE).bind()
    assert_one_sentence(error.value, *named)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("seed = ", ("TOML",)),
        ("objectiv = 'snl'", ("objectiv", "objective")),
        ("objective = 3", ("objective", "3")),
        ('objective = "infonce"\nenergy = "euclidean"\ndim = 3\n', ("'dim'",)),  # the flat file of the old format
    ],
)
def test_bad_files_are_refused_in_a_sentence_that_names_the_file(text: str, named: tuple[str, ...]) -> None:
    with pytest.raises(InputError) as error:
        read(text)
    assert_one_sentence(error.value, "recipe.toml", *named)


@pytest.mark.parametrize(
    ("facts", "recipe", "setting", "found"),
    [
        (TABLE, Recipe(objective="snl"), "objective.bias=none", lambda made: type(made.objective.bias) is NoBias),
        (TABLE, Recipe(objective="snl"), "objective.bias=null", lambda made: type(made.objective.bias) is BiasNetwork),
        (TABLE, Recipe(), "plan.clip_norm=none", lambda made: made.plan.clip_norm is None),
        (TABLE, Recipe(), "plan.clip_norm=null", lambda made: made.plan.clip_norm is None),
        (
            COLOUR,
            Recipe(encoder="resnet18"),
            "encoder.normalisation=none",
            lambda made: made.encoder.normalisation == "none",
        ),
        (
            COLOUR,
            Recipe(objective="gedi"),
            "objective.sampler.clip=none",
            lambda made: made.objective.sampler.clip is None,
        ),
        (COLOUR, Recipe(pairing="simclr-cifar"), "pairing.flip=0", lambda made: made.pairing.strengths.flip == 0),
        (TABLE, Recipe(), "pairing.preservation=.5", lambda made: made.pairing.preservation == 0.5),
        (TABLE, Recipe(), "pairing.noise=1.,+.5,1e-1,1,1,1", lambda made: made.pairing.noise[1] == 0.5),
        (TABLE, Recipe(), "plan.lr=.001", lambda made: made.plan.lr == 0.001),
        (TABLE, Recipe(), "plan.steps=1_000", lambda made: made.plan.steps == 1000),
        (TABLE, Recipe(), "plan.steps=1e4", lambda made: made.plan.steps == 10_000),
        (
            TABLE,
            Recipe(),
            "plan.initial_weights.alignment=64",
            lambda made: made.plan.weights(0, {})["alignment"] == 64,
        ),
        (TABLE, Recipe(), "plan.freeze=0", lambda made: made.plan.freezes("0.weight")),
    ],
)
def test_what_the_command_line_says_is_meant_and_kept(facts: Facts, recipe: Recipe, setting: str, found: Any) -> None:
    """Also in the file that a run keeps, where what suits the data must not come back in its place."""
    made = resolve(recipe.with_settings(parsed([setting])), facts)
    assert found(made)
    again = resolve(read(made.recipe.to_toml()), facts, own=True)
    assert found(again)
    assert again.recipe.as_dict() == made.recipe.as_dict()


@pytest.mark.parametrize(
    ("facts", "recipe"),
    [
        (GREY, Recipe(encoder=MLP(dim=3))),
        (GREY, Recipe(objective=GEDI(sampler=SGLD(steps=2)))),
        (TABLE, Recipe(objective=SNL(Asymmetric(Cosine(0.3)), bias=BiasNetwork()))),
        (TABLE, Recipe(encoder=MLP(dim=3), objective=InfoNCE(Cosine()))),
    ],
)
def test_an_object_of_ours_is_the_same_from_a_file(facts: Facts, recipe: Recipe) -> None:
    """What it leaves open is not what suits the data, as it is of a part that was chosen by name."""
    made = resolve(recipe, facts)
    again = resolve(read(made.recipe.to_toml()), facts, own=True)
    assert repr(again.bind().objective) == repr(made.bind().objective)
    assert repr(again.bind().encoder) == repr(made.bind().encoder)
    assert again.recipe.as_dict() == made.recipe.as_dict()


def test_numbers_of_numpy_are_numbers() -> None:
    chosen = {
        "plan.steps": np.int64(3),
        "plan.lr": np.float32(0.5),
        "pairing.preservation": np.full(6, 0.5),
        "encoder.hidden": (np.int64(5),),
        "encoder.batch_norm": np.bool_(True),
    }
    made = resolve(Recipe(seed=np.int64(4)).with_settings(chosen), TABLE)
    told = read(made.recipe.to_toml()).as_dict()
    assert (told["seed"], told["plan"]["steps"], told["plan"]["lr"]) == (4, 3, 0.5)
    assert told["pairing"]["preservation"] == [0.5] * 6
    assert (told["encoder"]["hidden"], told["encoder"]["batch_norm"]) == ([5], True)


@pytest.mark.parametrize("kind", KINDS)
def test_a_description_is_the_whole_docstring_a_line_for_every_paragraph(kind: str) -> None:
    for name, entry in KINDS[kind].items():
        told, text = describe(kind, name).formula, (inspect.getdoc(entry.load()) or "").partition("\nSettings:")[0]
        assert told.split() == text.split()
    if kind == "objective":
        lines = describe(kind, "infonce").formula.splitlines()
        assert sum(line.startswith("- ") for line in lines) == 6
        assert lines[2] == "The candidates C_i are"


def test_the_plan_is_described() -> None:
    told = describe_plan().as_dict()
    assert told["settings"].keys() == {field.name for field in dataclasses.fields(TrainingPlan)}
    assert all(setting["about"] for setting in told["settings"].values())


def test_names_of_parts_are_told_from_files() -> None:
    assert Recipe.from_dict({"objective": "snl"}).objective == Named("snl")
    with pytest.raises(InputError, match="no recipe at"):
        Recipe.from_toml(Path("nowhere.toml"))


def test_every_name_leads_to_a_class_that_documents_its_settings() -> None:
    for registry in KINDS.values():
        for entry in registry.values():
            cls = entry.load()
            assert any(f"{base.__module__}:{base.__qualname__}" == registry.base for base in cls.__mro__), entry.name
            assert entry.about
            assert entry.preset.keys() <= {*cls.declared(), "strengths"} if hasattr(cls, "declared") else True


def test_a_plan_is_a_table(tmp_path):
    (tmp_path / "r.toml").write_text('plan = "adam"\n')
    with pytest.raises(InputError, match="plan must be a table of the recipe, not 'adam'"):
        Recipe.from_toml(tmp_path / "r.toml")
