"""Integrals of Gaussian exponents over the sphere and along rays: normalisers of the densities on it.

For the densities p(z̃ | z) of `anisotropic` and of projected normals. Everything is in double precision, one number a
row, to ten digits or better (the tests compare with quadrature).
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

_NODES, _WEIGHTS = (torch.from_numpy(part) for part in np.polynomial.legendre.leggauss(96))
_SPACING = 0.01  # of the table of ray integrals
_STEP = 0.125  # of the trapezoidal rule along the path, in standard deviations at the saddle point
_HALF, _MOST = 96, 2**15  # steps to either side, at first and at most


def log_sphere_integral(precision: Tensor, linear: Tensor) -> Tensor:
    """log ∫ exp(−½ uᵀAu + vᵀu) dS(u) over the unit sphere, A = diag(precision) [d], for every row v [n, d]: [n].

    The normaliser of a Fisher–Bingham distribution. With y ~ N(A⁻¹v, A⁻¹) it is, up to a factor, the density of ‖y‖²
    at 1, and inverting its Laplace transform leaves one integral along a path through the complex plane,

        (1/π) (2π)^{d/2} ∫ Π_i (a_i − 2t)^{−1/2} exp(½ Σ_i v_i² / (a_i − 2t) − t) dt / i,

    that passes the real axis below the least a_i/2. Through the saddle point, bent to a parabola along the steepest
    descent, the integrand falls like a Gaussian and the trapezoidal rule converges exponentially, in any dimension.
    """
    a = precision.double()
    return torch.cat([_log_sphere_integral(a, rows) for rows in linear.double().split(256)])  # what fits the cache


def _log_sphere_integral(a: Tensor, v: Tensor) -> Tensor:
    d = len(a)
    least = a.min()
    # The saddle point t < least/2 solves Σ 1/(a − 2t) + v²/(a − 2t)² = 1. With w = least − 2t it lies between the roots
    # of the smallest and the largest sum that share its terms; the left side falls and is convex in w.
    shifted = a - least  # [d], zero at the least
    high = 0.5 * (d + (d * d + 4 * v.square().sum(1)).sqrt())  # Σ 1/w + v²/w² = 1
    w = high.clone()
    low = torch.full_like(w, 1e-300)
    for _ in range(200):
        gap = shifted + w.unsqueeze(1)
        value = (1 / gap + (v / gap).square()).sum(1) - 1
        slope = -(1 / gap.square() + 2 * v.square() / gap**3).sum(1)
        high, low = torch.where(value < 0, w, high), torch.where(value >= 0, w, low)
        step = w - value / slope
        w_next = torch.where((step > low) & (step < high), step, 0.5 * (low + high))
        done = bool(((w_next - w).abs() <= 1e-14 * w).all())
        w = w_next
        if done:
            break
    gap = shifted + w.unsqueeze(1)
    second = (2 / gap.square() + 4 * v.square() / gap**3).sum(1)
    third = (8 / gap**3 + 24 * v.square() / gap**4).sum(1)
    # As the steepest descent bends, but never so much that Re 1/(a − 2t) grows on the way past one of the poles.
    bend = torch.minimum(third / (6 * second), 2 / gap.max(1).values).unsqueeze(1)
    width = second.rsqrt().unsqueeze(1)
    half = _HALF
    while True:
        s = torch.arange(-half, half + 1, dtype=torch.double, device=a.device) * _STEP  # [k]
        along = s * width  # [n, k]
        change = torch.complex(bend * along.square(), along)  # t − saddle
        exponent = -change
        for i in range(d):  # a sum over dimensions, so that nothing of size n × k × d is kept
            left = gap[:, i : i + 1] - 2 * change
            exponent = exponent - 0.5 * torch.log(left) + 0.5 * v[:, i : i + 1].square() / left
        top = exponent.real.max(1, keepdim=True).values
        if half >= _MOST or bool((exponent.real[:, -1:] < top - 40).all()):
            break
        half *= 2
    speed = torch.complex(2 * bend * along, torch.ones_like(along)) * width  # dt/ds
    # dt / i along the path; the imaginary parts of s and −s cancel
    integral = ((exponent - top).exp() * speed).imag.sum(1) * _STEP
    saddle = 0.5 * (least - w)
    return integral.log() + top.squeeze(1) - saddle + (d / 2) * math.log(2 * math.pi) - math.log(math.pi)


def log_ray_integral(curvature: Tensor, slope: Tensor, dim: int, between: tuple[float, float] | None = None) -> Tensor:
    """log ∫ r^{d−1} exp(−½ a r² + b r) dr over r > 0 or `between`, for a > 0 and d ≥ 2: what projecting integrates.

    By Gauss–Legendre, over all but e^{−40} of it or, for a narrow range, the whole of that.
    """
    a, b = curvature.double(), slope.double()
    k = dim - 1
    mode = (b + (b.square() + 4 * k * a).sqrt()) / (2 * a)
    mode = torch.where(b < 0, 2 * k / ((b.square() + 4 * k * a).sqrt() - b), mode)  # without cancellation
    # Beyond these, the exponent is 40 or more below its value at the mode.
    normal_reach = (80 / a).sqrt()
    low = (mode - normal_reach).clamp_min(0.0)
    high = mode + torch.minimum(normal_reach, mode * (40 / k + math.sqrt(80 / k)))
    if between is not None:
        low, high = torch.full_like(mode, between[0]), torch.full_like(mode, between[1])
    nodes, weights = _NODES.to(a.device), _WEIGHTS.to(a.device)
    half = 0.5 * (high - low).unsqueeze(-1)
    r = low.unsqueeze(-1) + half * (1 + nodes)
    exponent = k * r.log() - 0.5 * a.unsqueeze(-1) * r.square() + b.unsqueeze(-1) * r
    return torch.logsumexp(exponent + weights.log() + half.log(), -1)


class RayIntegrals:
    """`log_ray_integral` of all a > 0 and |b|/√a ≤ `farthest`, from a table: to 1e-10, and fifty times as fast.

    With r = s/√a it is −(d/2) log a + f(b/√a), f(α) = log ∫ s^{d−1} e^{−½ s² + αs} ds, a smooth function of one number
    whose slope is the mean of s: cubic Hermite interpolation.
    """

    def __init__(self, dim: int, farthest: float) -> None:
        self.dim = dim
        half = math.ceil(farthest / _SPACING) + 2
        alpha = torch.arange(-half, half + 1, dtype=torch.double) * _SPACING
        one = torch.ones_like(alpha)
        self.values = log_ray_integral(one, alpha, dim)
        self.slopes = (log_ray_integral(one, alpha, dim + 1) - self.values).exp() * _SPACING
        self.half = half

    def __call__(self, curvature: Tensor, slope: Tensor) -> Tensor:
        place = (slope * curvature.rsqrt() / _SPACING + self.half).clamp(0, 2 * self.half)
        at = place.long().clamp_max(2 * self.half - 1)
        t = place - at
        values, slopes = self.values.to(place.device), self.slopes.to(place.device)
        f0, f1, m0, m1 = values[at], values[at + 1], slopes[at], slopes[at + 1]
        rise = f1 - f0
        bend = 3 * rise - 2 * m0 - m1
        twist = m0 + m1 - 2 * rise
        return f0 + t * (m0 + t * (bend + t * twist)) - self.dim / 2 * curvature.log()


def log_projected_normal(z_next: Tensor, z: Tensor, precision: Tensor, radius: float = 1.0) -> Tensor:
    """log density on the sphere of N(z, diag(precision)⁻¹) projected to it: [..., d], [..., d] → [...]."""
    u, centre, weights = z_next.double() / radius, z.double() / radius, precision.double() * radius**2
    d = u.shape[-1]
    along = log_ray_integral((u * weights * u).sum(-1), (u * weights * centre).sum(-1), d)
    constant = 0.5 * weights.log().sum() - (d / 2) * math.log(2 * math.pi) - (d - 1) * math.log(radius)
    return along - 0.5 * (centre * weights * centre).sum(-1) + constant
