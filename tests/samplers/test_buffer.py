"""The replay buffer: which chains it moves, which it restarts, what it remembers."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from probssl.errors import InputError
from probssl.samplers import SGLD, NormalStart, ReplayBuffer, UniformStart


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def far(x: Tensor) -> Tensor:
    """A density around 100 that chains reach in one step of size 1 without noise."""
    return -(x - 100).square().sum(-1) / 2


JUMP = SGLD(steps=1, step_size=1.0, noise=0.0)
UNIT = UniformStart(torch.zeros(3), torch.ones(3))


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_chains_go_on_but_for_a_share(share: float) -> None:
    buffer = ReplayBuffer(UNIT, 1_000, share, generator())
    for _ in range(3):
        buffer.advance(far, JUMP, 1_000, generator(1))
    began = []
    buffer.advance(lambda x: (began.append(x.detach().clone()), far(x))[1], JUMP, 1_000, generator(2))
    new = (began[0] < 2).all(1).float().mean().item()
    assert new == pytest.approx(share, abs=0.05)


def test_what_is_kept_and_for_how_long() -> None:
    buffer = ReplayBuffer(UNIT, 10, 0.0, generator())
    before = buffer.chains.clone()
    found = buffer.advance(far, SGLD(steps=7, noise=0.0), 4, generator(1))
    moved = (buffer.chains != before).any(1)
    assert int(moved.sum()) == 4
    assert sorted(buffer.ages.tolist()) == [0] * 6 + [7] * 4
    torch.testing.assert_close(found.sum(), buffer.chains[moved].sum())
    again = buffer.chains.clone(), buffer.ages.clone()
    buffer.advance(far, JUMP, 4, generator(2), keep=False)
    assert torch.equal(buffer.chains, again[0])
    assert torch.equal(buffer.ages, again[1])


def test_a_new_chain_is_of_age_nothing() -> None:
    buffer = ReplayBuffer(UNIT, 50, 1.0, generator())
    for _ in range(3):
        buffer.advance(far, SGLD(steps=4, noise=0.0), 50, generator(1))
    assert buffer.ages.tolist() == [4] * 50


def test_its_state_is_all_there_is() -> None:
    one, other = (ReplayBuffer(UNIT, 20, 0.2, generator(seed)) for seed in (0, 5))
    one.advance(far, SGLD(), 8, generator(1))
    other.load_state_dict(one.state_dict())
    found = [buffer.advance(far, SGLD(), 8, generator(3)) for buffer in (one, other)]
    assert torch.equal(*found)
    assert torch.equal(one.chains, other.chains)


def test_starts_around_data() -> None:
    data = torch.randn(500, 2, generator=generator()) * torch.tensor([1.0, 5.0]) + 3
    normal = NormalStart.around(data).draw(4_000, generator(1))
    torch.testing.assert_close(normal.mean(0), data.mean(0), atol=0.3, rtol=0)
    torch.testing.assert_close(normal.std(0), data.std(0), rtol=0.05, atol=0)
    box = UniformStart.around(data, margin=0.5).draw(4_000, generator(1))
    width = data.amax(0) - data.amin(0)
    assert bool((box >= data.amin(0) - 0.5 * width).all())
    assert bool((box <= data.amax(0) + 0.5 * width).all())
    torch.testing.assert_close(box.amax(0) - box.amin(0), 2 * width, rtol=0.01, atol=0)


def test_refusals() -> None:
    with pytest.raises(InputError, match="at least one chain"):
        ReplayBuffer(UNIT, 0)
    with pytest.raises(InputError, match="between 0 and 1, not 2"):
        ReplayBuffer(UNIT, 5, 2)
    with pytest.raises(InputError, match="5 chains cannot give 6"):
        ReplayBuffer(UNIT, 5).advance(far, JUMP, 6)
    with pytest.raises(InputError, match="low below high"):
        UniformStart(torch.ones(2), torch.zeros(2))
    with pytest.raises(InputError, match="nowhere negative"):
        NormalStart(torch.zeros(2), -torch.ones(2))
