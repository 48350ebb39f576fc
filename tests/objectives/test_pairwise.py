"""Sums over all pairs: fused equals plain in value, gradient and second gradient, however it is computed."""

from __future__ import annotations

import itertools
import typing

import pytest
import torch
from torch import Tensor, nn

from probssl import kernels
from probssl.energies import Anisotropic, Cosine, Dot, Energy, Euclidean, PNorm
from probssl.errors import InputError
from probssl.objectives import InfoNCE, Objective, pairwise
from probssl.objectives.pairwise import FusedTotal, Kind, PairLogits, blocked_sums, plain_total
from probssl.pairings import Views
from tests.objectives.members import normal
from tests.variants import every_variant, use

KINDS: tuple[Kind, ...] = typing.get_args(Kind)
SIZES = [(7, 7, 3), (5, 9, 17), (9, 5, 2), (33, 20, 34), (64, 64, 130), (2, 2, 1)]


def skip_unless_defined(kind: Kind, n: int, m: int) -> None:
    if kind == "cross-entropy" and n > m:
        pytest.skip("a cross-entropy needs a positive for every row")


def factors(n: int, m: int, p: int, *batch: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    left, right = normal(*batch, n, p, seed=1, dtype=dtype), normal(*batch, m, p, seed=2, dtype=dtype)
    return left / p**0.5, right  # sums of exponentials stay moderate


def with_gradients(total: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    return [total.detach(), *torch.autograd.grad(total.sum(), inputs)]


def assert_close(found: list[Tensor], expected: list[Tensor], tolerance: float) -> None:
    for a, b in zip(found, expected, strict=True):
        scale = b.abs().max().clamp_min(1e-6)
        assert ((a.double() - b.double()).abs().max() / scale).item() < tolerance


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "m", "p"), SIZES)
def test_fused_is_plain(kind: Kind, n: int, m: int, p: int) -> None:
    skip_unless_defined(kind, n, m)
    inputs = [factor.requires_grad_() for factor in factors(n, m, p)]
    fused = with_gradients(FusedTotal.apply(*inputs, None, kind, True)[0], inputs)
    plain = with_gradients(plain_total(inputs[0] @ inputs[1].mT, kind), inputs)
    assert_close(fused, plain, 1e-12)


