"""Checkpoints: everything a run needs to go on as if it had never stopped."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor, nn

from probssl import kernels
from probssl.errors import CheckpointError, DiskFull
from probssl.schema import Mismatch, conform, intact
from probssl.training.files import load_tensors, save_tensors

KEPT_BY_ADAM = ("step", "exp_avg", "exp_avg_sq")

KEPT = 2
"""How many checkpoints stay on disk: the newest and the one before it."""


class CheckpointFolder:
    """`step-XXXXXXXX.safetensors` files in a folder, newest kept together with the one before it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def paths(self) -> list[Path]:
        """The checkpoints on disk, oldest first."""
        return sorted(self.folder.glob("step-*.safetensors"))

    def clear(self) -> None:
        """Remove the checkpoints, for a fresh start."""
        for path in self.paths():
            path.unlink(missing_ok=True)

    def save(self, step: int, tensors: dict[str, Tensor], metadata: dict[str, Any]) -> Path:
        """Write the checkpoint of `step`, then drop all but the newest two."""
        path = self.folder / _name(step)
        try:
            save_tensors(path, tensors, {"step": step, **metadata})
        except DiskFull as error:
            before = self.paths()
            kept = f"; {before[-1].name} is kept, and --resume goes on from it" if before else ""
            raise DiskFull(f"{error}{kept}") from error
        for old in self.paths()[:-KEPT]:
            old.unlink(missing_ok=True)
        return path

    def load_latest(self) -> tuple[dict[str, Tensor], Saved] | None:
        """The newest checkpoint, or None when there is none; damage is an error that names the way out."""
        paths = self.paths()
        if not paths:
            return None
        try:
            tensors, metadata = load_tensors(paths[-1])
            if "identity" not in metadata:
                raise CheckpointError(f"{paths[-1]} is not a checkpoint")
        except CheckpointError as error:
            raise CheckpointError(f"{error}; {self.way_out()}") from error
        with self.intact():
            saved = conform(metadata, Saved)
            if paths[-1].name != _name(saved.step):
                raise Mismatch(f"it is of step {saved.step}")
            return tensors, saved

    def intact(self) -> AbstractContextManager[None]:
        """A block in which the newest checkpoint is read, whose errors name it and the way out."""
        return intact(self.paths()[-1], self.way_out())

    def way_out(self) -> str:
        """What to do about a newest checkpoint that is damaged."""
        *before, _ = self.paths()
        if before:
            return f"delete it and resume again from the one before it, {before[-1].name}"
        return "there is no earlier one, so delete it and start again without --resume"


def _name(step: int) -> str:
    return f"step-{step:08d}.safetensors"


@dataclass(frozen=True)
class Saved:
    """What a checkpoint holds beside its tensors."""

    step: int
    identity: dict[str, Any]
    batches: dict[str, int]
    watch: dict[str, dict[str, int]]
    seconds: float
    numeric_path: dict[str, Any] | None = None
    """Older ones have none."""


def gather(prefix: str, state: dict[str, Any]) -> dict[str, Tensor]:
    """A module's state as named tensors."""
    return {f"{prefix}.{name}": tensor for name, tensor in state.items() if isinstance(tensor, Tensor)}


def scatter(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors below a prefix, under their own names."""
    start = f"{prefix}."
    return {name.removeprefix(start): tensor for name, tensor in tensors.items() if name.startswith(start)}


def restore(module: nn.Module, prefix: str, tensors: dict[str, Tensor]) -> None:
    """Load a module's state, or say which tensor does not fit."""
    try:
        module.load_state_dict(scatter(prefix, tensors))
    except RuntimeError as error:
        detail = " ".join(str(error).split("\n")[1:2]).strip()
        raise CheckpointError(f"the checkpoint belongs to another {prefix} ({detail})") from error
    if not all(bool(parameter.isfinite().all()) for parameter in module.parameters()):
        raise Mismatch(f"weights of the {prefix} are not finite")


def pack(modules: Mapping[str, nn.Module], about: Mapping[str, Any]) -> bytes:
    """What a store keeps of a training: a line of JSON about it, then the weights of modules under their names."""
    tensors: dict[str, Tensor] = {}
    for name, module in modules.items():
        tensors |= gather(name, module.state_dict())
    return json.dumps(about).encode() + b"\n" + save({name: tensor.contiguous() for name, tensor in tensors.items()})


def unpack(modules: Mapping[str, nn.Module], packed: bytes) -> dict[str, Any]:
    """Put weights back into modules as they were built, and return what was said about the training."""
    line, _, weights = packed.partition(b"\n")
    tensors = load(weights)
    for name, module in modules.items():
        restore(module, name, tensors)
    about: dict[str, Any] = json.loads(line)
    return about


def optimiser_tensors(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimiser's state as named tensors `optimiser.INDEX.KEY`."""
    state = optimiser.state_dict()["state"]
    return {
        f"optimiser.{index}.{key}": value
        for index, entries in state.items()
        for key, value in entries.items()
        if isinstance(value, Tensor)
    }


def restore_optimiser(optimiser: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Put back what `optimiser_tensors` took; learning rates are a function of the step and need no saving.

    Moments get the strides of their weights, whatever those in the file: a fused step goes through both as they lie in
    memory, and would otherwise give a weight the moments of another.
    """
    parameters = [parameter for group in optimiser.param_groups for parameter in group["params"]]
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in scatter("optimiser", tensors).items():
        index, key = name.split(".", 1)
        own = parameters[int(index)]
        if tensor.shape == own.shape:
            tensor = torch.empty_like(own, dtype=tensor.dtype, device=tensor.device).copy_(tensor)
        fits = tensor.ndim == 0 if key == "step" else (tensor.shape, tensor.dtype) == (own.shape, own.dtype)
        if not fits or not bool(tensor.isfinite().all()) or (key in KEPT_BY_ADAM[::2] and bool((tensor < 0).any())):
            raise Mismatch(f"optimiser.{name} is not the state of an optimiser")
        state.setdefault(int(index), {})[key] = tensor
    keys = ("momentum_buffer",) if isinstance(optimiser, torch.optim.SGD) else KEPT_BY_ADAM
    if any(kept.keys() != set(keys) for kept in state.values()):
        raise Mismatch("the state of the optimiser is not whole")
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})


def numeric_path(encoder: nn.Module, objective: nn.Module) -> dict[str, Any]:
    """What decides, beside the run itself, how its numbers are rounded: threads, kernel, strides not in row order."""
    state = {**gather("encoder", encoder.state_dict()), **gather("objective", objective.state_dict())}
    return {
        "threads": torch.get_num_threads(),
        "compiled kernel": kernels.variant(),
        "strides": {name: list(tensor.stride()) for name, tensor in state.items() if not tensor.is_contiguous()},
    }


def departure(path: dict[str, Any], before: dict[str, Any]) -> str | None:
    """In what a resumed run's numeric path is not that of its checkpoint, and what follows; None where it is."""
    changed = [name for name in ("threads", "compiled kernel") if path[name] != before[name]]
    changes = [f"{name} = {path[name]} in place of {before[name]}" for name in changed]
    if path["strides"] != before["strides"]:
        changes.append("weights in another order in memory")
    rounding = "numbers may differ in their last bits from those of a run that was never stopped"
    return f"resumed with {' and '.join(changes)}: {rounding}" if changes else None
