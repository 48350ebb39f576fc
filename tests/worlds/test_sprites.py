"""Sprites: images against point-by-point geometry, transitions against enumerated probabilities, files without code."""

from __future__ import annotations

import itertools
import math
import pickle
import re
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch import Tensor

from probssl.errors import InputError
from probssl.worlds import sprites as module
from probssl.worlds.sprite_files import load_dsprites, load_kitti_masks
from probssl.worlds.sprite_transitions import LaplaceTransition, NaturalLikeTransition, Transition, UniformTransition
from probssl.worlds.sprites import AREA, Sprites, tile

SPRITES = Sprites()
PAGE = Path(__file__).parents[2] / "docs" / "sprites.md"


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# --- images -----------------------------------------------------------------------------------------------------------


def inside(values: list[float], column: float, row: float) -> bool:
    """Whether a point of the unit image, rows downwards, lies in the sprite: geometry, one point at a time."""
    shape, scale, angle, x, y = values
    right, up = column - (0.25 + x / 2), (0.25 + y / 2) - row
    u = (math.cos(angle) * right + math.sin(angle) * up) / scale / math.sqrt(AREA)
    v = (math.cos(angle) * up - math.sin(angle) * right) / scale / math.sqrt(AREA)  # the sprite has area 1 now
    if shape == 1:
        return max(abs(u), abs(v)) < 0.5
    if shape == 2:
        return (u / 2) ** 2 + v**2 < 1 / (2 * math.pi)
    side = 1 / math.sqrt(1 + math.pi / 4)  # a square of this side and a disc of this diameter
    square, discs = side**2, math.pi * side**2 / 4
    tip = square * side / math.sqrt(2) + discs * (side * 0.75 * math.sqrt(2) + side * math.sqrt(2) / (3 * math.pi))
    first, second = (u + v + tip) / math.sqrt(2), (v + tip - u) / math.sqrt(2)  # along the sides that meet in the tip
    if 0 < first < side and 0 < second < side:
        return True
    return any(
        math.hypot(first - a, second - b) < side / 2 for a, b in ((side, side / 2), (side / 2, side))
    )  # on the middle of the upper sides


def some_values(count: int, seed: int = 0) -> Tensor:
    values = SPRITES.draw(count, generator(seed), continuous=True)
    values[:, 0] = torch.arange(count) % 3 + 1
    return values


@pytest.mark.parametrize("size", [64, 31])
def test_binary_images_are_those_of_point_by_point_geometry(size: int) -> None:
    values = some_values(9)
    images = Sprites(size, smooth=False).render(values)
    assert images.dtype == torch.float32
    assert images.shape == (9, 1, size, size)
    for row, image in zip(values.tolist(), images[:, 0], strict=True):
        slow = [[inside(row, (c + 0.5) / size, (r + 0.5) / size) for c in range(size)] for r in range(size)]
        assert torch.equal(image, torch.tensor(slow).float())


def test_smooth_images_are_about_the_share_of_each_pixel_that_is_covered() -> None:
    size, parts = 24, 8
    values = some_values(6, seed=1)
    fine = Sprites(size * parts, smooth=False).render(values)
    covered = torch.nn.functional.avg_pool2d(fine, parts)
    error = (Sprites(size).render(values) - covered).abs()
    assert error.max() < 0.25  # at corners
    assert error[covered > 0].mean() < 0.025


def test_area_and_centre_of_mass_are_the_factors() -> None:
    values = some_values(300, seed=2)
    images = SPRITES.render(values)[:, 0].double()
    mass = images.sum((1, 2))
    places = torch.arange(64) + 0.5
    torch.testing.assert_close(mass / 64**2, AREA * values[:, 1] ** 2, rtol=0.02, atol=0)
    for factor, dim in ((3, 1), (4, 2)):
        centre = (images.sum(dim) * places).sum(1) / mass
        torch.testing.assert_close(centre, 64 * (0.25 + values[:, factor] / 2), rtol=0, atol=0.1)  # of a pixel


def test_the_mean_pixel_is_that_of_the_published_images() -> None:
    drawn = Sprites(smooth=False).render(SPRITES.draw(4000, generator()))
    assert drawn.mean().item() == pytest.approx(0.0425, rel=0.02)


