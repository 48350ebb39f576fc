"""Is each factor of variation in a code of its own? The six scores of Locatello et al. 2019, and all of them at once.

On arrays of codes and factors: `mig`, `modularity`, `sap`, `dci`. On a world that can be intervened in: `beta_vae`,
`factor_vae`. `disentanglement_scores` computes all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from probssl.metrics._inputs import whole
from probssl.metrics.disentanglement_arrays import DCI, Model, dci, mig, modularity, sap
from probssl.metrics.disentanglement_interventions import (
    Draw,
    Encode,
    beta_vae,
    beta_vae_accuracy,
    drawn,
    encoded,
    factor_vae,
    factor_vae_accuracy,
    factor_vae_at_scale,
    variance,
)

__all__ = [
    "DCI",
    "beta_vae",
    "beta_vae_accuracy",
    "dci",
    "disentanglement_scores",
    "factor_vae",
    "factor_vae_accuracy",
    "mig",
    "modularity",
    "sap",
]


def disentanglement_scores(
    draw: Draw,
    encode: Encode,
    *,
    train: int = 10_000,
    test: int = 5_000,
    points: int = 10_000,
    test_points: int = 5_000,
    batch: int = 64,
    bins: int = 20,
    model: Model = "forest",
    discrete: Sequence[bool] | None = None,
    seed: int = 0,
) -> dict[str, float]:
    """Every score by name, in [0, 1] and higher is better, but for informativeness, an R² that may be negative.

    `draw(count, rng)` gives factors [count, f], which must be independent, and `encode(factors)` codes [count, k].
    `train` rows are shared by MIG, Modularity, the variances of FactorVAE and the fits of SAP and DCI; `test` further
    rows judge those fits. BetaVAE and FactorVAE fix factors `points` times to fit and `test_points` times to judge,
    `batch` rows (or pairs of rows) each: at the defaults, those of Locatello et al. 2019, that is 2.9 million codes.
    `model` is for `dci`.
    """
    rng = np.random.default_rng(whole(seed, "seed", 0))
    train, test = whole(train, "train", 2), whole(test, "test", 2)
    factors = drawn(draw, train + test, rng)
    codes = encoded(encode, factors)
    rows, further = (codes[:train], factors[:train]), (codes[train:], factors[train:])
    parts = dci(*rows, model=model, discrete=discrete, test=further, seed=seed)
    free = variance(rows[0][None])[0]
    return {
        "beta_vae": beta_vae(draw, encode, train=points, test=test_points, batch=batch, seed=seed),
        "factor_vae": factor_vae_at_scale(draw, encode, free, points, test_points, batch, 0.0, rng),
        "mig": mig(*rows, bins=bins, discrete=discrete),
        "dci_disentanglement": parts.disentanglement,
        "dci_completeness": parts.completeness,
        "dci_informativeness": parts.informativeness,
        "modularity": modularity(*rows, bins=bins, discrete=discrete),
        "sap": sap(*rows, discrete=discrete, test=further, seed=seed),
    }
