"""Constraints compiled from formulas: equal to listed ones where these can be, and right where they cannot."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest
import torch

from probssl.errors import InputError
from probssl.symbolic import (
    Constraint,
    Formula,
    Variable,
    adds_up,
    all_different,
    all_of,
    any_of,
    chain,
    sum_is,
    variables,
    where,
)
from probssl.symbolic.circuit import Circuit
from probssl.symbolic.formula import AllOf, AnyOf, Equals, Not

from .references import random_logits

pysdd = pytest.importorskip("pysdd.sdd")


def holds(formula: Formula, row: tuple[int, ...]) -> bool:
    """A formula's truth value, by its definition."""
    if isinstance(formula, Equals):
        return row[formula.position] == formula.value
    parts = [holds(part, row) for part in formula.parts]
    return {AllOf: all, AnyOf: any, Not: lambda found: not found[0]}[type(formula)](parts)


def listed(formula: Formula, chosen: tuple[Variable, ...]) -> Constraint:
    return Constraint.where(lambda *row: holds(formula, row), [variable.size for variable in chosen])


def random_formula(chosen: tuple[Variable, ...], depth: int, rng: random.Random) -> Formula:
    if depth == 0:
        variable = rng.choice(chosen)
        return variable.equals(rng.randrange(variable.size))
    parts = [random_formula(chosen, depth - 1, rng) for _ in range(rng.choice([2, 3]))]
    formula = rng.choice([all_of, any_of])(parts)
    return ~formula if rng.random() < 0.4 else formula


def assert_same(first: Constraint, second: Constraint) -> None:
    logits = [part.requires_grad_() for part in random_logits(first.sizes)]
    values = [each.log_prob(logits) for each in (first, second)]
    assert torch.allclose(*values, rtol=0, atol=1e-12)
    gradients = [torch.autograd.grad(value.sum(), logits) for value in values]
    marginals = [each.marginals(logits) for each in (first, second)]
    for found, expected in (*zip(*gradients, strict=True), *zip(*marginals, strict=True)):
        assert torch.allclose(found, expected, rtol=0, atol=1e-12)
    assert torch.equal(first.most_probable(logits), second.most_probable(logits))
    assert first.count == second.count
    grid = torch.cartesian_prod(*(torch.arange(size) for size in first.sizes)).reshape(-1, len(first.sizes))
    assert torch.equal(first.satisfied(grid), second.satisfied(grid))


def test_addition_is_that_of_the_list() -> None:
    digits = variables([10, 10, 10])
    addition = Constraint.where(lambda a, b, c: a + b == c, sizes=(10, 10, 10))
    compiled = Constraint.from_formula(where(lambda a, b, c: a + b == c, *digits), digits)
    assert_same(compiled, addition)
    assert torch.allclose(compiled.marginal_prior(), addition.marginal_prior(), atol=1e-15)
    assert_same(Constraint.from_formula(adds_up(digits[:1], digits[1:2], digits[2:]), digits), addition)


@pytest.mark.parametrize("seed", range(12))
def test_random_formulas_are_those_of_the_list(seed: int) -> None:
    rng = random.Random(seed)
    chosen = variables([rng.randint(2, 4) for _ in range(rng.randint(1, 5))])
    formula = random_formula(chosen, 3, rng)
    try:
        expected = listed(formula, chosen)
    except InputError as error:  # no assignment, or all
        with pytest.raises(InputError, match=str(error)[:30].replace("constraint", "formula")[:12]):
            Constraint.from_formula(formula, chosen)
    else:
        assert_same(Constraint.from_formula(formula, chosen), expected)


@pytest.mark.parametrize("seed", range(4))
def test_random_tables_are_those_of_the_list(seed: int) -> None:
    rng = random.Random(seed)
    chosen = variables([3, 2, 4, 3])
    rows = [row for row in itertools.product(*(range(v.size) for v in chosen)) if rng.random() < 0.3]
    formula = any_of(all_of(v.equals(value) for v, value in zip(chosen, row, strict=True)) for row in rows)
    assert_same(Constraint.from_formula(formula, chosen), Constraint.of(rows, [v.size for v in chosen]))