def test_no_sprite_reaches_the_frame() -> None:
    grid = torch.tensor(list(itertools.product(range(3), [5], range(40), [0, 31], [0, 31])))
    images = SPRITES.render(grid)[:, 0]
    frame = torch.ones(64, 64, dtype=torch.bool)
    frame[1:-1, 1:-1] = False
    assert images[:, frame].max() == 0


@pytest.mark.parametrize("factor", [1, 2, 3, 4], ids=lambda factor: Sprites.names[factor])
def test_images_change_continuously_with_the_values(factor: int) -> None:
    values = some_values(60, seed=3)
    values[:, factor].clamp_(max=SPRITES.ranges[factor][1] - 0.01)
    images = SPRITES.render(values)
    for step in (1e-2, 1e-3, 1e-4):
        moved = values.clone()
        moved[:, factor] += step * (0.5 if factor == 1 else 1)
        change = (SPRITES.render(moved) - images).abs().amax((1, 2, 3))
        assert change.max() < 40 * step  # a step of 1 is 32 pixels, or at most 15 along the outline of a turned sprite
        assert change.min() > step


def test_orientation_turns_anticlockwise_and_repeats_as_documented() -> None:
    centre = [0.8, 0.0, 0.5, 0.5]
    values = torch.tensor([[shape, *centre] for shape in (1.0, 2.0, 3.0)], dtype=torch.float64)
    images = SPRITES.render(values)
    quarter = values.clone()
    quarter[:, 2] = math.pi / 2
    turned = SPRITES.render(quarter)
    torch.testing.assert_close(turned, images.rot90(1, (2, 3)), rtol=0, atol=1e-4)
    torch.testing.assert_close(turned[0], images[0], rtol=0, atol=1e-4)
    quarter[1, 2] = math.pi
    torch.testing.assert_close(SPRITES.render(quarter)[1], images[1], rtol=0, atol=1e-4)
    first, last = (SPRITES.render(torch.tensor([[2, 3, place, 4, 5]])) for place in (0, 39))
    torch.testing.assert_close(first, last, rtol=0, atol=1e-4)


