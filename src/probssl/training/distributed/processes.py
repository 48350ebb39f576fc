"""Several processes that train one model: which of them this is, what they gather, and what they agree on.

`torchrun` starts them; each runs the same program. A tensor is called replicated if every process holds the same, and
shared out if each holds its own rows of it, in the order of ranks. With one process everything here does nothing.

A loss that all processes compute alike, from embeddings that were shared out and `gather`ed, has on each process the
gradient of *its own* use of its own rows; `gather` adds up what the others make of them, so that each parameter's
gradient, averaged over processes by `average_`, is that of the loss in one process, whether the parameter belongs
to what was shared out or to what was replicated.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed, nn

from probssl.errors import InputError, ProbsslError

T = TypeVar("T")


# Who we are


def count() -> int:
    """How many processes train together."""
    return distributed.get_world_size() if _joined() else 1


def on_machine() -> int:
    """How many of them share the memory of this machine, as `torchrun` says; all, where nobody does."""
    return min(count(), int(os.environ.get("LOCAL_WORLD_SIZE", count())))


def rank() -> int:
    """Which of them this is, from 0."""
    return distributed.get_rank() if _joined() else 0


def is_first() -> bool:
    """Whether this is the one that writes and prints."""
    return rank() == 0


def _joined() -> bool:
    return distributed.is_available() and distributed.is_initialized()


@contextlib.contextmanager
def launched(device: str | torch.device = "cpu") -> Iterator[None]:
    """Join the processes that `torchrun` started, and part from them at the end; nothing where there are none.

    Those that somebody else has joined already are left so. Tensors on GPUs travel by NCCL, others by gloo. A device
    that is not here is an `InputError`.
    """
    _check_device(device)
    if int(os.environ.get("WORLD_SIZE", 1)) < 2 or "RANK" not in os.environ or _joined():
        yield
        return
    if not distributed.is_available():
        raise InputError("this build of torch has no torch.distributed: train in one process, without torchrun")
    on_gpu = torch.device(device).type == "cuda"
    distributed.init_process_group("cpu:gloo,cuda:nccl" if on_gpu else "gloo")
    try:
        yield
    finally:
        distributed.destroy_process_group()


def _check_device(name: str | torch.device) -> None:
    try:
        device = torch.device(name)
    except RuntimeError:
        raise InputError(f"{name!r} is not a device: choose cpu, cuda, cuda:1 or mps") from None
    here = {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available())}
    if (device.index or 0) >= here.get(device.type, 0):
        able = ", ".join(kind for kind, found in here.items() if found)
        raise InputError(f"there is no device {name} on this machine, only {able}")


def own_device(device: torch.device) -> torch.device:
    """The GPU of this process where any is meant and there are several processes on the machine; else the same."""
    if device.type != "cuda" or device.index is not None or count() == 1:
        return device
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", rank() % torch.cuda.device_count())))


# Rows, and their gradients


def gather(rows: Tensor) -> Tensor:
    """The rows of all processes, [n / count, ...] → [n, ...], with gradients: each row gets those of every process."""
    return rows if count() == 1 else _Gather.apply(rows)


def own(x: Tensor, dim: int = 0) -> Tensor:
    """This process's share of a tensor that is replicated, [n, ...] → [n / count, ...]."""
    if count() == 1:
        return x
    size = x.shape[dim] // count()
    return x.narrow(dim, rank() * size, size)


def deal(x: Tensor) -> Tensor:
    """`own` rows of a replicated x whose gradient is wanted on every process, as for chains of a sampler."""
    return _Deal.apply(x) if x.requires_grad and torch.is_grad_enabled() and count() > 1 else own(x)


# Newer versions of torch call it `single`, and older ones know it by the other name alone.
_all_gather: Any = getattr(distributed, "all_gather_single", getattr(distributed, "all_gather_into_tensor", None))


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        found = rows.new_empty(count() * len(rows), *rows.shape[1:])
        _all_gather(found, rows.contiguous())
        return found

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Tensor:
        return _OwnOfSum.apply(slope)


class _OwnOfSum(torch.autograd.Function):
    """This process's rows of the sum over processes: the transpose of `_Gather`, and it of this."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        total = x.clone(memory_format=torch.contiguous_format)
        distributed.all_reduce(total)
        return own(total).clone()

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Tensor:
        return _Gather.apply(slope)


class _Deal(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return own(x).clone()

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Tensor:
        return _Gather.apply(slope) / count()


# The same everywhere


@torch.no_grad()
def average_(tensors: Iterable[Tensor]) -> None:
    """Replace each tensor by its mean over processes, all in one message for each type of number."""
    kinds: dict[torch.dtype, list[Tensor]] = {}
    for tensor in tensors if count() > 1 else ():
        kinds.setdefault(tensor.dtype, []).append(tensor)
    for same in kinds.values():
        flat = torch.cat([tensor.reshape(-1) for tensor in same])
        distributed.all_reduce(flat)
        flat /= count()
        for tensor, mean in zip(same, flat.split([tensor.numel() for tensor in same]), strict=True):
            tensor.copy_(mean.view(tensor.shape))


@torch.no_grad()
def equalise(modules: Sequence[nn.Module]) -> None:
    """Give all processes the weights and buffers that the modules have in the first."""
    for module in modules if count() > 1 else ():
        for tensor in (*module.parameters(), *module.buffers()):
            sent = tensor.contiguous()
            distributed.broadcast(sent, 0)
            tensor.copy_(sent)


def any_of(flag: bool) -> bool:
    """Whether it is so in any process; each has to ask."""
    if count() == 1:
        return flag
    raised = torch.tensor(int(flag), device=_messages())
    distributed.all_reduce(raised, distributed.ReduceOp.MAX)
    return bool(raised)


def each(state: Tensor) -> list[Tensor]:
    """A small tensor of every process, in the order of ranks; all have the same shape."""
    if count() == 1:
        return [state]
    return list(gather(state.to(_messages()).unsqueeze(0)).to(state.device))


def from_first(make: Callable[[], T]) -> T:
    """`make()` of the first process, for all; an error there is one everywhere, so that none waits for ever."""
    if count() == 1:
        return make()
    error: BaseException | None = None
    message: list[Any] = [None, None, False]  # what was made, what went wrong, and whether by the caller's fault
    if is_first():
        try:
            message[0] = make()
        except BaseException as caught:
            error, message[1:] = caught, [str(caught) or type(caught).__name__, isinstance(caught, InputError)]
    distributed.broadcast_object_list(message)
    if error is not None:
        raise error
    if message[1] is not None:
        raise (InputError if message[2] else ProbsslError)(message[1])
    return message[0]


def first_then_others(make: Callable[[], T]) -> T:
    """`make()` in the first process and then in the others, which find in place what it has downloaded or written."""
    made: list[T] = []
    from_first(lambda: made.append(make()))
    return made[0] if made else make()


def _messages() -> torch.device:
    """Where small messages between processes are put."""
    return torch.device("cuda" if distributed.get_backend() == "nccl" else "cpu")
