"""Every conditional and marginal, from nearly uniform to very concentrated, for the laws that all of them obey."""

from __future__ import annotations

import torch

from probssl.worlds import (
    Around,
    Box,
    Conditional,
    FisherBingham,
    Marginal,
    ProjectedGaussian,
    RealSpace,
    ShellGaussian,
    Sphere,
    Uniform,
    VonMisesFisher,
    generalised_normal,
    laplace,
    normal,
)


def spread(dim: int, low: float, high: float) -> torch.Tensor:
    """Concentrations from low to high, evenly in their logarithm."""
    return torch.logspace(*torch.tensor([low, high]).log10().tolist(), dim, dtype=torch.double)


def on_sphere(dim: int) -> dict[str, Conditional]:
    """Conditionals on the unit sphere, and two of other radii."""
    sphere = Sphere(dim)
    found: dict[str, Conditional] = {
        f"vMF {kappa:g}": VonMisesFisher(sphere, kappa) for kappa in (0.0, 0.01, 1.0, 30.0, 1000.0)
    }
    found["vMF 30, radius 3"] = VonMisesFisher(Sphere(dim, 3.0), 30.0)
    for low, high in ((0.01, 0.02), (5.0, 25.0), (0.01, 1000.0), (900.0, 1000.0)):
        found[f"anisotropic {low:g} to {high:g}"] = FisherBingham(sphere, spread(dim, low, high))
    for scale in (0.05, 1.0):
        found[f"projected normal {scale:g}"] = generalised_normal(sphere, 2, scale)
    found["projected normal 0.3, radius 2"] = normal(Sphere(dim, 2.0), 0.3)
    found["projected Gaussian 5 to 25"] = ProjectedGaussian(sphere, spread(dim, 5.0, 25.0))
    found["shell 5 to 25"] = ShellGaussian(sphere, spread(dim, 5.0, 25.0))
    found["shell 200"] = ShellGaussian(sphere, 200.0)
    return found


def on_box(dim: int) -> dict[str, Conditional]:
    """Conditionals on boxes."""
    return {
        f"truncated {shape:g}, {scale:g}": generalised_normal(Box(dim, -1.0, 2.0), shape, scale)
        for shape in (0.7, 1.0, 2.0, 3.0, 8.0)
        for scale in (0.01, 0.5, 4.0, 100.0)
    }


def on_reals(dim: int) -> dict[str, Conditional]:
    """Conditionals on R^n."""
    space = RealSpace(dim)
    found: dict[str, Conditional] = {
        f"generalised normal {shape:g}, {scale:g}": generalised_normal(space, shape, scale)
        for shape in (0.7, 1.0, 2.0, 3.0, 8.0)
        for scale in (0.01, 1.0, 100.0)
    }
    found["normal, a scale each"] = normal(space, spread(dim, 0.1, 10.0))
    found["Laplace"] = laplace(space, 0.5)
    return found


def marginals(dim: int) -> dict[str, Marginal]:
    """Marginals on every space."""
    return {
        "uniform sphere": Uniform(Sphere(dim)),
        "uniform box": Uniform(Box(dim, -1.0, 2.0)),
        "vMF": Around(VonMisesFisher(Sphere(dim), 3.0)),
        "normal on sphere": Around(normal(Sphere(dim), 0.7)),
        "normal in box": Around(normal(Box(dim), 0.3)),
        "normal": Around(normal(RealSpace(dim), 1.0)),
        "Laplace": Around(laplace(RealSpace(dim), 1.0)),
        "generalised normal": Around(generalised_normal(RealSpace(dim), 3, 1.0)),
    }
