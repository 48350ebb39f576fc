"""Laws of standardising."""

import json

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from probssl.data import Standardiser
from probssl.errors import InputError

shapes = st.tuples(st.integers(2, 20), st.integers(1, 4))
tables = arrays(np.float64, shapes, elements=st.floats(-1e6, 1e6))
extreme = arrays(np.float64, shapes, elements=st.floats(-1e300, 1e300))


@given(tables)
def test_inverse_undoes_transform(x):
    standardiser = Standardiser.fit(x)
    tolerance = 1e-12 * max(1.0, np.abs(x).max())
    np.testing.assert_allclose(standardiser.inverse(standardiser.transform(x)), x, rtol=1e-12, atol=tolerance)


@given(tables)
def test_mean_zero_and_variance_one(x):
    x = np.round(x, 3)  # spreads near the rounding of the mean cannot be resolved
    z = Standardiser.fit(x).transform(x)
    varies = np.ptp(x, axis=0) > 0
    np.testing.assert_allclose(z.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(z.var(axis=0)[varies], 1, rtol=1e-5)
    assert (z[:, ~varies] == 0).all()


@given(extreme)
@example(np.array([[5e-324], [0.0], [0.0]]))
def test_finite_for_any_finite_input(x):
    z = Standardiser.fit(x).transform(x)
    assert np.isfinite(z).all()
    assert np.abs(z).max() <= 1e3


@pytest.mark.parametrize("value", [0.0, 0.1, -7.3, 1e300, 5e-324])
def test_a_constant_column_becomes_exactly_zero(value):
    x = np.column_stack([np.full(7, value), np.arange(7.0)])
    standardiser = Standardiser.fit(x)
    assert (standardiser.transform(x)[:, 0] == 0).all()
    assert standardiser.scale[0] == 1
    assert (standardiser.inverse(standardiser.transform(x))[:, 0] == value).all()


def test_agrees_with_scikit_learn():
    from sklearn.preprocessing import StandardScaler

    x = np.random.default_rng(0).normal(3, 5, size=(100, 4))
    np.testing.assert_allclose(Standardiser.fit(x).transform(x), StandardScaler().fit_transform(x), rtol=1e-12)


def test_saved_as_arrays_or_as_json():
    x = np.random.default_rng(0).normal(size=(10, 3))
    standardiser = Standardiser.fit(x)
    arrays_back = Standardiser(**standardiser.as_dict())
    text = json.dumps({name: array.tolist() for name, array in standardiser.as_dict().items()})
    for copy in (arrays_back, Standardiser(**json.loads(text))):
        np.testing.assert_array_equal(copy.transform(x), standardiser.transform(x))


def test_refusals():
    standardiser = Standardiser.fit(np.ones((3, 64)))
    for use in (standardiser.transform, standardiser.inverse):
        with pytest.raises(InputError, match="has 63 columns where the standardiser expects 64 columns"):
            use(np.ones((2, 63)))
        with pytest.raises(InputError, match=r"shape \(64,\)"):
            use(np.ones(64))
    with pytest.raises(InputError, match="rows and columns"):
        Standardiser.fit(np.ones(3))
    with pytest.raises(InputError, match="rows and columns"):
        Standardiser.fit(np.ones((0, 3)))
    with pytest.raises(InputError, match="column 2 has values that are not finite"):
        Standardiser.fit([[1, 1.0], [2, np.inf]])
    with pytest.raises(InputError, match="column 2 lie too far apart"):
        Standardiser.fit([[1, 1.7e308], [2, 1.7e308], [3, -1.7e308]])
    with pytest.raises(InputError, match="as many means as scales"):
        Standardiser(np.zeros(2), np.ones(3))
    with pytest.raises(InputError, match="positive scales"):
        Standardiser(np.zeros(2), np.zeros(2))
