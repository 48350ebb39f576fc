"""The rule that sets our numbers beside published ones."""

import dataclasses
import math

import numpy as np
import pytest

from probssl.studies.comparison import margin, references, verdict

ENTRY = dataclasses.replace(
    references("gedi/toy")["circles, GEDI no gen", "NMI"], value=0.83, spread=0.12, runs=5, resolution=0.01
)


@pytest.mark.parametrize(
    ("value", "spread", "repetitions", "changes", "expected"),
    [
        (0.70, 0.20, 5, {}, "matched"),  # the example of docs/published.md: 2 √(0.20²/5 + 0.12²/5) = 0.209
        (0.62, 0.20, 5, {}, "missed"),
        (0.70, 0.20, 50, {}, "missed"),  # more repetitions, less doubt
        (0.98, 0.02, 5, {}, "beaten"),
        (0.98, 0.02, 5, {"higher_is_better": False}, "missed"),
        (0.98, 0.02, 5, {"higher_is_better": None}, "missed"),  # neither side is better
        (0.84, 0.00, 5, {"spread": 0.0}, "matched"),  # the next number in print
        (0.8411, 0.00, 5, {"spread": 0.0}, "beaten"),
        (0.86, 0.00, 5, {"spread": 0.0, "resolution": 0.1}, "matched"),
        (0.60, None, 1, {}, "matched"),  # one run of ours varies as theirs: 2 √(0.12² + 0.12²/5) = 0.263
        (0.55, None, 1, {}, "missed"),
        (0.70, 0.06, 4, {"spread": None, "spread_is": None, "runs": None}, "matched"),  # 2 √(0.06²/4 + 0.06²) = 0.134
        (0.69, 0.06, 4, {"spread": None, "spread_is": None, "runs": None}, "missed"),
        (0.60, 0.00, 5, {"spread_is": "standard error"}, "matched"),  # 2 · 0.12
        (0.60, 0.00, 5, {"spread_is": "standard deviation"}, "missed"),  # 2 · 0.12/√5
        (0.68, 0.00, 5, {"spread_is": "median absolute deviation"}, "matched"),
        (0.70, math.nan, 5, {}, "matched"),  # a spread that is not finite is none
        (math.nan, 0.1, 5, {}, "missed"),
        (None, None, 5, {}, "not comparable"),
    ],
)
def test_verdict_beside_a_published_number(value, spread, repetitions, changes, expected) -> None:
    assert verdict(value, spread, repetitions, dataclasses.replace(ENTRY, **changes)) == expected


def test_floats_do_not_decide() -> None:
    assert 0.85 - 0.84 > 0.01
    assert verdict(0.85, 0.0, 5, 0.84) == verdict(0.84, 0.0, 5, 0.85) == "matched"


@pytest.mark.parametrize("kind", ["standard deviation", "standard error", "median absolute deviation", None])
@pytest.mark.parametrize(("repetitions", "runs"), [(5, 5), (3, 10), (1, 10), (10, 1), (5, 1), (1, 1)])
def test_chance_alone_rarely_decides(kind, repetitions, runs) -> None:
    """Two labs that draw from one law match in at least 80 % of cases, and disagree when one law moves far away."""
    generator = np.random.default_rng(0)
    matched = moved = 0
    for _ in range(400):
        ours, theirs = generator.normal(0.5, 0.1, repetitions), generator.normal(0.5, 0.1, runs)
        spread = None
        if kind is not None and runs > 1:
            spread = float(theirs.std(ddof=1)) / (runs**0.5 if kind == "standard error" else 1)
            if kind == "median absolute deviation":
                spread = float(np.median(np.abs(theirs - np.median(theirs))))
        entry = dataclasses.replace(
            ENTRY, value=float(theirs.mean()), spread=spread, spread_is=kind if spread else None, runs=runs
        )
        deviation = float(ours.std(ddof=1)) if repetitions > 1 else 0.0
        matched += verdict(float(ours.mean()), deviation, repetitions, entry) == "matched"
        moved += verdict(float(ours.mean()) + 1, deviation, repetitions, entry) == "beaten"
    known = repetitions > 1 or (kind is not None and runs > 1)
    assert moved > 0.97 * 400
    assert matched > 0.8 * 400 if known else matched < 0.3 * 400  # nobody knows the spread: only print decides


def test_margin_shrinks_with_repetitions_to_theirs_alone() -> None:
    margins = [margin(0.1, n, ENTRY) for n in (2, 5, 50, 10**9)]
    assert margins == sorted(margins, reverse=True)
    assert margins[-1] == pytest.approx(2 * 0.12 / 5**0.5)