@pytest.mark.parametrize("positions", [(0, 1, 2, 3), (3, 0, 2, 1)])
def test_the_engine_counts_the_same(positions: tuple[int, ...]) -> None:
    """The probability of the engine itself, on a diagram of clauses that it was given in another way."""
    chosen = variables([3, 3, 3, 3])
    formula = all_different([chosen[p] for p in positions[:3]]) & ~chosen[positions[3]].equals(1)
    logits = random_logits([3] * 4, rows=1)
    manager = pysdd.SddManager(var_count=12)
    exactly = [[3 * v + c + 1 for c in range(3)] for v in range(4)]
    clauses = [*exactly, *([-a, -b] for group in exactly for a, b in itertools.combinations(group, 2))]
    for first, second in itertools.combinations(positions[:3], 2):
        clauses += [[-(3 * first + c + 1), -(3 * second + c + 1)] for c in range(3)]
    clauses.append([-(3 * positions[3] + 2)])
    diagram = manager.true()
    for clause in clauses:
        some = manager.false()
        for literal in clause:
            some = some | manager.literal(literal)
        diagram = diagram & some
    count = diagram.wmc(log_mode=True)
    for number, weight in enumerate(torch.cat(logits, -1).unflatten(-1, (4, 3)).log_softmax(-1).flatten().tolist()):
        count.set_literal_weight(number + 1, weight)
        count.set_literal_weight(-number - 1, 0.0)
    found = Constraint.from_formula(formula, chosen).log_prob(logits).item()
    assert found == pytest.approx(count.propagate(), abs=1e-12)


def test_derivatives_stacking_and_single_precision() -> None:
    chosen = variables([4, 4, 4])
    constraint = Constraint.from_formula(all_different(chosen) | chosen[0].equals(2), chosen)
    logits = torch.stack(random_logits([4] * 3, rows=2), 1).requires_grad_()
    assert torch.autograd.gradcheck(constraint.log_prob, logits)
    assert torch.autograd.gradgradcheck(constraint.log_prob, logits)
    stack = torch.stack([logits.detach(), -logits.detach()])
    together = torch.vmap(torch.func.grad(constraint.loss))(stack)
    assert torch.allclose(together[1], torch.func.grad(constraint.loss)(stack[1]), atol=1e-14)
    for ask in (constraint.log_prob, constraint.most_probable, lambda x: torch.stack(constraint.marginals(x), -2)):
        assert torch.allclose(torch.vmap(ask)(stack), ask(stack))
    for size in (120.0, -120.0, 1e30):
        extreme = torch.zeros(1, 3, 4)
        extreme[..., 1] = size
        extreme.requires_grad_()
        value = constraint.log_prob(extreme)
        value.sum().backward()
        assert value.isfinite().all()
        assert extreme.grad is not None
        assert extreme.grad.isfinite().all()


def test_the_sum_of_eight_digits() -> None:
    """10⁸ assignments, against convolutions of the digits' distributions."""
    digits = variables([10] * 8)
    constraint = Constraint.from_formula(sum_is(digits, 36), digits)
    assert constraint.count == 4_816_030
    logits = random_logits([10] * 8, rows=1)
    p = [part[0].softmax(-1).numpy() for part in logits]

    def of_sum(parts: list[np.ndarray]) -> np.ndarray:
        total = np.ones(1)
        for part in parts:
            total = np.convolve(total, part)
        return total

    assert constraint.log_prob(logits).item() == pytest.approx(math.log(of_sum(p)[36]), abs=1e-12)
    rest = of_sum(p[:2] + p[3:])
    expected = np.array([p[2][value] * rest[36 - value] for value in range(10)])
    assert constraint.marginals(logits)[2][0].numpy() == pytest.approx(expected / expected.sum(), abs=1e-12)
    best = constraint.most_probable(logits)
    assert best.sum().item() == 36
    assert constraint.satisfied(best).all()
    assert not constraint.satisfied(best + torch.tensor([1, 0, 0, 0, 0, 0, 0, 0]) % 10).any()


def test_long_sums_with_carry() -> None:
    digits = variables([3] * 6)
    short = Constraint.from_formula(adds_up(digits[:2], digits[2:4], digits[4:]), digits)
    assert_same(short, Constraint.where(lambda a, b, c, d, e, f: 3 * a + b + 3 * c + d == 3 * e + f, [3] * 6))
    digits = variables([10] * 12)
    long = Constraint.from_formula(adds_up(digits[:4], digits[4:8], digits[8:]), digits)
    assert long.count == 10**4 * (10**4 + 1) // 2
    logits = torch.zeros(12, 10)
    logits[torch.arange(8), torch.tensor([1, 9, 7, 6, 0, 0, 4, 8])] = 9
    assert long.most_probable(logits)[8:].tolist() == [2, 0, 2, 4]  # 1976 + 48


