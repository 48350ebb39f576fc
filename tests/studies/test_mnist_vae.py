"""AnInfoNCE on digits of a VAE: the autoencoder, the encoder of its pixels, and tiny runs of both studies."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from probssl.encoders import seeded
from probssl.energies import Anisotropic, Cosine
from probssl.errors import InputError
from probssl.objectives import InfoNCE
from probssl.studies import experiments, mnist_decoder, mnist_vae_trials
from probssl.studies.base import Budget
from probssl.studies.comparison import references
from probssl.studies.mnist_vae import LOSSES, Distinct, MnistVAE
from probssl.worlds import Decoder
from tests.files import unplug, write_bars

HERE = Path(os.environ.get("PROBSSL_DATA") or "absent") / "mnist" / "train-images-idx3-ubyte.gz"


@pytest.fixture
def bars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Instead of digits, bars whose place is their label, in the files of MNIST."""
    folder = tmp_path / "data" / "mnist"
    write_bars(folder, 2_000, 300)
    monkeypatch.setenv("PROBSSL_DATA", str(folder.parent))
    _forget()
    yield folder
    _forget()


def _forget() -> None:
    mnist_decoder.pixels.cache_clear()
    mnist_decoder.trained.cache_clear()


@pytest.mark.parametrize("budget", ["laptop", "full"])
def test_published_numbers_have_rows_of_their_names(budget: Budget) -> None:
    for study in (MnistVAE(), Distinct()):
        ours = {name + loss for name in study.worlds(budget) for loss in LOSSES}
        assert {name for name, _ in references(study.name)} <= ours


def test_the_bound_is_that_of_its_formula() -> None:
    model = seeded(0, lambda: mnist_decoder.VAE(8)).double()
    generator = torch.Generator().manual_seed(0)
    x, noise = (torch.rand(3, size, generator=generator).double() for size in (784, 10))
    cross_entropy, divergence = model.terms(x, noise)
    mean, log_variance = model.encoder(x).chunk(2, dim=1)
    q = torch.distributions.Normal(mean, (0.5 * log_variance).exp())
    p = torch.sigmoid(model.decoder(mean + q.scale * noise))
    expected = -(x * p.log() + (1 - x) * (1 - p).log()).sum(1).mean()
    torch.testing.assert_close(cross_entropy, expected)
    normal = torch.distributions.Normal(torch.zeros_like(mean), torch.ones_like(mean))
    torch.testing.assert_close(divergence, torch.distributions.kl_divergence(q, normal).mean(0))


def test_leading_components_have_unit_variance() -> None:
    generator = torch.Generator().manual_seed(0)
    sample = torch.randn(4_000, 6, generator=generator) * torch.tensor([5.0, 0.1, 3.0, 0.2, 1.0, 0.0]) + 2
    found = mnist_vae_trials.Components(sample, 3)(sample)
    torch.testing.assert_close(torch.cov(found.T), torch.eye(3), atol=1e-4, rtol=0)
    torch.testing.assert_close(found.mean(0), torch.zeros(3), atol=1e-4, rtol=0)
    leading = (sample[:, [4, 2, 0]] - 2) / torch.tensor([1.0, 3.0, 5.0])
    assert float((found * leading).mean(0).abs().min()) > 0.98


def test_losses_are_those_of_the_study() -> None:
    config = {"concentrations": [5.0] * 5 + [20.0] * 5, "loss": "InfoNCE"}
    plain = mnist_vae_trials.objective_of(config)
    matched = mnist_vae_trials.objective_of({**config, "loss": mnist_vae_trials.MATCHED})
    assert isinstance(plain.energy, Cosine)
    assert isinstance(matched.energy, Cosine)
    assert (plain.energy.temperature, matched.energy.temperature) == (1, pytest.approx(0.1))
    learnt = mnist_vae_trials.objective_of({**config, "loss": "AnInfoNCE"})
    assert isinstance(learnt, InfoNCE)
    assert isinstance(learnt.energy, Anisotropic)
    assert learnt.energy.normalise
    torch.testing.assert_close(learnt.energy.concentration.detach()[[0, -1]], torch.tensor([5.0, 20.0]))
    assert (plain.candidates, plain.anchor) == (learnt.candidates, learnt.anchor) == ("originals", "original")


def test_the_decoder_is_a_frozen_mixing_that_a_seed_decides(bars: Path) -> None:
    first = mnist_decoder.trained(1, 16, 500, 3)
    assert mnist_decoder.trained(1, 16, 500, 3) is first, "once a process"
    assert isinstance(first.mixing, Decoder)
    assert first.mixing.scale == pytest.approx(math.sqrt(10))
    assert not any(parameter.requires_grad for parameter in first.mixing.parameters())
    z = torch.nn.functional.normalize(torch.ones(2, 10), dim=1)
    x = first.mixing(z)
    assert x.shape == (2, 784)
    assert float(x.min()) > 0
    assert float(x.max()) < 1
    mnist_decoder.trained.cache_clear()
    torch.testing.assert_close(mnist_decoder.trained(1, 16, 500, 3).mixing(z), x)
    assert not torch.allclose(mnist_decoder.trained(1, 16, 500, 4).mixing(z), x)


def test_a_tiny_run_over_content(bars: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = experiments.run(MnistVAE(), "smoke", out, quiet=True, jobs=1)
    assert not result.failures
    rows = {(row.setting, row.metric): row for row in result.rows}
    assert rows["InfoNCE", "style R²"].published == 0.0
    assert rows["AnInfoNCE", "linear R²"].published == 1.0
    assert rows["Λ₂ = 5, InfoNCE", "k-NN accuracy"].verdict == "not comparable"
    assert 0.1 < (rows["pixels", "k-NN accuracy"].value or 0) <= 1
    assert all(row.value is not None and math.isfinite(row.value) for row in result.rows)
    for name in ("index.html", "scores.png", "digits.png", "result.json"):
        assert (out / name).is_file()


def test_a_tiny_run_of_distinct_concentrations(bars: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = experiments.run(Distinct(), "smoke", out, quiet=True, jobs=1)
    assert not result.failures
    rows = {(row.setting, row.metric): row for row in result.rows}
    assert rows["Λ from 5 to 50, AnInfoNCE", "linear R²"].published == 0.997
    assert rows["Λ from 5 to 50, InfoNCE", "linear R²"].published == 0.774
    assert rows["MLP as mixing, Λ from 5 to 50, InfoNCE", "MCC"].verdict == "not comparable"
    assert all(row.value is not None and math.isfinite(row.value) for row in result.rows)
    for name in ("index.html", "concentrations.png", "result.json"):
        assert (out / name).is_file()


@pytest.mark.parametrize("study", [MnistVAE(), Distinct()], ids=lambda study: study.name)
def test_without_mnist_both_refuse(study: MnistVAE, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unplug(monkeypatch, tmp_path, tmp_path)
    with pytest.raises(InputError, match=r"mnist: .* could not be downloaded"):
        experiments.run(study, "smoke", tmp_path / "out", quiet=True)


@pytest.mark.skipif(not HERE.is_file(), reason="MNIST is not in PROBSSL_DATA")
def test_a_short_training_on_real_digits_leaves_no_latent_unused() -> None:
    _forget()
    found = mnist_decoder.trained(2, 128, 60_000, 0)
    train, _, test, _ = mnist_decoder.pixels()
    grey = train.mean(0).expand_as(test)
    without_latents = -torch.nn.functional.binary_cross_entropy(grey, test, reduction="none").sum(1).mean()
    assert found.elbo > float(without_latents) + 30
    assert min(found.divergences) > 0.1
    _forget()
