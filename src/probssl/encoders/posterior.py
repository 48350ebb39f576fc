"""Encoders that say how sure they are: a Gaussian posterior over the representation of an observation."""

from __future__ import annotations

from torch import Tensor, nn

LOG_VARIANCES = (-20.0, 10.0)
"""Least and largest log-variance, so that no exponential overflows and no density is infinite."""


class GaussianEncoder(nn.Module):
    """q(z | x) = N(μ(x), diag e^{s(x)}): features of a `trunk` [n, features], and a linear map of them to μ and to s.

    The representation, and what `forward` gives, is μ: [n, dim]. Objectives without a posterior train the same network
    and leave s alone, so that methods are compared on one encoder. s starts near 0 and is kept in `LOG_VARIANCES`.
    """

    def __init__(self, trunk: nn.Module, features: int, dim: int) -> None:
        super().__init__()
        self.trunk, self.dim = trunk, dim
        self.mean, self.log_variance = nn.Linear(features, dim), nn.Linear(features, dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.mean(self.trunk(x))

    def posterior(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """μ(x) and s(x), the mean and the log-variance of every dimension: [n, dim] and [n, dim]."""
        features = self.trunk(x)
        return self.mean(features), self.log_variance(features).clamp(*LOG_VARIANCES)