def test_a_small_sudoku_is_solved() -> None:
    cells = variables([4] * 16)
    rows, columns = [cells[4 * i : 4 * i + 4] for i in range(4)], [cells[i::4] for i in range(4)]
    boxes = [[cells[4 * (a + i) + b + j] for i in (0, 1) for j in (0, 1)] for a in (0, 2) for b in (0, 2)]
    sudoku = Constraint.from_formula(all_of(map(all_different, rows + columns + boxes)), cells)
    assert sudoku.count == 288
    assert torch.allclose(sudoku.marginal_prior(), torch.full((4,), 0.25, dtype=torch.float64))
    logits = torch.zeros(16, 4)
    logits[torch.tensor([0, 3, 13, 14]), torch.tensor([0, 3, 2, 1])] = 20.0  # four clues, which leave one solution
    solution = [0, 1, 2, 3, 2, 3, 0, 1, 1, 0, 3, 2, 3, 2, 1, 0]
    assert sudoku.most_probable(logits).tolist() == solution
    sure = torch.stack(sudoku.marginals(logits))
    assert torch.allclose(sure[torch.arange(16), torch.tensor(solution)], torch.ones(16), atol=1e-5)


def test_chains_read_in_order() -> None:
    chosen = variables([3, 3, 3, 2])
    rising = chain(chosen, lambda before, value: value if value >= before else None, 0, lambda _: True)
    assert_same(
        Constraint.from_formula(rising, chosen),
        Constraint.where(lambda a, b, c, d: a <= b <= c <= d, [3, 3, 3, 2]),
    )


def test_shared_parts_are_absorbed_once() -> None:
    # (x0 + x1) (x2 + x3), the first sum used twice: 5 = constant, literals 0-3, nodes from slot 5 on.
    circuit = Circuit(4, [[(0,), (1,)], [(5, 2)], [(5, 3)], [(6,), (7,)]])
    assert circuit.count == 4
    assert [tuple(group.shape) for level in circuit.levels for group in level] == [(1, 2, 1), (1, 2, 2)]
    logs = torch.tensor([1.0, 2.0, 3.0, 4.0]).log()
    assert circuit.log_sum(logs).exp().item() == pytest.approx(21)
    assert circuit.marginals(logs).tolist() == pytest.approx([1 / 3, 2 / 3, 3 / 7, 4 / 7])
    assert circuit.best(logs).tolist() == [0, 1, 0, 1]


def test_deep_formulas_do_not_exhaust_the_stack() -> None:
    chosen = variables([2, 2])
    formula = chosen[0].equals(1)
    for _ in range(5_000):
        formula = formula | (chosen[0].equals(1) & chosen[1].equals(0))
    assert Constraint.from_formula(formula, chosen).count == 2


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda v: Constraint.from_formula(v[0].equals(0) & v[0].equals(1), v), "no assignment satisfies the formula"),
        (lambda v: Constraint.from_formula(v[0].equals(0) | ~v[0].equals(0), v), "every assignment satisfies"),
        (lambda v: Constraint.from_formula(sum_is(v, 99), v), "no assignment"),
        (lambda v: Constraint.from_formula(v[2].equals(0), v[:2]), "variable 2, which is not among"),
        (lambda v: Constraint.from_formula(v[2].equals(0), v[1:]), "all the variables, in the order"),
        (lambda v: Constraint.from_formula(Formula(), v), "not Formula"),
        (lambda v: v[0].equals(3), "has the classes 0 to 2, and no 3"),
        (lambda v: adds_up(v[:1], v[1:2], v[1:]), "equally many digits"),
        (lambda v: v[0].equals(0) and v[1].equals(0), "by &, | and ~"),
        (lambda v: ~Constraint.from_formula(v[0].equals(0), v), "combine formulas before from_formula"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(make, told: str) -> None:
    with pytest.raises(InputError, match=told.replace("|", r"\|")):
        make(variables([3, 3, 3]))


def test_formulas_that_grow_too_large_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("probssl.symbolic.sdd.NODES", 500)
    digits = variables([10] * 4)
    with pytest.raises(InputError, match="more than 500 nodes"):
        Constraint.from_formula(sum_is(digits, 18), digits)
