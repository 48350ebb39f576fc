"""Checkpoints: everything a run needs to go on as if it had never stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from probssl import kernels
from probssl.errors import CheckpointError
from probssl.training.files import load_tensors, save_tensors

KEPT = 2
"""How many checkpoints stay on disk: the newest and the one before it."""


class CheckpointFolder:
    """`step-XXXXXXXX.safetensors` files in a folder, newest kept together with the one before it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def paths(self) -> list[Path]:
        """The checkpoints on disk, oldest first."""
        return sorted(self.folder.glob("step-*.safetensors"))

    def clean(self, *, keep_checkpoints: bool) -> None:
        """Remove what a killed run left half written and, for a fresh start, the checkpoints."""
        stale = list(self.folder.glob(".step-*.partial"))
        for path in stale if keep_checkpoints else [*stale, *self.paths()]:
            path.unlink(missing_ok=True)

    def save(self, step: int, tensors: dict[str, Tensor], metadata: dict[str, Any]) -> Path:
        """Write the checkpoint of `step`, then drop all but the newest two."""
        path = self.folder / f"step-{step:08d}.safetensors"
        save_tensors(path, tensors, {"step": step, **metadata})
        for old in self.paths()[:-KEPT]:
            old.unlink(missing_ok=True)
        return path

    def load_latest(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """The newest checkpoint, or None when there is none; damage is an error that names the way out."""
        paths = self.paths()
        if not paths:
            return None
        try:
            tensors, metadata = load_tensors(paths[-1])
            if "identity" not in metadata:
                raise CheckpointError(f"{paths[-1]} is not a checkpoint")
            return tensors, metadata
        except CheckpointError as error:
            way_out = (
                f"delete it and resume again from the one before it, {paths[-2].name}"
                if len(paths) > 1
                else "there is no earlier one, so delete it and start again without --resume"
            )
            raise CheckpointError(f"{error}; {way_out}") from error


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
        state.setdefault(int(index), {})[key] = tensor
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
