"""The memory that a run will need, counted from shapes before anything is allocated."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from probssl import memory
from probssl.data import Dataset
from probssl.model.model import WHITENED_ROWS
from probssl.parts.resolve import Resolved
from probssl.parts.values import declared
from probssl.runs.evaluation import MOST_ROWS, REFERENCE_ROWS
from probssl.training.distributed import processes

SINGLE, DOUBLE = 4, 8
AROUND = 50e6
"""Bytes that any process takes beside its model and its data."""

PER_MEMBER = ("chains", "queue", "clusters")
"""Settings of objectives that keep so many observations or embeddings."""


@dataclass(frozen=True)
class Needed:
    """Bytes that parts of a run need at their largest, beyond the data set itself, in all processes of this machine."""

    around: float
    """What any run takes: its log, its figures, what libraries set up."""

    weights: float
    """With gradients, the optimiser's moments, and the copies that a checkpoint is written from."""
    rows: float
    """The data in single precision, or bytes, as it is trained on."""
    batch: float
    """Observations of a batch, and what backward needs of each layer."""
    pairs: float
    """Matrices over all pairs of a batch."""
    data: float
    """Copies of the data while it is scaled, before training and before evaluation."""
    evaluation: float
    """Raw features and PCA, beside the model and the one it began as, and the least possible loss on all pairs."""

    @property
    def total(self) -> float:
        """The most at any one time: scaling, training and evaluation follow each other."""
        return self.around + max(self.data, self.rows + self.weights + self.batch + self.pairs, self.evaluation)


def needed(
    resolved: Resolved, rows: int, evaluate: Literal["none", "quick", "full"] = "quick", *, exact: bool = True
) -> Needed:
    """What a run on so many rows, those of the test among them, will need.

    Unless `exact`, layers are taken to be as large as they can be, which costs no time.
    """
    facts, plan, objective = resolved.facts, resolved.plan, resolved.objective
    features = facts.features
    network, numbers = nn.Module(), 2.0**63  # as many as torch can count
    with contextlib.suppress(OverflowError):
        network = resolved.encoder_without_memory()
        numbers = float(sum(tensor.numel() for tensor in _tensors(network).values()))
    kept = objective.settings()
    members = sum(kept[name] for name in PER_MEMBER if isinstance(kept.get(name), int))
    if objective.decodes or "momentum" in type(objective).declared():
        numbers *= 2  # a decoder mirrors the encoder, a teacher copies it
    weights = SINGLE * (numbers + members * features)
    moments = 1 if plan.optimiser == "sgd" else 2
    batch = plan.batch_size if facts.kind == "world" else min(plan.batch_size, rows)
    views = max(2, objective.needs.augmented)
    layers = _kept(network, facts.shape) if exact else None
    layers = _most_kept(network, facts.shape) if layers is None else layers
    size = rows * features
    if facts.kind == "images":  # bytes, and a sample of them as numbers
        data, single = 2.0 * size + 1.2 * SINGLE * min(rows, WHITENED_ROWS) * features, 1.0 * size
    else:
        data, single = (3.0 * DOUBLE + SINGLE) * size, 1.0 * SINGLE * size
    judged = 0 if evaluate == "none" else min(rows, 2 * MOST_ROWS[evaluate])
    reference = 4.0 * DOUBLE * objective.pair_matrices * min(batch, REFERENCE_ROWS) ** 2
    trained, copies = weights * (4 + 2 * moments), processes.on_machine()  # of all but a batch, which is shared out
    evaluation = 2 * weights + max(data, 9.0 * DOUBLE * judged * features) * bool(judged) + reference
    return Needed(
        around=AROUND * copies,
        weights=trained * copies,
        rows=single * copies,
        batch=2.0 * SINGLE * batch * views * (layers + features) * copies / processes.count(),
        pairs=float(SINGLE * objective.pair_matrices * batch**2) * copies,
        data=data * copies,
        evaluation=evaluation + (single + trained) * (copies - 1),  # of the first, while the others wait
    )


def check_memory(resolved: Resolved, data: Dataset, evaluate: Literal["none", "quick", "full"] = "quick") -> None:
    """Refuse a run that would need more memory than there is, before its model is bound; the first process decides."""
    processes.from_first(lambda: _check(resolved, data, evaluate))


def _check(resolved: Resolved, data: Dataset, evaluate: Literal["none", "quick", "full"]) -> None:
    if needed(resolved, len(data), evaluate, exact=False).total <= memory.available():
        return
    found, settings = needed(resolved, len(data), evaluate), declared(type(resolved.encoder))
    sizes = ["dim", *(f"encoder.{name}" for name in ("hidden", "widths", "width") if name in settings)]
    members = [f"objective.{name}" for name in PER_MEMBER if name in resolved.objective.settings()]
    parts = {
        "weights": ("the weights, their gradients and moments", f"choose a smaller {_either([*sizes, *members])}"),
        "batch": ("the layers of a batch", f"choose a smaller {_either(['batch_size', *sizes])}"),
        "pairs": ("the pairs of a batch", "choose a smaller batch_size"),
        "data": ("copies of the data", "give fewer rows or columns"),
        "rows": ("the data", "give fewer rows or columns"),
        "evaluation": ("evaluating", "leave it out (--evaluate none), or give fewer columns"),
    }
    largest = "weights" if found.weights > memory.available() else max(parts, key=lambda part: getattr(found, part))
    what, advice = parts[largest]
    rows = f"{len(data):,} observations of {resolved.facts.features:,} numbers"
    memory.require(found.total, f"training on {rows}, mostly {what},", advice)


def _either(names: list[str]) -> str:
    return " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _tensors(network: nn.Module) -> dict[str, Tensor]:
    return {**dict(network.named_parameters()), **dict(network.named_buffers())}


def _most_kept(network: nn.Module, shape: tuple[int, ...]) -> float:
    """Numbers that backward needs of an observation, at most: no layer makes an image larger."""
    places, count = float(torch.Size(shape[1:]).numel()), float(torch.Size(shape).numel())
    for layer in network.modules():
        count += 3 * places * getattr(layer, "out_channels", 0) + 3 * getattr(layer, "out_features", 0)
    return count


def _kept(network: nn.Module, shape: tuple[int, ...]) -> float | None:
    """The same exactly, from what autograd keeps of two and of four observations without memory; None if it cannot."""
    empty = {name: tensor.to("meta") for name, tensor in _tensors(network).items()}

    def bytes_of(rows: int) -> int:
        kept: dict[Any, Tensor] = {}

        def keep(tensor: Tensor) -> Tensor:
            return kept.setdefault(tensor.untyped_storage()._cdata, tensor)

        with torch.device("meta"), torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            torch.func.functional_call(network, empty, torch.empty(rows, *shape))
        return sum(tensor.numel() * tensor.element_size() for tensor in kept.values())

    try:
        return (bytes_of(4) - bytes_of(2)) / 2 / SINGLE
    except (RuntimeError, TypeError, ValueError, NotImplementedError):  # a network that looks at its numbers
        return None
