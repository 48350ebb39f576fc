"""The area under the ROC curve: against scikit-learn, its interval, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from probssl.errors import InputError
from probssl.metrics.outliers import detection


@pytest.mark.parametrize("ties", [False, True])
def test_the_area_is_that_of_scikit_learn(ties: bool) -> None:
    rng = np.random.default_rng(0)
    inside, outside = rng.normal(0.7, 1, 300), rng.normal(0, 1, 200)
    if ties:
        inside, outside = inside.round(), outside.round()
    found = detection(inside, outside)
    expected = roc_auc_score([1] * 300 + [0] * 200, np.concatenate([inside, outside]))
    assert found.auroc == pytest.approx(expected)
    assert found.low < found.auroc < found.high
    assert detection(outside, inside).auroc == pytest.approx(1 - expected)


def test_extremes() -> None:
    assert detection([3, 4], [1, 2]).as_dict() == {"auroc": 1.0, "low": 1.0, "high": 1.0}
    assert detection([1, 1], [1, 1]).auroc == 0.5
    assert detection([1, 2], [3, 4]).auroc == 0


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    truth, hits = 0.7602, 0  # P(N(1, 1) > N(0, 1)) = Φ(1/√2)
    for seed in range(100):
        rng = np.random.default_rng(seed)
        found = detection(rng.normal(1, 1, 80), rng.normal(0, 1, 80), level=0.8, resamples=200, seed=seed)
        hits += found.low < truth < found.high
    assert 68 <= hits <= 92


def test_refusals() -> None:
    with pytest.raises(InputError, match="at least two scores inside, not 1"):
        detection([1], [1, 2])
    with pytest.raises(InputError, match="scores outside must be finite"):
        detection([1, 2], [1, np.nan])
    with pytest.raises(InputError, match="between 0 and 1, not 2"):
        detection([1, 2], [1, 2], level=2)
