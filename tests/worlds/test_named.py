"""Worlds by name: what each is, how the dimension and the seed decide it, and what is refused."""

import pytest
import torch

from probssl.data.names import _WORLDS
from probssl.errors import InputError
from probssl.pairings import Needs
from probssl.parts.defaults import WORLD_ENERGIES
from probssl.worlds import named_world
from probssl.worlds.named import FAMILIES, parse_name


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_has_as_many_features_as_latents(family: str) -> None:
    world = named_world(f"{family}3")
    views = world.draw(50, Needs(), torch.Generator().manual_seed(1))
    assert views.latents is not None
    assert world.dim == 3
    assert views.x.shape == views.latents.shape == (50, 3)
    assert views.augmented.shape == (1, 50, 3)
    assert bool(world.marginal.space.contains(views.latents).all())
    torch.testing.assert_close(world.mixing(views.latents), views.x)


def test_catalogue_and_recipes_know_the_same_families() -> None:
    assert {parse_name(name)[0] for name in _WORLDS} == set(FAMILIES) == set(WORLD_ENERGIES)


@pytest.mark.parametrize("dim", [3, 10, 40])
def test_positives_on_the_sphere_are_as_near_in_every_dimension(dim: int) -> None:
    marginal, conditional = FAMILIES["sphere"](dim)
    generator = torch.Generator().manual_seed(2)
    z = marginal.sample(4000, generator)
    assert (conditional.sample(z, generator) * z).sum(1).mean().item() == pytest.approx(0.62, abs=0.06)


def test_anisotropic_in_ten_dimensions_is_the_published_one() -> None:
    _, conditional = FAMILIES["anisotropic"](10)
    assert conditional.concentrations.tolist() == [5.0] * 5 + [25.0] * 5


def test_the_seed_decides_the_mixing_and_nothing_else() -> None:
    one, two, other = (named_world("normal3", seed=seed) for seed in (1, 1, 2))
    assert one.mixing.weights.equal(two.mixing.weights)
    assert not one.mixing.weights.equal(other.mixing.weights)
    one.mixing.weights.zero_()
    assert not two.mixing.weights.equal(one.mixing.weights)
    assert named_world("normal3", seed=1).mixing.weights.equal(two.mixing.weights)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("sphre12", "did you mean 'sphere12'"),
        ("boxes", "did you mean 'box10'"),
        ("Sphere4", "did you mean 'sphere4'"),
        ("torus3", "sphere10, box10, normal10, anisotropic10"),
        ("", "sphere10, box10, normal10, anisotropic10"),
        ("10", "sphere10, box10, normal10, anisotropic10"),
        ("sphere", "dimension from 2 to 64"),
        ("box1", "dimension from 2 to 64"),
        ("normal65", "dimension from 2 to 64"),
        ("sphere-3", "did you mean 'sphere3'"),
        ("sphere10x", "there is no world"),
        ("sphere1.5", "there is no world"),
    ],
)
def test_other_names_are_refused_with_the_nearest(name: str, said: str) -> None:
    with pytest.raises(InputError, match=said) as raised:
        named_world(name)
    assert repr(name) in str(raised.value)
