"""What every estimator promises of its parameters: few, named as elsewhere, and each explained."""

from __future__ import annotations

import inspect
import re

import pytest

import probssl
from probssl import estimators

EVERY = [getattr(estimators, name) for name in estimators.__all__]
SHARED = ("objective", "energy", "pairing", "encoder", "head", "dim", "steps", "batch_size", "lr", "settings")
"""Parameters that mean what they mean for `probssl.fit`."""


def explained(estimator: type) -> dict[str, str]:
    """The entries under `Parameters:`."""
    section = re.search(r"^Parameters:\n((?:    .*\n)+)", inspect.getdoc(estimator) + "\n", re.M)
    entries = re.split(r"^    (\w+): ", section[1], flags=re.M)[1:]
    return {name: " ".join(text.split()) for name, text in zip(entries[::2], entries[1::2], strict=True)}


@pytest.mark.parametrize("estimator", EVERY)
def test_at_most_fifteen_parameters(estimator):
    assert len(inspect.signature(estimator).parameters) <= 15


@pytest.mark.parametrize("estimator", EVERY)
def test_every_parameter_is_explained(estimator):
    told = explained(estimator)
    assert list(told) == list(inspect.signature(estimator).parameters)
    assert all(text[0].isupper() or text[0] in '"κ' for text in told.values())
    assert all(text.endswith(".") for text in told.values())


@pytest.mark.parametrize("estimator", EVERY)
def test_names_are_those_of_fit(estimator):
    theirs = inspect.signature(probssl.fit).parameters
    mine = set(inspect.signature(estimator).parameters)
    assert mine.intersection(SHARED) <= set(theirs)
    assert {"dim", "steps", "batch_size", "lr", "settings", "random_state", "verbose"} <= mine
    assert "seed" not in mine


def test_siamese_encoder_has_every_part_of_fit():
    assert set(SHARED) <= set(inspect.signature(estimators.SiameseEncoder).parameters)


def test_the_package_exports_them():
    assert [getattr(probssl, name) for name in estimators.__all__] == EVERY
    assert "SimVAEEncoder" in estimators.__all__
    assert probssl.SimVAE is not probssl.SimVAEEncoder
