"""The contract of parts: settings that are explained and make the part again, and parameters that only `bind` makes."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from probssl import encoders, energies, objectives, pairings
from probssl.encoders import MLP, ConvDecoder, ConvEncoder, ResidualDecoder, ResNet8, ResNet18, encode, seeded
from probssl.energies import Anisotropic, Asymmetric, Cosine, Energy, Euclidean, PNorm
from probssl.errors import InputError
from probssl.objectives import SNL, VAE, BiasNetwork, ConstrainedGEDI, Ensemble, InfoNCE, VICReg
from probssl.pairings import (
    CountableImageAugmentation,
    Each,
    GaussianNoise,
    HardNegatives,
    ImageAugmentation,
    InTurn,
    LinearMixture,
    MaskAndNoise,
    Views,
)
from probssl.parts.part import Context, Part, explanations

from ..objectives.members import COUNTED, ENERGIES, NEXT, OBJECTIVES, PAIRINGS, SAMPLED, SAMPLED_ROWS, Member, each
from ..training.parts import assert_one_sentence

DIM, FEATURES, ROWS = 4, 6, 12
IMAGES = (ConvEncoder, ResNet8, ResNet18, ConvDecoder, ResidualDecoder)

EXAMPLES: dict[type, Callable[[], Part]] = {
    ConstrainedGEDI: lambda: ConstrainedGEDI(NEXT),
    Ensemble: lambda: Ensemble([InfoNCE(Anisotropic()), SNL()]),
    CountableImageAugmentation: lambda: CountableImageAugmentation(flip=0.5, noise=1.0, noise_std=0.2),
    Each: lambda: Each(MaskAndNoise()),
    GaussianNoise: lambda: GaussianNoise(0.5),
    HardNegatives: lambda: HardNegatives(MaskAndNoise(), GaussianNoise(1.0)),
    InTurn: lambda: InTurn([MaskAndNoise(), GaussianNoise(0.5)]),
    LinearMixture: lambda: LinearMixture(torch.eye(2).repeat(3, 1, 1), 0.1),
}
"""Parts of classes that cannot do with defaults alone."""


def public_parts() -> list[type[Part]]:
    found = {
        value
        for module in (objectives, energies, encoders, pairings)
        for name, value in vars(module).items()
        if inspect.isclass(value) and issubclass(value, Part) and value is not Part and name[0] != "_"
    }
    return sorted((cls for cls in found if not inspect.isabstract(cls)), key=lambda cls: cls.__name__)


every_class = pytest.mark.parametrize("cls", public_parts(), ids=lambda cls: cls.__name__)
EVERY = [*ENERGIES, *PAIRINGS, *SAMPLED, *SAMPLED_ROWS, *COUNTED, *OBJECTIVES]
every_member = pytest.mark.parametrize("member", each(EVERY))


def example(cls: type[Part]) -> Any:
    return EXAMPLES.get(cls, cls)()


def context(cls: type[Part] | None = None) -> Context:
    """Everything that a part of this class can ask for."""
    shape = (1, 16, 16) if cls in IMAGES else (FEATURES,)
    encoder = seeded(7, lambda: MLP((5,)).bind(shape=shape, dim=DIM))
    sample = torch.randn(20, *shape, generator=torch.Generator().manual_seed(0))
    return Context(dim=DIM, shape=shape, rows=ROWS, batch_size=8, encoder=encoder, sample=sample)


def same(one: Any, other: Any) -> bool:
    """Whether two settings are: parts by class and settings, modules and tensors by their numbers."""
    if type(one) is not type(other):
        return False
    if isinstance(one, Part):
        return same(one.settings(), other.settings())
    if isinstance(one, Tensor):
        return torch.equal(one, other)
    if isinstance(one, nn.Module):
        return repr(one) == repr(other) and same(one.state_dict(), other.state_dict())
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(value, other[name]) for name, value in one.items())
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


# --- settings ---------------------------------------------------------------------------------------------------------


@every_class
def test_every_setting_is_explained(cls: type[Part]) -> None:
    for name, setting in cls.declared().items():
        assert setting.name == name
        assert setting.about.strip(), f"say under `Settings:` of {cls.__name__} what {name} is"
        assert "\n" not in setting.about
    assert cls.formula().strip()


@every_class
def test_nothing_is_explained_that_cannot_be_set(cls: type[Part]) -> None:
    if "__init__" not in vars(cls):
        return  # it explains what its subclasses have in common
    own = type(cls.__name__, (), {"__doc__": cls.__doc__})
    settable = set(cls.declared()) | set(inspect.signature(cls.__init__).parameters)
    assert explanations(own).keys() <= settable


@every_class
def test_declared_settings_are_those_of_a_part(cls: type[Part]) -> None:
    part, declared = example(cls), cls.declared()
    assert part.settings().keys() <= declared.keys()
    given = {name for name, value in part.settings().items() if not same(value, declared[name].default)}
    assert not given or cls in EXAMPLES, "a default is not the declared one"


@every_class
def test_settings_make_the_part_again(cls: type[Part]) -> None:
    part = example(cls)
    assert same(type(part)(**part.settings()), part)


@every_member
def test_settings_of_every_member_make_it_again(member: Member) -> None:
    part = member.build()
    again = type(part)(**part.settings())
    assert same(again, part)
    assert not again.bound


def test_settings_are_as_given_and_not_what_bind_makes_of_them() -> None:
    assert MLP().bind(shape=(3,), dim=2).settings() == MLP().settings()
    assert ConvEncoder(8).bind(shape=(1, 16, 16), dim=2).settings()["widths"] == 8
    energy = Anisotropic([1.0, 2.0], normalise=True)
    assert SNL(energy, pair="augmented").settings() == {"energy": energy, "bias": None, "pair": "augmented"}
    assert ImageAugmentation("gedi-mnist", flip=0.5).settings()["flip"] == 0.5


def test_a_class_of_anyone_is_a_part() -> None:
    class Scaled(Energy):
        """δ = s ‖a − b‖².

        Settings:
            scale: s, which is
                learnt.
        """

        def __init__(self, scale: float = 2.0) -> None:
            super().__init__()
            self.scale = scale

        def build(self, context: Context) -> None:
            self.factor = nn.Parameter(torch.tensor(self.scale))

        def paired(self, a: Tensor, b: Tensor) -> Tensor:
            return self.factor * (a - b).square().sum(-1)

        def pairwise(self, a: Tensor, b: Tensor) -> Tensor:
            return self.paired(a.unsqueeze(-2), b.unsqueeze(-3))

    class Twice(Scaled):
        """δ = 6 ‖a − b‖²."""

        def __init__(self) -> None:
            super().__init__(6.0)

    setting = Scaled.declared()["scale"]
    assert (setting.annotation, setting.default, setting.about) == (float, 2.0, "s, which is learnt.")
    assert Scaled(3.0).settings() == {"scale": 3.0}
    assert Twice().settings() == {}
    objective = InfoNCE(Scaled(3.0))
    assert objective.unbound
    assert [value.item() for value in objective.bind().parameters()] == [3.0]
    assert not list(objective.parameters())


# --- parameters -------------------------------------------------------------------------------------------------------


@every_class
def test_binding_leaves_the_part_as_it_was(cls: type[Part]) -> None:
    part, known = example(cls), context(cls)
    assert not list(part.parameters())
    before, weights = copy.deepcopy(vars(part)), copy.deepcopy(known.encoder.state_dict())
    made = part.bind(known)
    assert type(made) is cls
    assert made is not part
    assert made.bound
    assert not made.unbound
    assert not part.bound
    assert not list(part.parameters())
    assert same(before, vars(part))
    assert same(weights, known.encoder.state_dict())
    assert all(value.requires_grad for value in known.encoder.parameters())
    assert same(made.settings(), part.settings())


@every_class
def test_one_seed_makes_one_part(cls: type[Part]) -> None:
    part, known = example(cls), context(cls)
    torch.manual_seed(5)
    state = torch.get_rng_state()
    one, other = (seeded(3, lambda: part.bind(known)) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), state)
    assert same(one.state_dict(), other.state_dict())
    assert not {id(value) for value in one.parameters()} & {id(value) for value in other.parameters()}


@every_class
def test_what_is_bound_stays_so(cls: type[Part]) -> None:
    made = example(cls).bind(context(cls))
    again = made.bind()  # asks for nothing
    assert again is not made
    assert same(again.state_dict(), made.state_dict())


def test_parts_within_a_part_are_bound_with_it() -> None:
    bias = BiasNetwork(3)
    objective = SNL(Asymmetric(Anisotropic(2.0)), bias=bias)
    made = objective.bind(dim=DIM)
    assert made.energy.bound
    assert made.energy.base.bound
    assert made.bias.inner.weight.shape == (3, DIM)
    assert made.bias is not bias
    assert objective.bias is bias
    assert not list(objective.parameters())


def test_a_part_that_was_bound_before_keeps_its_weights() -> None:
    energy = Anisotropic([1.0, 2.0, 3.0, 4.0]).bind(dim=DIM)
    made = SNL(energy).bind(dim=DIM)
    assert torch.equal(made.energy.raw_concentration, energy.raw_concentration)
    assert made.energy.raw_concentration is not energy.raw_concentration


def test_networks_of_anyone_are_used_as_they_are() -> None:
    decoder = nn.Linear(DIM, FEATURES)
    made = VAE(decoder=decoder).bind(dim=DIM)
    assert torch.equal(made.decoder.weight, decoder.weight)
    encoder, x = nn.Linear(FEATURES, DIM), torch.randn(5, FEATURES)
    views = GaussianNoise(0.1)(x, InfoNCE().needs)
    for energy in (Asymmetric(network=nn.Linear(DIM, DIM)), Asymmetric(by="encoder", network=nn.Linear(FEATURES, DIM))):
        bound, unbound = InfoNCE(energy).bind(), InfoNCE(energy)
        assert unbound(encoder, views).numbers() == bound(encoder, views).numbers(), "a given network needs no binding"


# --- what is not bound ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "objective",
    [SNL(), SNL(Cosine()), InfoNCE(Anisotropic()), InfoNCE(Asymmetric()), Ensemble([InfoNCE(), SNL()]), VAE()],
    ids=["snl", "snl-cosine", "anisotropic", "asymmetric", "ensemble", "vae"],
)
def test_an_objective_without_its_parameters_says_so(objective: objectives.Objective) -> None:
    x = torch.randn(5, FEATURES)
    views = GaussianNoise(0.1)(x, objective.needs)
    assert objective.unbound
    with pytest.raises(InputError, match="bind") as error:
        objective(nn.Linear(FEATURES, DIM), views)
    assert type(objective).__name__ in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("objective", [InfoNCE(Cosine()), VICReg(), InfoNCE(Euclidean(), candidates="originals")])
def test_an_objective_without_parameters_needs_no_binding(objective: objectives.Objective) -> None:
    assert not objective.unbound
    views = GaussianNoise(0.1)(torch.randn(5, FEATURES), objective.needs)
    encoder = nn.Linear(FEATURES, DIM)
    assert objective(encoder, views).numbers() == objective.bind()(encoder, views).numbers()


@pytest.mark.parametrize(
    ("part", "known", "lacks"),
    [
        (SNL(), {}, "dim"),
        (MLP(), {"dim": 2}, "shape"),
        (MLP(), {"shape": (3,)}, "dim"),
        (Asymmetric(by="encoder"), {"dim": 2}, "encoder"),
        (objectives.InstanceDiscrimination(), {"dim": 2}, "rows"),
        (objectives.GEDI(), {"dim": 2}, "shape"),
        (objectives.MoCo(), {"dim": 2}, "encoder"),
        (VAE(), {"dim": 2, "shape": (3,)}, "encoder"),
    ],
)
def test_what_is_not_known_is_asked_for(part: Part, known: dict[str, Any], lacks: str) -> None:
    with pytest.raises(InputError, match=f"without {lacks}: give bind\\({lacks}=…\\)"):
        part.bind(**known)
    assert not part.bound


def test_keywords_change_a_context() -> None:
    known = Context(dim=3, shape=(5,))
    assert MLP(()).bind(known, dim=2).sizes == (5, 2)
    assert known.dim == 3
    twin = Context(encoder=MLP.of([3, 2])).twin()
    assert encode(twin, torch.zeros(1, 3)).shape == (1, 2)
    with pytest.raises(TypeError):
        MLP().bind(size=3)


def test_a_bias_by_its_name() -> None:
    assert type(SNL(bias="network").bind(dim=DIM).bias) is BiasNetwork
    assert SNL(bias="none").bind(dim=DIM).bias(torch.ones(3, DIM)).tolist() == [0, 0, 0]
    with pytest.raises(InputError, match="network, none"):
        SNL(bias="nothing")


def test_parts_within_a_part_by_their_names() -> None:
    assert InfoNCE("cosine").settings()["energy"].temperature == Cosine().temperature
    assert type(Asymmetric("pnorm").base) is PNorm
    assert [type(part) for part in Ensemble(["infonce", SNL()]).objectives] == [InfoNCE, SNL]
    assert ImageAugmentation("simclr-cifar").strengths.flip == 0.5, "names of strengths are no parts"

    class Own(InfoNCE):
        """InfoNCE with another default."""

        def __init__(self, energy: Energy | str = "euclidean") -> None:
            super().__init__(energy)

    assert type(Own().energy) is Euclidean


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: InfoNCE(Cosine), ("InfoNCE", "energy", "Cosine(…)")),
        (lambda: InfoNCE(0.1), ("InfoNCE", "energy", "0.1", "probssl parts energy")),
        (lambda: InfoNCE("cosin"), ("cosine",)),
        (lambda: Ensemble([InfoNCE]), ("Ensemble", "InfoNCE(…)")),
    ],
)
def test_what_is_no_part_is_refused_when_it_is_given(make: Callable[[], Any], named: tuple[str, ...]) -> None:
    with pytest.raises(InputError) as error:
        make()
    assert_one_sentence(error.value, *named)


class Bare(objectives.Objective):
    """L = 0."""

    def terms(self, encoder: nn.Module, views: Views) -> dict[str, Tensor]:
        return {"zero": encoder(views.x).sum() * 0}


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: InfoNCE(canditates="batch"), ("InfoNCE", "'candidates'")),
        (lambda: InfoNCE(queue=3), ("InfoNCE", "queue", "energy, candidates, anchor, pair, group_size")),
        (lambda: LinearMixture(), ("LinearMixture", "maps")),
        (lambda: InfoNCE(Cosine(), Cosine()), ("InfoNCE", "positional")),
        (lambda: Bare(), ("Bare", "super().__init__(energy, needs)")),
    ],
)
def test_a_wrong_call_names_the_class_and_what_it_takes(make: Callable[[], Any], named: tuple[str, ...]) -> None:
    with pytest.raises(TypeError) as error:
        make()
    assert_one_sentence(error.value, *named)


def test_a_part_shows_the_settings_that_are_not_usual() -> None:
    assert repr(MLP(hidden=(8,))) == "MLP(hidden=(8,))"
    assert repr(MLP((8,)).bind(shape=(3,), dim=2)).startswith("MLP(\n  hidden=(8,)\n  (0): Linear")
    assert repr(Cosine()) == "Cosine()"
    assert repr(Cosine(0.2)) == "Cosine(temperature=0.2)"
    assert repr(objectives.GEDI(clusters=4)).startswith("GEDI(\n  clusters=4\n")
    assert repr(MaskAndNoise(torch.tensor([0.5, 1.0]))) == "MaskAndNoise(preservation=[0.5, 1.0])"
    assert repr(ImageAugmentation(flip=0.5)) == "ImageAugmentation(flip=0.5)"


def test_a_bias_makes_one_number_of_an_embedding() -> None:
    encoder, x = nn.Linear(FEATURES, DIM), torch.randn(5, FEATURES)
    column, flat = nn.Linear(DIM, 1), nn.Sequential(nn.Linear(DIM, 1), nn.Flatten(0))
    flat[0] = column
    views = GaussianNoise(0.1)(x, SNL().needs)
    assert SNL(bias=column)(encoder, views).numbers() == SNL(bias=flat)(encoder, views).numbers()
    with pytest.raises(InputError, match=r"Linear makes \[5, 2\] of embeddings \[5, 4\]"):
        SNL(bias=nn.Linear(DIM, 2))(encoder, views)
