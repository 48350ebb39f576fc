"""One loss in several processes, and in half precision: what an encoder does differently while a loss is computed.

Objectives know nothing of it. They get the whole batch and an encoder; the encoder takes this process's rows of
whatever it is given, encodes them, and `gather`s the embeddings of all. So negatives, moments of a batch, predictors,
queues, memory banks and chains of samplers are the same in every process, and the same as in one. Objectives whose
loss is a mean of one term a row (`Objective.rowwise`) get this process's rows alone, and nothing is gathered.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Generator, Iterator, Mapping

import torch
from torch import Tensor, nn

from probssl.encoders import sees_batch
from probssl.objectives.base import Objective, Terms
from probssl.pairings.views import Views
from probssl.training.batches import seed_of_process
from probssl.training.distributed import processes

Call = Generator[Tensor, Tensor, None]
"""What is done around a call of a module: it yields what to compute on, is sent the outcome, and yields the answer."""

PRECISIONS = {"float32": None, "bfloat16": torch.bfloat16}
"""In which encoders compute, by name; None for that of their weights."""

SECOND_DIMENSION = ("augmented", "score", "directions", "noise")
"""Parts of a batch whose first dimension is not that of rows."""


class Sharing:
    """Computes the loss of an encoder, this process's part of it, so that gradients averaged over processes are its.

    A layer of the encoder that looks at the whole batch (batch normalisation, `whole_batch` of `encoders.Centring`)
    still does: its input is gathered. What an encoder draws at random (dropout) it draws from a random state of this
    process; everything else draws the same in all.
    """

    def __init__(
        self, encoder: nn.Module, objective: Objective, *, precision: str, device: torch.device, seed: int
    ) -> None:
        self.encoder, self.objective, self.device = encoder, objective, device
        self.dtype = PRECISIONS[precision]
        self.random = own_random_state(device, seed, 0)
        self._computing = False  # whether a loss is being computed: the hooks do nothing at other times
        self._divided = False  # whether the rows that layers see are this process's alone
        self._calls: list[Call] = []  # those that are under way, the innermost last

    @contextlib.contextmanager
    def hooked(self) -> Iterator[None]:
        """Hooks on the encoders and on their layers that look at the whole batch, for as long as a training lasts."""
        several = processes.count() > 1
        encoders = {self.encoder, *self.objective.encoders()}
        within = {*encoders, self.objective} if self.objective.rowwise else encoders
        layers = {layer for module in within for layer in module.modules() if _is_joined(layer)}
        with contextlib.ExitStack() as hooks:
            for encoder in encoders if several or self.dtype is not None else ():
                self._hook(hooks, encoder, self._encode)
            for layer in layers if several else ():
                self._hook(hooks, layer, functools.partial(self._join, layer))
            yield

    def _hook(self, hooks: contextlib.ExitStack, module: nn.Module, around: Callable[[Tensor], Call]) -> None:
        def before(module: nn.Module, given: tuple[Tensor]) -> Tensor | None:
            if not self._computing:
                return None
            self._calls.append(around(*given))
            return next(self._calls[-1])

        def after(module: nn.Module, given: tuple[Tensor], found: Tensor) -> Tensor | None:
            return self._calls.pop().send(found) if self._computing else None

        hooks.enter_context(module.register_forward_pre_hook(before))
        hooks.enter_context(module.register_forward_hook(after))

    def loss(self, views: Views, weights: Mapping[str, float], *, dealt: bool) -> Terms:
        """The loss on a batch, of which each process has all or, where `dealt`, its own rows."""
        divided = False
        if processes.count() > 1:
            divided = self.objective.rowwise and (dealt or len(views.x) % processes.count() == 0)
            if divided != dealt:
                views = share(views) if divided else join(views)
        self._computing = True
        try:
            with self._dividing() if divided else contextlib.nullcontext():
                return self.objective(self.encoder, views, weights)
        finally:
            self._computing = False
            while self._calls:  # there are some left after an error
                self._calls.pop().close()

    def agreed(self, terms: Terms) -> Terms:
        """The terms for reading: of the whole batch, the same in every process."""
        if processes.count() == 1 or not self.objective.rowwise:
            return terms
        numbers = torch.stack([terms.total.detach(), *(value.detach() for value in terms.values())])
        processes.average_([numbers])
        found = Terms(dict(zip(terms, numbers[1:], strict=True)), {})
        found.total = numbers[0]
        return found

    @contextlib.contextmanager
    def _dividing(self) -> Iterator[None]:
        """Layers see this process's rows alone, and draw from its own random state."""
        shared_state, self._divided = get_random_state(self.device), True
        set_random_state(self.device, self.random)
        try:
            yield
        finally:
            self.random, self._divided = get_random_state(self.device), False
            set_random_state(self.device, shared_state)

    def _encode(self, x: Tensor) -> Call:
        """Embeddings of all of x, of which this process computes its share."""
        apart = self._divided or processes.count() == 1 or len(x) % processes.count() != 0
        half = contextlib.nullcontext() if self.dtype is None else torch.autocast(self.device.type, self.dtype)
        with half, contextlib.nullcontext() if apart else self._dividing():
            z = yield x if apart else processes.deal(x)
        z = z if self.dtype is None else z.to(x.dtype)
        yield z if apart else processes.gather(z)

    def _join(self, layer: nn.Module, x: Tensor) -> Call:
        """What a layer that looks at the whole batch makes of it, of which the rows of this process."""
        joined = self._divided and layer.training
        self._divided ^= joined  # layers within have all rows already
        z = yield processes.gather(x) if joined else x
        self._divided ^= joined
        yield processes.own(z) if joined else z