@pytest.mark.parametrize("smooth", [True, False])
def test_an_image_depends_on_its_own_row_only(smooth: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    sprites, values = Sprites(20, smooth=smooth), some_values(50)
    images = sprites.render(values)
    order = torch.randperm(50, generator=generator())
    assert torch.equal(sprites.render(values[order]), images[order])
    monkeypatch.setattr(module, "_BLOCK", 1)
    assert torch.equal(sprites.render(values), images)
    assert sprites.render(values[:0]).shape == (0, 1, 20, 20)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_tiny_images(size: int) -> None:
    images = Sprites(size).render(some_values(30))
    assert images.shape == (30, 1, size, size)
    assert bool(((images >= 0) & (images <= 1)).all())


def test_tile_puts_images_row_by_row() -> None:
    images = torch.arange(5.0)[:, None, None, None].expand(5, 1, 2, 3)
    sheet = tile(images, 3, gap=1)
    assert sheet.shape == (2 * 3 + 1, 3 * 4 + 1)
    assert sheet[1:3, 1:4].unique().tolist() == [0]
    assert sheet[1:3, 9:12].unique().tolist() == [2]
    assert sheet[4:6, 5:8].unique().tolist() == [4]
    assert sheet[::3].unique().tolist() == [0.5]


# --- factors ----------------------------------------------------------------------------------------------------------


def test_indices_values_and_rows_agree() -> None:
    assert len(SPRITES) == 737_280
    rows = torch.randint(len(SPRITES), (500,), generator=generator())
    rows[:2] = torch.tensor([0, len(SPRITES) - 1])
    indices = SPRITES.at_rows(rows)
    assert torch.equal(indices, torch.from_numpy(np.stack(np.unravel_index(rows.numpy(), SPRITES.sizes), 1)))
    assert torch.equal(SPRITES.rows(indices), rows)
    grids = [np.linspace(low, high, size) for (low, high), size in zip(SPRITES.ranges, SPRITES.sizes, strict=True)]
    values = SPRITES.values(indices)
    for factor, grid in enumerate(grids):
        np.testing.assert_allclose(values[:, factor], grid[indices[:, factor]], rtol=1e-15)
    for given in (values, values.float(), indices):
        assert torch.equal(SPRITES.indices(given), indices)
    assert torch.equal(Sprites(16).render(indices), Sprites(16).render(values))


@pytest.mark.parametrize("factor", range(5), ids=Sprites.names)
def test_draws_are_uniform(factor: int) -> None:
    size, (low, high) = SPRITES.sizes[factor], SPRITES.ranges[factor]
    drawn = SPRITES.draw(20_000, generator(1))[:, factor]
    assert stats.chisquare(np.bincount(drawn, minlength=size)).pvalue > 1e-3
    values = SPRITES.draw(20_000, generator(1), continuous=True)[:, factor]
    if factor == 0:
        assert stats.chisquare(np.unique(values, return_counts=True)[1]).pvalue > 1e-3
    else:
        assert stats.kstest(values.numpy(), stats.uniform(low, high - low).cdf).pvalue > 1e-3


REFUSED_FACTORS = [
    (torch.zeros(3), "factors of sprites are"),
    (torch.zeros(3, 4), "factors of sprites are"),
    (torch.tensor([[0, 0, 40, 0, 0]]), "index 40 for orientation, which runs from 0 to 39"),
    (torch.tensor([[0, -1, 0, 0, 0]]), "index -1 for scale"),
    (torch.tensor([[1, 0.7, 0, 0, 1.2]]), "value 1.2 for y, which runs from 0 to 1"),
    (torch.tensor([[1, math.nan, 0, 0, 0]]), "value nan for scale"),
    (torch.tensor([[1.5, 0.7, 0, 0, 0]]), "square, ellipse and heart"),
]


@pytest.mark.parametrize(("factors", "message"), REFUSED_FACTORS)
def test_factors_off_the_grid_are_refused(factors: Tensor, message: str) -> None:
    with pytest.raises(InputError, match=message):
        SPRITES.render(factors)


def test_other_refusals() -> None:
    with pytest.raises(InputError, match="at least one pixel"):
        Sprites(0)
    with pytest.raises(InputError, match="from 0 to 737,279"):
        SPRITES.at_rows(torch.tensor([737_280]))


# --- transitions ------------------------------------------------------------------------------------------------------

SIZES = (3, 2, 4)


def uniform_probability(before: tuple[int, ...], after: tuple[int, ...], counts: tuple[int, ...]) -> float:
    """By going through every number of factors, every choice of them, and every choice of other values."""
    total = 0.0
    for k in counts:
        choices = list(itertools.combinations(range(len(SIZES)), k))
        for chosen in choices:
            options = [
                [value for value in range(SIZES[i]) if value != before[i]] if i in chosen else [before[i]]
                for i in range(len(SIZES))
            ]
            reached = list(itertools.product(*options))
            total += reached.count(after) / len(reached) / len(choices) / len(counts)
    return total


def laplace_probability(
    before: tuple[int, ...], after: tuple[int, ...], decay: list[float], fixed: tuple[int, ...]
) -> float:
    """By rejection: the weight of this pair over that of all pairs with a change."""

    def weight(there: tuple[int, ...]) -> float:
        moves = [abs(a - b) for a, b in zip(before, there, strict=True)]
        if sum(moves) == 0 or any(moves[i] for i in fixed):
            return 0.0
        return math.exp(-sum(d * m for d, m in zip(decay, moves, strict=True)))

    return weight(after) / sum(weight(there) for there in itertools.product(*map(range, SIZES)))


LOGARITHMS = [1 / math.log(size) for size in SIZES]
GRID_TRANSITIONS = {
    "uniform": (UniformTransition(SIZES), lambda b, a: uniform_probability(b, a, (1, 2))),
    "one factor": (UniformTransition(SIZES, changing=1), lambda b, a: uniform_probability(b, a, (1,))),
    "all factors": (UniformTransition(SIZES, changing=3), lambda b, a: uniform_probability(b, a, (3,))),
    "Laplace": (LaplaceTransition(SIZES), lambda b, a: laplace_probability(b, a, LOGARITHMS, (0,))),
    "all move": (LaplaceTransition(SIZES, fixed=()), lambda b, a: laplace_probability(b, a, LOGARITHMS, ())),
    "two fixed": (LaplaceTransition(SIZES, fixed=(2, 0)), lambda b, a: laplace_probability(b, a, LOGARITHMS, (0, 2))),
    "flat": (
        LaplaceTransition(SIZES, decay=[0, 0, 0], fixed=()),
        lambda b, a: laplace_probability(b, a, [0, 0, 0], ()),
    ),
    "steep": (
        LaplaceTransition(SIZES, decay=[50, 50.5, 51], fixed=()),
        lambda b, a: laplace_probability(b, a, [50, 50.5, 51], ()),
    ),
}
each_grid_transition = pytest.mark.parametrize("name", GRID_TRANSITIONS)


@each_grid_transition
@pytest.mark.parametrize("before", [(0, 0, 0), (1, 1, 2)], ids=str)
def test_transitions_have_the_probabilities_they_say(name: str, before: tuple[int, ...]) -> None:
    transition, reference = GRID_TRANSITIONS[name]
    everywhere = list(itertools.product(*map(range, SIZES)))
    exact = np.array([reference(before, after) for after in everywhere])
    start = torch.tensor([before])
    said = transition.log_prob(torch.tensor(everywhere), start.expand(len(everywhere), -1)).exp()
    np.testing.assert_allclose(said, exact, rtol=1e-10)
    assert said.sum().item() == pytest.approx(1, abs=1e-12)
    count = 20_000
    drawn = transition.sample(start.expand(count, -1), generator(7))
    places = np.ravel_multi_index(tuple(drawn.T.numpy()), SIZES)
    seen = np.bincount(places, minlength=len(everywhere))
    assert seen[exact == 0].sum() == 0
    often = exact * count > 5
    observed, expected = seen[often], exact[often] * count
    observed, expected = np.append(observed, count - observed.sum()), np.append(expected, count - expected.sum())
    kept = expected > 1e-6
    assert observed[~kept].sum() == 0
    if kept.sum() > 1:
        assert stats.chisquare(observed[kept], expected[kept] * count / expected[kept].sum()).pvalue > 1e-3


TRANSITIONS = [UniformTransition(), LaplaceTransition(), NaturalLikeTransition()]
each_transition = pytest.mark.parametrize("transition", TRANSITIONS, ids=lambda transition: type(transition).__name__)


def starts(transition: Transition, count: int) -> Tensor:
    return SPRITES.draw(count, generator(), continuous=isinstance(transition, NaturalLikeTransition))


@each_transition
def test_every_transition_of_sprites(transition: Transition) -> None:
    before = starts(transition, 2000)
    after = transition.sample(before, generator(1))
    assert after.dtype == before.dtype
    assert torch.equal(after, transition.sample(before, generator(1)))
    assert not torch.equal(after, transition.sample(before, generator(2)))
    assert bool((after != before).any(1).all())
    assert bool(transition.log_prob(after, before).isfinite().all())
    assert bool((transition.log_prob(before[1:], before[:-1]) < 0).any())
    assert SPRITES.render(after).shape == (2000, 1, 64, 64)
    assert transition.sample(before[:0], generator()).shape == (0, 5)


def test_uniform_transitions_keep_a_factor_and_laplace_ones_the_shape() -> None:
    before = starts(UniformTransition(), 2000)
    changed = UniformTransition().sample(before, generator()) != before
    assert sorted(changed.sum(1).unique().tolist()) == [1, 2, 3, 4]
    assert torch.equal(LaplaceTransition().sample(before, generator())[:, 0], before[:, 0])


def way_density(start: float, low: float, high: float, width: float):
    """exp(−√(|t − start| / width)) over [low, high], normalised by quadrature."""
    total, _ = integrate.quad(lambda t: math.exp(-math.sqrt(abs(t - start) / width)), low, high, points=[start])
    return lambda t: math.exp(-math.sqrt(abs(t - start) / width)) / total


@pytest.mark.parametrize("start", [[2, 0.8, 1.0, 0.4, 0.6], [1, 0.5, 0.0, 1.0, 0.001]], ids=["inside", "at borders"])
def test_natural_like_transitions_have_the_density_they_say(start: list[float]) -> None:
    widths = (0.02, 0.05, 0.4)
    transition = NaturalLikeTransition(widths)
    before = torch.tensor([start], dtype=torch.float64).expand(4000, -1)
    after = transition.sample(before, generator(3))
    said = transition.log_prob(after[:20], before[:20])
    slow = torch.zeros(20, dtype=torch.float64)
    for factor, width in zip((1, 3, 4), widths, strict=True):
        low, high = SPRITES.ranges[factor]
        density = way_density(start[factor], low, high, width)
        slow += torch.tensor([math.log(density(t)) for t in after[:20, factor].tolist()], dtype=torch.float64)
        grid = np.linspace(low, high, 4001)
        heights = np.array([density(t) for t in grid])
        below = np.append(0, np.cumsum((heights[1:] + heights[:-1]) / 2 * np.diff(grid)))
        drawn = after[:, factor].numpy()
        assert drawn.min() >= low - 1e-12
        assert drawn.max() <= high + 1e-12
        assert stats.kstest(drawn, lambda t, g=grid, b=below: np.interp(t, g, b / b[-1])).pvalue > 1e-3
    torch.testing.assert_close(said, slow, rtol=1e-6, atol=1e-6)
    assert torch.equal(after[:, [0, 2]], before[:, [0, 2]])
    turned = after.clone()
    turned[:, 2] += 0.1
    assert bool((transition.log_prob(turned, before) == -math.inf).all())


def test_natural_like_moves_are_small_with_occasional_jumps() -> None:
    before = torch.tensor([[1, 0.75, 0, 0.5, 0.5]], dtype=torch.float64).expand(100_000, -1)
    moved = (NaturalLikeTransition((1e-4, 1e-4, 1e-4)).sample(before, generator()) - before)[:, 3]
    assert moved.abs().median().item() == pytest.approx(1e-4 * stats.gamma(2).median() ** 2, rel=0.02)
    assert stats.kurtosis(moved.numpy(), fisher=False) == pytest.approx(math.gamma(10) / math.gamma(6) ** 2, rel=0.15)


REFUSED_TRANSITIONS = [
    (lambda: UniformTransition((3, 1)), "two values or more"),
    (lambda: UniformTransition((3, 4), changing=3), "can change, not 3"),
    (lambda: LaplaceTransition((3, 4), decay=[1.0]), "2 decays"),
    (lambda: LaplaceTransition((3, 4), decay=[1.0, -1.0]), "2 decays"),
    (lambda: LaplaceTransition((3, 4), fixed=(0, 1)), "not all of them"),
    (lambda: LaplaceTransition((3, 4), fixed=(2,)), "some of 0 to 1"),
    (lambda: NaturalLikeTransition((0.1, 0.1)), "three positive"),
    (lambda: NaturalLikeTransition().sample(torch.zeros(1, 5, dtype=torch.long)), "moves values"),
    (lambda: UniformTransition().sample(torch.ones(1, 5)), "moves indices"),
    (lambda: LaplaceTransition().sample(torch.ones(1, 4, dtype=torch.long)), "are \\[n, 5\\]"),
    (lambda: LaplaceTransition().sample(torch.tensor([[3, 0, 0, 0, 0]])), "run from 0"),
]


@pytest.mark.parametrize(("make", "message"), REFUSED_TRANSITIONS)
def test_transitions_refuse_what_they_cannot_use(make, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


# --- published files --------------------------------------------------------------------------------------------------


class Trap:
    """Pickles to a call of `open`, which leaves a file behind if it is ever carried out."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def write_dsprites(path: Path, rows: Tensor, **replaced: np.ndarray) -> np.ndarray:
    """A file of the published layout with these rows of it, and metadata that must not be unpickled; the images."""
    indices = SPRITES.at_rows(rows)
    white = torch.zeros(len(rows), 1)
    images = Sprites(smooth=False).render(indices)[:, 0].numpy().astype(np.uint8)
    arrays = {
        "metadata": np.array(Trap(path.with_name("trapped")), dtype=object),
        "imgs": images,
        "latents_classes": torch.cat([white.long(), indices], 1).numpy(),
        "latents_values": torch.cat([white + 1, SPRITES.values(indices)], 1).numpy(),
    }
    np.savez_compressed(path, **(arrays | replaced))
    return images


def test_dsprites_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("probssl.worlds.sprite_files._ROWS", 7)  # so that several pieces are read
    rows = torch.randperm(len(SPRITES), generator=generator())[:40]
    images = write_dsprites(tmp_path / "d.npz", rows)
    published = load_dsprites(tmp_path / "d.npz")
    assert not (tmp_path / "trapped").exists()
    assert len(published) == 40
    assert published.pixels.packed.nbytes == 40 * 512
    assert torch.equal(published.factors, SPRITES.at_rows(rows))
    chosen = torch.tensor([3, 0, 39, 3])
    assert torch.equal(published.images(chosen), torch.from_numpy(images).float().unsqueeze(1)[chosen])
    drawn = published.draw(25, generator())
    assert torch.equal(published.render(drawn), Sprites(smooth=False).render(drawn))
    absent = SPRITES.at_rows((rows[:1] + 1) % len(SPRITES))
    for call in (
        lambda: published.images(torch.tensor([40])),
        lambda: published.render(absent),
        lambda: published.render(SPRITES.values(drawn)),
    ):
        with pytest.raises(InputError):
            call()


DAMAGED_SPRITES = [
    ({"imgs": np.full((4, 64, 64), 255, np.uint8)}, "neither 0 nor 1"),
    ({"imgs": np.zeros((4, 64, 64))}, "as bytes"),
    ({"imgs": np.zeros((3, 64, 64), np.uint8)}, "for each of its 3 images"),
    ({"latents_values": np.zeros((4, 6))}, "not those of its classes"),
    ({"latents_classes": np.full((4, 6), 50)}, "index 50 for shape"),
]


@pytest.mark.parametrize(("replaced", "message"), DAMAGED_SPRITES)
def test_other_files_are_not_taken_for_dsprites(tmp_path: Path, replaced: dict, message: str) -> None:
    write_dsprites(tmp_path / "d.npz", torch.arange(4), **replaced)
    with pytest.raises(InputError, match=message):
        load_dsprites(tmp_path / "d.npz")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for load in (load_dsprites, load_kitti_masks):
        with pytest.raises(InputError, match="does not exist"):
            load(tmp_path / "absent")
        (tmp_path / "text").write_text("no such file as this")
        with pytest.raises(InputError, match="text cannot be read"):
            load(tmp_path / "text")
    np.savez(tmp_path / "other.npz", x=np.zeros(3))
    with pytest.raises(InputError, match=r"imgs\.npy"):
        load_dsprites(tmp_path / "other.npz")


def kitti(seed: int = 0) -> dict[str, list[np.ndarray]]:
    rng = np.random.default_rng(seed)
    masks = [rng.random((length, 64, 64)) < 0.1 for length in (2, 5, 3)]
    masks[1] = np.asfortranarray(masks[1])
    latents = [rng.random((len(mask), 3)).astype(np.float32) for mask in masks]
    return {"pedestrians": masks, "pedestrians_latents": latents}


@pytest.mark.parametrize("protocol", [3, 4, 5])
@pytest.mark.parametrize("core", ["numpy.core", "numpy._core"])
def test_kitti_file(tmp_path: Path, protocol: int, core: str) -> None:
    written = kitti()
    content = pickle.dumps(written, protocol=protocol)
    if protocol == 3:  # the published file says numpy.core; names in protocol 3 have no length, so they can be changed
        content = re.sub(rb"numpy\._?core", core.encode(), content)
    (tmp_path / "k.pickle").write_bytes(content)
    masks = load_kitti_masks(tmp_path / "k.pickle")
    frames = torch.from_numpy(np.concatenate(written["pedestrians"])).float().unsqueeze(1)
    assert torch.equal(masks.images(torch.arange(10)), frames)
    assert torch.equal(masks.latents, torch.from_numpy(np.concatenate(written["pedestrians_latents"])))
    assert masks.last.tolist() == [1, 1, 6, 6, 6, 6, 6, 9, 9, 9]


@pytest.mark.parametrize("separation", [1, 3])
def test_pairs_of_frames(tmp_path: Path, separation: int) -> None:
    (tmp_path / "k.pickle").write_bytes(pickle.dumps(kitti()))
    masks = load_kitti_masks(tmp_path / "k.pickle")
    first, second = masks.draw_pairs(21_000, generator(), separation=separation)
    exact = np.zeros((10, 10))
    for start in (0, 2, 3, 4, 5, 7, 8):  # all but the last of each sequence
        for step in range(1, separation + 1):
            exact[start, min(start + step, masks.last[start])] += 1 / 7 / separation
    seen = np.zeros((10, 10))
    np.add.at(seen, (first.numpy(), second.numpy()), 1)
    assert seen[exact == 0].sum() == 0
    assert stats.chisquare(seen[exact > 0], 21_000 * exact[exact > 0]).pvalue > 1e-3
    with pytest.raises(InputError, match="1 or more apart"):
        masks.draw_pairs(1, separation=0)


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("where", ["alone", "in the dictionary", "in an array"])
def test_pickles_run_no_code(tmp_path: Path, protocol: int, where: str) -> None:
    trap = Trap(tmp_path / "trapped")
    content = kitti()
    if where == "in the dictionary":
        content["pedestrians"].append(trap)  # type: ignore[arg-type]
    elif where == "in an array":
        content["pedestrians"] = [np.array([trap])]
    (tmp_path / "k.pickle").write_bytes(pickle.dumps(trap if where == "alone" else content, protocol=protocol))
    with pytest.raises(InputError, match=r"k\.pickle cannot be read: it (asks for|holds an array)"):
        load_kitti_masks(tmp_path / "k.pickle")
    assert not (tmp_path / "trapped").exists()


def test_damaged_pickles_are_refused_in_one_sentence(tmp_path: Path) -> None:
    content = kitti()
    content["pedestrians"] = [mask[:, :4, :4] for mask in content["pedestrians"]]
    whole = pickle.dumps(content, protocol=4)
    rng = np.random.default_rng(0)
    for _ in range(300):
        damaged = bytearray(whole[: rng.integers(1, len(whole))] if rng.random() < 0.3 else whole)
        damaged[rng.integers(len(damaged))] = rng.integers(256)
        (tmp_path / "k.pickle").write_bytes(damaged)
        try:
            load_kitti_masks(tmp_path / "k.pickle")
        except InputError as error:
            assert "\n" not in str(error)  # noqa: PT017


OTHER_PICKLES = [
    ([1, 2], "must hold a dictionary"),
    ({"pedestrians": [], "pedestrians_latents": []}, "a list of arrays under pedestrians"),
    (kitti() | {"pedestrians_latents": [np.zeros((2, 3))]}, "three latents for each"),
    (kitti() | {"pedestrians": [np.zeros((2, 64, 64))] * 3}, "boolean masks"),
    (
        {"pedestrians": [np.zeros((1, 8, 8), bool)], "pedestrians_latents": [np.zeros((1, 3))]},
        "two frames or more",
    ),
]


@pytest.mark.parametrize(("content", "message"), OTHER_PICKLES)
def test_other_pickles_are_not_taken_for_kitti_masks(tmp_path: Path, content: object, message: str) -> None:
    (tmp_path / "k.pickle").write_bytes(pickle.dumps(content))
    with pytest.raises(InputError, match=message):
        load_kitti_masks(tmp_path / "k.pickle")


# --- the page ---------------------------------------------------------------------------------------------------------


def test_the_page_runs_and_draws_its_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = PAGE.read_text(encoding="utf-8")
    (tmp_path / "docs" / "images").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    write_dsprites(tmp_path / "dsprites.npz", torch.arange(20))
    (tmp_path / "kitti_peds_v2.pickle").write_bytes(pickle.dumps(kitti()))
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL):
        exec(compile(block, "sprites.md", "exec"), names)
    pictures = re.findall(r"!\[.*?\]\((images/\S+\.png)\)", page)
    assert len(pictures) == 2
    for picture in pictures:
        drawn, kept = (matplotlib.image.imread(folder / picture) for folder in (tmp_path / "docs", PAGE.parent))
        np.testing.assert_allclose(drawn, kept, atol=0.02)