@pytest.mark.parametrize("others", [False, True])
def test_an_extra_candidate(others: bool) -> None:
    left, right = factors(6, 8, 3)
    inputs = [left.requires_grad_(), right.requires_grad_(), normal(6, seed=3).requires_grad_()]
    kind: Kind = "log-sum-exp-others" if others else "log-sum-exp"
    fused = with_gradients(FusedTotal.apply(*inputs, kind, True)[0], inputs)
    assert_close(fused, with_gradients(plain_total(left @ right.mT, kind, inputs[2]), inputs), 1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("block", [1, 40, 200, 10**6])
def test_blocks_change_nothing(kind: Kind, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    left, right = factors(130, 150, 3, 4)
    whole = blocked_sums(left, right, None, kind, True)
    monkeypatch.setattr(pairwise, "BLOCK", block)
    for one, other in zip(blocked_sums(left, right, None, kind, True), whole, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("p", [1.0, 1.5, 3.0])
@pytest.mark.parametrize("changed", [False, True])
def test_strips_of_an_energy_without_factors(
    kind: Kind, p: float, changed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found() -> list[Tensor]:
        inputs = [normal(11, 3, seed=1), normal(11, 3, seed=2), normal(11, seed=3), normal(11, seed=4)]
        a, b, shift, extra = (tensor.requires_grad_() for tensor in inputs)
        pairs = PairLogits.of(PNorm(p), a, b)
        if changed:
            pairs = pairs.plus_columns(shift).transposed()
        total = pairs._total(kind, extra if kind.startswith("log") else None) + pairs.diagonal().square().sum()
        used = [a, b, *([shift] if changed else []), *([extra] if kind.startswith("log") else [])]
        return with_gradients(total, used)

    whole = found()
    monkeypatch.setattr(pairwise, "LARGE", 1)
    monkeypatch.setattr(pairwise, "BLOCK", 100)  # three rows a strip, nine for p = 1
    assert PairLogits.of(PNorm(p), normal(3, 2), normal(3, 2)).strips is not None
    assert_close(found(), whole, 1e-12)


@pytest.mark.skipif(kernels.library() is None, reason="there is no C compiler")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "m", "p"), SIZES)
def test_the_kernel_is_plain(kind: Kind, n: int, m: int, p: int) -> None:
    skip_unless_defined(kind, n, m)
    left, right = factors(n, m, p, 3)
    extra = normal(3, n, seed=3) if kind.startswith("log") else None
    single = [None if t is None else t.float() for t in (left, right, extra)]
    found = kernels.pair_sums(single[0], single[1], single[2], kind, True)
    inputs = [t.float().double().requires_grad_() for t in (left, right, extra) if t is not None]
    expected = with_gradients(
        plain_total(inputs[0] @ inputs[1].mT, kind, inputs[2] if extra is not None else None), inputs
    )
    assert_close(list(found)[: len(expected)], expected, 1e-5)


@every_variant
@pytest.mark.parametrize("kind", KINDS)
def test_every_variant_is_plain(compiler: str, variant: str, kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    assert use(monkeypatch, compiler, variant).kernel_variant().decode() == variant
    for n, m, p in SIZES:
        if kind != "cross-entropy" or n <= m:
            test_the_kernel_is_plain(kind, n, m, p)
    test_the_kernel_far_out(kind)


@pytest.mark.skipif(kernels.library() is None, reason="there is no C compiler")
@pytest.mark.parametrize("kind", KINDS)
def test_the_kernel_far_out(kind: Kind) -> None:
    """Logits from −1e4 to 1e4: overflow, underflow and the tangent of the exponential."""
    left = torch.tensor([[[-1e4], [-90.0], [-1.0], [0.0], [29.0], [31.0], [300.0], [1e4]]])
    right = torch.ones(1, 8, 1)
    found = kernels.pair_sums(left, right, None, kind, True)
    inputs = [left.double().requires_grad_(), right.double().requires_grad_()]
    assert_close(list(found)[:3], with_gradients(plain_total(inputs[0] @ inputs[1].mT, kind), inputs), 1e-5)


@pytest.mark.skipif(kernels.library() is None, reason="there is no C compiler")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_the_kernel_hides_nothing(kind: Kind, bad: float) -> None:
    left, right = factors(5, 5, 3, 2, dtype=torch.float32)
    left[1, 2, 0] = bad
    total, *_ = kernels.pair_sums(left, right, None, kind, True)
    assert total[0].isfinite()
    if not (kind == "hinge" and bad != bad):  # max(0, nan) has no agreed value
        assert not total[1].isfinite()


@pytest.mark.parametrize("kind", KINDS)
def test_second_derivatives(kind: Kind) -> None:
    inputs = tuple(factor.requires_grad_() for factor in factors(4, 5, 2))

    def total(left: Tensor, right: Tensor) -> Tensor:
        return FusedTotal.apply(left, right, None, kind, True)[0]

    assert torch.autograd.gradcheck(total, inputs)
    if kind != "hinge":
        assert torch.autograd.gradgradcheck(total, inputs)


def test_second_derivatives_of_a_huge_batch_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairwise, "MOST_ENTRIES", 19)
    left, right = (factor.requires_grad_() for factor in factors(4, 5, 2))
    total = FusedTotal.apply(left, right, None, "log-sum-exp", True)[0]
    assert torch.autograd.grad(total, left, retain_graph=True)[0].isfinite().all()
    with pytest.raises(InputError, match="matrix of all pairs"):
        torch.autograd.grad(total, left, create_graph=True)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_stack_is_its_models(kind: Kind, dtype: torch.dtype) -> None:
    """Leading dimensions and vmap give each model what it gets alone."""
    left, right = factors(6, 6, 3, 4, dtype=dtype)
    alone = [FusedTotal.apply(a, b, None, kind, True) for a, b in zip(left, right, strict=True)]
    stacked = FusedTotal.apply(left, right, None, kind, True)
    mapped = torch.vmap(lambda a, b: FusedTotal.apply(a, b, None, kind, True))(left, right)
    for number, parts in enumerate(zip(*alone, strict=True)):
        torch.testing.assert_close(stacked[number], torch.stack(parts))
        torch.testing.assert_close(mapped[number], torch.stack(parts))
    one_right = torch.vmap(lambda a: FusedTotal.apply(a, right[0], None, kind, True)[0])(left)
    torch.testing.assert_close(one_right[0], alone[0][0])


ENERGIES: list[Energy] = [
    Euclidean(),
    Cosine(0.3),
    Dot(2.0),
    Anisotropic().bind(dim=3),
    Anisotropic(normalise=True).bind(dim=3),
    PNorm(1.5),
]


@pytest.mark.parametrize("energy", ENERGIES, ids=lambda e: f"{type(e).__name__}-{e.extra_repr()}")
def test_pair_logits_are_the_logits(energy: Energy) -> None:
    energy = energy.double()
    a, b = normal(6, 3, seed=1), normal(6, 3, seed=2)
    matrix = energy.logits(a, b)
    pairs, shift = PairLogits.of(energy, a, b), normal(6, seed=4)
    torch.testing.assert_close(pairs.diagonal(), matrix.diagonal())
    torch.testing.assert_close(pairs.transposed().mean_log_sum_exp(), matrix.logsumexp(0).mean())
    torch.testing.assert_close(pairs.mean_cross_entropy(), (matrix.logsumexp(1) - matrix.diagonal()).mean())
    others = matrix.masked_fill(torch.eye(6, dtype=torch.bool), -torch.inf)
    torch.testing.assert_close(pairs.mean_log_sum_exp(without_diagonal=True), others.logsumexp(1).mean())
    off = ~torch.eye(6, dtype=torch.bool)
    torch.testing.assert_close(pairs.off_diagonal_mean("square"), matrix[off].square().mean())
    shifted = pairs.plus_columns(shift)
    torch.testing.assert_close(shifted.diagonal(), matrix.diagonal() + shift)
    torch.testing.assert_close(shifted.off_diagonal_mean("exponential"), (matrix + shift)[off].exp().mean())
    extra = torch.cat([matrix, shift.unsqueeze(1)], 1)
    torch.testing.assert_close(pairs.mean_log_sum_exp(extra=shift), extra.logsumexp(1).mean())


def kept_for_backward(objective: Objective, n: int) -> int:
    """How many numbers autograd keeps of one loss."""
    sizes: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes() // tensor.element_size()
        return tensor

    x = normal(n, 4, dtype=torch.float32)
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        objective(nn.Linear(4, 4), Views(x, x.unsqueeze(0)))
    return sum(sizes.values())


@pytest.mark.parametrize(
    ("candidates", "energy"),
    list(
        itertools.product(
            ["batch", "batch-negatives", "two-view"], [Euclidean(), Cosine(), Dot(), Anisotropic().bind(dim=4)]
        )
    ),
)
def test_memory_grows_with_the_rows(candidates: str, energy: Energy) -> None:
    objective = InfoNCE(energy, candidates=candidates)  # type: ignore[arg-type]
    small, large = kept_for_backward(objective, 500), kept_for_backward(objective, 2000)
    assert large < 5 * small
    assert large < 200 * 2000, "nothing of size n² is kept"


def test_a_batch_beyond_the_cache() -> None:
    """Three thousand pairs, in strips, against the matrix."""
    a, b = normal(3000, 8, seed=1, dtype=torch.float32), normal(3000, 8, seed=2, dtype=torch.float32)
    inputs = [a.requires_grad_(), b.requires_grad_()]
    pairs = PairLogits.of(Cosine(0.2), *inputs)
    fused = with_gradients(pairs.mean_log_sum_exp() - pairs.diagonal().mean(), inputs)
    double = [t.detach().double().requires_grad_() for t in inputs]
    matrix = Cosine(0.2).logits(*double)
    plain = with_gradients(matrix.logsumexp(1).mean() - matrix.diagonal().mean(), double)
    assert_close(fused, plain, 1e-5)
