"""The version of an object: equal in every process, and another where anything that it runs by is another."""

import functools
import subprocess
import sys
import threading
import types
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from probssl.energies import Cosine
from probssl.errors import InputError
from probssl.grids.objects import own_modules, version_of
from probssl.objectives import InfoNCE

HELPER = "def weigh(x):\n    '''{doc}'''\n    return {factor} * x  # {doc}\n"
LOSS = """
import helper
from helper import weigh
from torch import exp
LIMIT = {limit}
class Base:
    def also(self, x):
        return min(x, LIMIT)
class Loss(Base):
    def __init__(self, w=1.0):
        self.w = w
    def of(self, x):
        inner = lambda y: {inner}
        return inner(weigh(exp(x))) if x in {{"a", "b", "c"}} else helper.weigh(x)
"""
SAME = {"doc": "weighs", "factor": 2, "limit": 3.0, "inner": "y + 1"}


@pytest.fixture
def loss(tmp_path, monkeypatch):
    """A class in files of its own, written anew with what is given."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(**changes):
        for name, text in (("helper", HELPER), ("lossmodule", LOSS)):
            (tmp_path / f"{name}.py").write_text(text.format(**{**SAME, **changes}))
        sys.modules.pop("helper", None), sys.modules.pop("lossmodule", None)
        for cached in tmp_path.glob("__pycache__/*"):
            cached.unlink()
        import lossmodule

        return lossmodule.Loss

    yield write
    sys.modules.pop("helper", None), sys.modules.pop("lossmodule", None)


def test_it_is_that_of_settings_and_code(loss):
    first = version_of(loss()(2.0))
    assert version_of(loss()(2.0)) == first
    assert version_of(loss(factor=3)(2.0)) != first, "a function of another module"
    assert version_of(loss(limit=4.0)(2.0)) != first, "a global that a base class names"
    assert version_of(loss(inner="y + 2")(2.0)) != first, "a function within"
    assert version_of(loss()(3.0)) != first, "a setting"
    assert version_of(InfoNCE(Cosine(0.1))) == version_of(InfoNCE(Cosine(0.1))) != version_of(InfoNCE(Cosine(0.2)))


def test_other_processes_find_the_same(loss, tmp_path):
    mine = version_of(loss()(2.0))
    program = "from probssl.grids.objects import version_of; import lossmodule; print(version_of(lossmodule.Loss(2.0)))"
    for hashing in ("1", "2"):
        path = f"{tmp_path}:{Path(__file__).parents[2] / 'src'}"
        environment = {"PYTHONPATH": path, "PYTHONHASHSEED": hashing, "PATH": "/usr/bin:/bin"}
        found = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
        assert found.stdout.strip() == mine, found.stderr


def test_weights_count_and_modules_that_others_lack_are_named(loss):
    made = loss()(1.0)
    assert {module.__name__ for module in own_modules(made)} == {"lossmodule", "helper"}
    assert own_modules(InfoNCE()) == []
    torch.manual_seed(0)
    one, other = nn.Linear(3, 2), nn.Linear(3, 2)
    assert version_of(one) != version_of(other)
    other.load_state_dict(one.state_dict())
    assert version_of(one) == version_of(other)
    other.weight.requires_grad_(False)
    assert version_of(one) != version_of(other), "what is frozen trains otherwise"


def test_all_that_objects_hold():
    kept = types.SimpleNamespace(
        table={"b": [1, 2.5], "a": ("x", None)},
        names={"one", "two"},
        array=np.arange(6.0).reshape(2, 3),
        sixteen=torch.ones(2, dtype=torch.bfloat16),
        precision=torch.float32,
        power=np.exp,
        part=functools.partial(max, 3),
    )
    kept.itself = kept
    before = version_of(kept)
    assert version_of(kept) == before
    kept.array[0, 0] = 7.0
    assert version_of(kept) != before


def test_what_has_no_description_is_refused():
    kept = types.SimpleNamespace(inside=types.SimpleNamespace(lock=threading.Lock()))
    with pytest.raises(InputError, match=r"SimpleNamespace\.inside\.lock holds a lock"):
        version_of(kept)
