"""VAE, β-VAE, CR-VAE and SimVAE: bounds of the likelihood in nats, against exact ones of linear-Gaussian models.

With a linear decoder x = Wz + b + N(0, σ_x²), everything is Gaussian: marginals, posteriors and the gap of a bound,
KL(q ‖ posterior), are matrices. Columns of W are orthogonal, so that posteriors of single observations factorise.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn

from probssl.encoders import MLP, seeded
from probssl.errors import InputError
from probssl.objectives import CRVAE, VAE, BernoulliLikelihood, GaussianLikelihood, GenerativeObjective, SimVAE
from probssl.objectives.generative import divergence
from probssl.pairings import GaussianNoise, MaskAndNoise, Needs, Views
from probssl.theory import latent
from probssl.training import TrainingPlan, fit
from tests.objectives.members import generator, normal

SIZE, DIM, NOISE = 4, 2, 0.3  # numbers of x, latents, σ_x²
W = np.array([[1.0, 0.5], [0.5, -1.0], [0.6, 0.2], [-0.2, 0.6]])  # orthogonal columns
B = np.array([0.3, -0.2, 0.1, 0.0])
DRAWS = 20_000


def decoder() -> nn.Linear:
    return linear(W, B)


def linear(weight: np.ndarray, bias: np.ndarray) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0]).double()
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(weight))
        layer.bias.copy_(torch.from_numpy(bias))
    return layer


def exact(objective: GenerativeObjective, prior_variance: float = 1.0) -> tuple[GenerativeObjective, nn.Module]:
    """The objective and an encoder with the posterior of one observation whose latents are N(0, prior_variance I)."""
    variance = 1 / (1 / prior_variance + (W**2).sum(0) / NOISE)
    weight = variance[:, None] * W.T / NOISE
    last = objective.double().log_variance[-1]
    assert isinstance(last, nn.Linear)
    with torch.no_grad():
        last.bias.copy_(torch.from_numpy(np.log(variance)))
    return objective, linear(weight, -weight @ B)


def rough(objective: GenerativeObjective) -> tuple[GenerativeObjective, nn.Module]:
    """The same with a posterior that is nothing like it, and whose variance depends on its mean."""
    last = objective.log_variance[-1]
    assert isinstance(last, nn.Linear)
    with torch.no_grad():
        last.weight.copy_(0.3 * normal(*last.weight.shape, seed=4))
    return objective.double(), seeded(0, lambda: MLP.of([SIZE, 8, DIM])).double()


def covariance(related: int, variance: float, mean_variance: float) -> np.ndarray:
    """Of related latents, set after set: [J L, J L]."""
    return np.kron(variance * np.eye(related) + mean_variance * np.ones((related, related)), np.eye(DIM))


def marginal(x: np.ndarray, prior: np.ndarray) -> np.ndarray:
    """log p(x_1, …, x_J) of sets [J, n, SIZE] whose latents are N(0, prior): [n]."""
    related = len(x)
    mixing = np.kron(np.eye(related), W)
    law = stats.multivariate_normal(np.tile(B, related), mixing @ prior @ mixing.T + NOISE * np.eye(related * SIZE))
    return np.atleast_1d(law.logpdf(x.swapaxes(0, 1).reshape(x.shape[1], -1)))


def gap(x: np.ndarray, prior: np.ndarray, objective: GenerativeObjective, encoder: nn.Module) -> np.ndarray:
    """KL(q ‖ p(z | x)) of every set, q the product of the encoder's posteriors: [n]."""
    related = len(x)
    mixing = np.kron(np.eye(related), W)
    precision = np.linalg.inv(prior) + mixing.T @ mixing / NOISE
    with torch.no_grad():
        mean, log_variance = (part.numpy() for part in objective.posterior(encoder, torch.from_numpy(x)))
    found = []
    for row in range(x.shape[1]):
        centre = np.linalg.solve(precision, mixing.T @ (x[:, row] - B).ravel() / NOISE)
        mu, v = mean[:, row].ravel(), np.exp(log_variance[:, row]).ravel()
        off = mu - centre
        log_determinants = -np.linalg.slogdet(precision)[1] - np.log(v).sum()
        found.append(0.5 * ((np.diag(precision) * v).sum() + off @ precision @ off - len(v) + log_determinants))
    return np.array(found)


def views(rows: int, related: int, seed: int = 0) -> Views:
    return GaussianNoise(0.5)(normal(rows, SIZE, seed=seed), Needs(augmented=related, noise=DIM), generator(seed + 1))


def expected_loss(objective: GenerativeObjective, encoder: nn.Module, batch: Views) -> float:
    """The loss with many draws of the latents in place of one, each set repeated."""
    noise = normal(1 + len(batch.augmented), len(batch.x) * DRAWS, DIM, seed=3)
    repeated = Views(x=batch.x.repeat(DRAWS, 1), augmented=batch.augmented.repeat(1, DRAWS, 1), noise=noise)
    with torch.no_grad():
        return objective(encoder, repeated).total.item()


