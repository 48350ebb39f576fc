"""A trained latent-variable model at work: how sure it is, what it makes of latents, how likely it finds rows.

Every function takes the parts of such a model: the objective with its decoder, and the encoder. Rows are what the
encoder takes, [n, features] or [n, channels, height, width], bytes among them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from probssl.encoders import as_floats
from probssl.errors import InputError
from probssl.model.model import Data, Model
from probssl.objectives import GenerativeObjective
from probssl.samplers import LatentMixture

AT_ONCE = 512
"""Rows that are decoded together."""

FARTHEST = 2.0
"""How far traversals go to either side, in standard deviations of the latent over the data."""


def decoder_of(model: Model) -> GenerativeObjective:
    """The objective of a model that has a decoder."""
    if not isinstance(model.objective, GenerativeObjective):
        raise InputError(
            f"a model trained with {model.resolved.called('objective')} has no decoder: train with simvae, vae, "
            "beta-vae or cr-vae"
        )
    return model.objective


@torch.no_grad()
def posteriors(objective: GenerativeObjective, encoder: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """Means and standard deviations of q(z | x): [n, dim] twice."""
    encoder.eval()
    objective.eval()
    parts = [objective.posterior(encoder, as_floats(rows)) for rows in x.split(AT_ONCE)]
    return torch.cat([mean for mean, _ in parts]), torch.cat([(0.5 * log).exp() for _, log in parts])


@torch.no_grad()
def decoded(objective: GenerativeObjective, z: Tensor, shape: tuple[int, ...]) -> Tensor:
    """E[x | z] of latents [n, dim]: [n, *shape]."""
    return objective.likelihood.mean(_parameters(objective, z)).view(len(z), *shape)


@torch.no_grad()
def observed_at(
    objective: GenerativeObjective, z: Tensor, shape: tuple[int, ...], generator: torch.Generator
) -> Tensor:
    """New observations of latents [n, dim]: rows x ~ p(x | z), images E[x | z], which noise would only make grainy."""
    parameters = _parameters(objective, z)
    if len(shape) > 1:
        return objective.likelihood.mean(parameters).view(len(z), *shape)
    return objective.likelihood.sample(parameters, generator)


def _parameters(objective: GenerativeObjective, z: Tensor) -> Tensor:
    """What the decoder says of p(x | z), part by part: [n, ...]."""
    objective.eval()
    weight = next(objective.decoder.parameters())
    return torch.cat([objective.decoder(rows.to(weight)) for rows in z.split(AT_ONCE)])


def latent_prior(
    objective: GenerativeObjective,
    encoder: nn.Module,
    x: Tensor,
    *,
    components: int = 10,
    labels: Tensor | None = None,
    names: list[str] | None = None,
    seed: int = 0,
) -> LatentMixture:
    """A mixture fitted to one draw of q(z | x) for every row: the latents as the decoder meets them.

    With labels [n], whole numbers from 0, one normal a class in place of `components` of them.
    """
    mean, deviation = posteriors(objective, encoder, x)
    noise = torch.empty_like(mean).normal_(generator=torch.Generator().manual_seed(seed))
    z = (mean + deviation * noise).double().numpy()
    if labels is not None:
        return LatentMixture.by_class(z, labels.numpy(), names)
    return LatentMixture.fit(z, min(components, len(z)), seed=seed)


def log_likelihood(
    objective: GenerativeObjective,
    encoder: nn.Module,
    x: Tensor,
    *,
    prior: LatentMixture | None = None,
    samples: int = 100,
    seed: int = 0,
) -> Tensor:
    """A lower bound of log p(x) in nats for every row, by importance weighting: [n].

    The prior of z is the model's own, or the mixture where one is given, which it must be for SimVAE: its own is of
    related rows and flat. All rows use the same draws: the bound of a row is its own, whatever lies beside it.
    """
    of_latents: Callable[[Tensor], Tensor] | None = None
    if prior is not None:
        mixture = prior

        def of_latents(z: Tensor) -> Tensor:
            return mixture.log_prob(z[0])

    encoder.eval()
    objective.eval()
    parts = [
        objective.log_likelihood(
            encoder,
            as_floats(rows)[None],
            samples,
            torch.Generator().manual_seed(seed),
            log_prior=of_latents,
            shared_noise=True,
        )
        for rows in x.split(AT_ONCE)
    ]
    return torch.cat(parts)


def draw(
    model: Model,
    data: Data,
    count: int,
    *,
    of_class: str | None = None,
    components: int = 10,
    seed: int = 0,
) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """New rows in the units of the data, or images from 0 to 1; the number of each one's group; the groups' names.

    Latents are drawn from normals fitted to those of the data it was trained on: one a class where there are labels
    (SimVAE A.7.6), else `components` of them. With `of_class` all are of that class. Rows are drawn with the errors of
    the likelihood, images without.
    """
    if seed < 0:
        raise InputError(f"the seed must be a whole number of at least 0, not {seed}")
    objective = decoder_of(model)
    observed = model.observe(data, "train")
    labels = None if observed.labels is None else torch.as_tensor(np.asarray(observed.labels), dtype=torch.long)
    names = None if labels is None else [str(name) for name in observed.classes]
    there = [] if labels is None or names is None else [names[code] for code in labels.unique()]
    if of_class is not None and of_class not in there:
        known = f"its classes are {', '.join(there)}" if there else "it has no labels"
        raise InputError(f"{observed.source} has no class {of_class!r}: {known}")
    prior = latent_prior(
        objective, model.encoder, observed.x, components=components, labels=labels, names=names, seed=seed
    )
    component = None if of_class is None else prior.names.index(of_class)
    chance = torch.Generator().manual_seed(seed)
    z, chosen = prior.sample(count, chance, component=component)
    found = observed_at(objective, z, tuple(observed.x.shape[1:]), chance)
    return model.in_units(found.clamp(0, 1) if model.of_images else found), chosen.numpy(), prior.names


def traversals(
    objective: GenerativeObjective, encoder: nn.Module, x: Tensor, *, directions: int = 10, steps: int = 9
) -> Tensor:
    """What changes as latents move along one of their principal directions: [directions, steps, ...].

    They start from the row nearest to the mean latent and go from `FARTHEST` standard deviations of the data below the
    mean to as many above it, the largest direction first. Axes would not do: SimVAE's prior knows none.
    """
    mean, _ = posteriors(objective, encoder, x)
    centre = mean.mean(0)
    start = mean[(mean - centre).square().sum(1).argmin()]
    _, sizes, axes = torch.linalg.svd(mean - centre, full_matrices=False)
    axes, spread = axes[:directions], sizes[:directions] / max(1, len(mean) - 1) ** 0.5
    places = torch.linspace(-FARTHEST, FARTHEST, steps).to(mean)
    now = (axes @ (start - centre)).unsqueeze(1)  # [directions, 1]
    moves = (places * spread.unsqueeze(1) - now).unsqueeze(2) * axes.unsqueeze(1)  # [directions, steps, m]
    found = decoded(objective, (start + moves).flatten(0, 1), tuple(x.shape[1:]))
    return found.unflatten(0, (len(axes), steps))