def _is_joined(layer: nn.Module) -> bool:
    """Whether a layer is to be given the rows of all processes: `SyncBatchNorm` sees to that itself."""
    return sees_batch(layer) and not isinstance(layer, nn.SyncBatchNorm)


# Batches


def join(views: Views) -> Views:
    """The batch of which each process has its rows; parts of one type and number of rows go in one message."""
    messages: dict[tuple[torch.dtype, int], dict[str, Tensor]] = {}
    for name, part in parts_of(views).items():
        rows = part.movedim(_dimension(name), 0)
        messages.setdefault((rows.dtype, len(rows)), {})[name] = rows
    found = {}
    for parts in messages.values():
        flat = [rows.reshape(len(rows), -1) for rows in parts.values()]
        columns = processes.gather(torch.cat(flat, 1)).split([rows.shape[1] for rows in flat], 1)
        for (name, rows), part in zip(parts.items(), columns, strict=True):
            found[name] = part.reshape(len(part), *rows.shape[1:]).movedim(0, _dimension(name))
    return dataclasses.replace(views, **found)


def share(views: Views) -> Views:
    """This process's rows of a batch of which all processes have all."""
    return dataclasses.replace(views, **{n: processes.own(part, _dimension(n)) for n, part in parts_of(views).items()})


def parts_of(views: Views) -> dict[str, Tensor]:
    """The tensors of a batch by name."""
    parts = {field.name: getattr(views, field.name) for field in dataclasses.fields(views)}
    return {name: part for name, part in parts.items() if part is not None}


def _dimension(name: str) -> int:
    """Along which the rows of a part of a batch are."""
    return 1 if name in SECOND_DIMENSION else 0


# Randomness


def own_random_state(device: torch.device, seed: int, step: int) -> list[Tensor]:
    """A random state that this process alone has: of the CPU and, where it computes there, of the GPU."""
    number = seed_of_process(seed, step, "encoder")
    devices = [torch.device("cpu"), *([device] if device.type == "cuda" else [])]
    return [torch.Generator(place).manual_seed(number).get_state() for place in devices]


def get_random_state(device: torch.device) -> list[Tensor]:
    """torch's random state on the CPU and, where it computes there, on the GPU."""
    return [torch.get_rng_state(), *([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])]


def set_random_state(device: torch.device, state: list[Tensor]) -> None:
    """Put back what `get_random_state` gave."""
    torch.set_rng_state(state[0])
    if device.type == "cuda" and len(state) > 1:  # a checkpoint made on a CPU has none
        torch.cuda.set_rng_state(state[1], device)