def made(cls: type[GenerativeObjective], **options: object) -> GenerativeObjective:
    """With the linear decoder and its noise."""
    return cls(GaussianLikelihood(NOISE), decoder=decoder(), **options).bind(dim=DIM)  # type: ignore[call-arg]


MODELS = {
    "vae": (lambda: made(VAE), 1, np.eye(DIM)),
    "beta-vae-1": (lambda: made(VAE, beta=1.0), 1, np.eye(DIM)),
    "simvae-1": (
        lambda: made(SimVAE, related=1, variance=0.4, mean_variance=0.6),
        1,
        np.eye(DIM),
    ),
    "simvae-3": (
        lambda: made(SimVAE, related=3, variance=0.2, mean_variance=0.9),
        3,
        covariance(3, 0.2, 0.9),
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_loss_is_the_exact_likelihood_and_the_gap_of_the_posterior(name: str) -> None:
    build, related, prior = MODELS[name]
    batch, (objective, encoder) = views(3, related), rough(build())
    x = batch.augmented.numpy()
    wanted = (gap(x, prior, objective, encoder) - marginal(x, prior)).mean()
    assert expected_loss(objective, encoder, batch) == pytest.approx(wanted, abs=0.05 * abs(wanted) ** 0.5)
    assert wanted > -marginal(x, prior).mean()


def test_consistency_comes_on_top_of_two_bounds() -> None:
    batch = views(3, 2)
    objective, encoder = rough(made(CRVAE, consistency=0.5))
    x = batch.augmented.numpy()
    bounds = sum(gap(x[[side]], np.eye(DIM), objective, encoder) - marginal(x[[side]], np.eye(DIM)) for side in (0, 1))
    first, second = (objective.posterior(encoder, side) for side in batch.augmented)
    extra = 0.5 * divergence(*second, *first).mean().item()
    assert expected_loss(objective, encoder, batch) == pytest.approx(bounds.mean() + extra, abs=0.1)


@pytest.mark.parametrize("name", ["vae", "beta-vae-1", "simvae-1"])
def test_the_bound_of_the_exact_posterior_is_the_likelihood_for_every_draw(name: str) -> None:
    build, related, prior = MODELS[name]
    x = views(5, related).augmented
    objective, encoder = exact(build())
    found = objective.log_likelihood(encoder, x, samples=1, generator=generator())
    np.testing.assert_allclose(found.numpy(), marginal(x.numpy(), prior), rtol=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_more_samples_close_the_gap(name: str) -> None:
    build, related, prior = MODELS[name]
    x, (objective, encoder) = views(4, related).augmented, exact(build(), 0.8)
    one, many = (objective.log_likelihood(encoder, x, samples=k, generator=generator(7)) for k in (1, 3_000))
    truth = marginal(x.numpy(), prior)
    np.testing.assert_allclose(many.numpy(), truth, atol=0.1)
    assert one.mean().item() < truth.mean()


@pytest.mark.parametrize("mean_variance", [None, 0.7])
def test_the_prior_of_related_latents_is_that_of_theory(mean_variance: float | None) -> None:
    objective = SimVAE(related=4, variance=0.3, mean_variance=mean_variance)
    z = normal(4, 5, DIM).double()
    rows = z.numpy().swapaxes(0, 1)
    wanted = (
        latent.log_prior_uniform(rows, 0.3)
        if mean_variance is None
        else latent.log_prior_gaussian(rows, 0.3, mean_variance)
    )
    np.testing.assert_allclose(objective.log_prior(z).numpy(), wanted, rtol=1e-12)


@pytest.mark.parametrize("mean_variance", [None, 0.7])
def test_its_expectation_needs_no_draws(mean_variance: float | None) -> None:
    objective = SimVAE(related=3, variance=0.3, mean_variance=mean_variance)
    mean, deviation = normal(3, 1, DIM).double(), 0.5 + torch.rand(3, 1, DIM, dtype=torch.float64)
    drawn = mean + deviation * torch.randn(3, 200_000, DIM, dtype=torch.float64, generator=generator())
    found = objective._prior(mean, deviation.square()).item()
    assert found == pytest.approx(objective.log_prior(drawn).mean().item(), abs=0.05)


def test_the_released_codes_pull_is_a_prior_of_means() -> None:
    """−½‖z̄‖² on top of the flat prior, and a constant: γ² = 1 − σ²/J."""
    sigma, related = 0.15, 5
    z = normal(related, 6, DIM).double()
    flat = SimVAE(related=related, variance=sigma).log_prior(z)
    pulled = SimVAE(related=related, variance=sigma, mean_variance=1 - sigma / related).log_prior(z)
    change = pulled - flat + 0.5 * z.mean(0).square().sum(-1)
    np.testing.assert_allclose(change.numpy(), -DIM / 2 * math.log(2 * math.pi), rtol=1e-12)


def test_the_best_posterior_variance_is_that_of_theory() -> None:
    sigma, related = 0.15, 10
    objective = made(SimVAE, related=related, variance=sigma)
    log_v = torch.zeros(DIM, dtype=torch.float64, requires_grad=True)
    precision = torch.from_numpy((W**2).sum(0)) / NOISE

    def loss() -> Tensor:  # of μ = 0; the decoder is linear
        prior = objective._prior(torch.zeros(related, 1, DIM).double(), log_v.exp().expand(related, 1, DIM))
        return related * 0.5 * (precision * log_v.exp() - log_v).sum() - prior.sum()

    optimiser = torch.optim.LBFGS([log_v], max_iter=200, tolerance_grad=1e-12, tolerance_change=1e-14)
    optimiser.step(lambda: (optimiser.zero_grad(), (value := loss()).backward(), value)[2])
    wanted = [latent.optimal_posterior_variance(sigma, related, decoder_precision=float(own)) for own in precision]
    np.testing.assert_allclose(log_v.exp().detach().numpy(), wanted, rtol=1e-6)


def test_bernoulli_likelihood_is_that_of_binary_pixels() -> None:
    x, logits = (normal(5, 7) > 0).double(), normal(5, 7, seed=2).double()
    wanted = stats.bernoulli(logits.sigmoid().numpy()).logpmf(x.numpy()).sum(1)
    likelihood = BernoulliLikelihood()
    beyond = likelihood.log_prob(torch.full((1, 1), 2.0), torch.full((1, 1), 100.0))
    assert float(beyond) == pytest.approx(0, abs=1e-6)
    np.testing.assert_allclose(likelihood.log_prob(x, logits).numpy(), wanted, rtol=1e-10)
    np.testing.assert_allclose(likelihood.mean(logits).numpy(), logits.sigmoid().numpy())


def test_the_divergence_of_normals() -> None:
    mean, log_variance, other, other_log = (normal(6, 3, seed=seed).double() for seed in range(4))
    p = torch.distributions.Normal(mean, (0.5 * log_variance).exp())
    q = torch.distributions.Normal(other, (0.5 * other_log).exp())
    standard = torch.distributions.Normal(torch.zeros_like(mean), torch.ones_like(mean))
    kl = torch.distributions.kl_divergence
    torch.testing.assert_close(divergence(mean, log_variance, other, other_log), kl(p, q).sum(1))
    torch.testing.assert_close(divergence(mean, log_variance), kl(p, standard).sum(1))


def test_beta_weighs_the_divergence() -> None:
    objective, encoder = rough(VAE(decoder=decoder(), beta=3.0).bind(dim=DIM))
    terms = objective(encoder, views(4, 1))
    assert terms.total.item() == pytest.approx((terms["reconstruction"] + 3 * terms["divergence"]).item())


def test_what_is_refused() -> None:
    objective, encoder = rough(SimVAE(decoder=decoder(), related=3).bind(dim=DIM))
    with pytest.raises(InputError, match="needs 3 augmentations"):
        objective(encoder, views(3, 2))
    with pytest.raises(InputError, match="the noise of a batch"):
        objective(encoder, GaussianNoise(0.5)(normal(3, SIZE), Needs(augmented=3), generator()))
    with pytest.raises(InputError, match="at least 2"):
        SimVAE(related=1)
    for build in (
        lambda: GaussianLikelihood(0),
        lambda: VAE(beta=-1),
        lambda: SimVAE(variance=0),
    ):
        with pytest.raises(InputError, match="positive and finite"):
            build()


def test_training_reaches_the_exact_likelihood_of_a_linear_world() -> None:
    """x = Wz + noise: a linear VAE fitted to it is probabilistic PCA, and its bound nears the truth's likelihood."""
    random = generator(5)
    z = torch.randn(2000, DIM, generator=random)
    x = z @ torch.from_numpy(W.T).float() + NOISE**0.5 * torch.randn(2000, SIZE, generator=random)
    encoder = seeded(0, lambda: nn.Linear(SIZE, DIM))
    objective = seeded(1, lambda: VAE(GaussianLikelihood(NOISE), decoder=nn.Linear(DIM, SIZE), of="data").bind(dim=DIM))
    fitted = fit(encoder, objective, MaskAndNoise(1.0, 0.1), x, TrainingPlan(steps=600, lr=0.02), seed=0)
    assert fitted.failure is None
    law = stats.multivariate_normal(np.zeros(SIZE), W @ W.T + NOISE * np.eye(SIZE))
    found = objective.log_likelihood(encoder, x.unsqueeze(0), samples=50, generator=generator()).mean().item()
    assert found == pytest.approx(law.logpdf(x.numpy()).mean(), abs=0.05)
