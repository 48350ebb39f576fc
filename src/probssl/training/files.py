"""Tensors on disk: safetensors with JSON metadata and a checksum, written whole or not at all."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from probssl.errors import CheckpointError
from probssl.files import atomic_path


def save_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> None:
    """Write tensors and JSON metadata to one safetensors file, atomically, with a checksum over both."""
    from safetensors.torch import save_file

    held = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in sorted(tensors.items())}
    text = json.dumps(metadata, sort_keys=True)
    header = {"probssl": f"{_digest(held, text)} {text}"}  # one entry: the order of several is random in the file
    size = len(text) + sum(tensor.nbytes for tensor in held.values())
    with atomic_path(path, size) as temporary:
        save_file(held, temporary, metadata=header)


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what `save_tensors` wrote; any damage gives a `CheckpointError` that names the file."""
    from safetensors import safe_open

    if not path.is_file():
        raise CheckpointError(f"{path} does not exist")
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 - not a mapping
    except Exception as error:  # a header can be wrong in any way
        said = " ".join(str(error).split())[:120]
        raise CheckpointError(f"{path} is damaged and cannot be read ({said})") from error
    if "probssl" not in header:
        raise CheckpointError(f"{path} was not written by probssl")
    digest, _, text = header["probssl"].partition(" ")
    if _digest(tensors, text) != digest:
        raise CheckpointError(f"{path} does not match its checksum: it was changed after being written")
    metadata = json.loads(text)
    if not isinstance(metadata, dict):
        raise CheckpointError(f"{path} was not written by probssl")
    return tensors, metadata


def fingerprint(tensor: Tensor) -> str:
    """A short hash of a tensor's type, shape and values."""
    return _digest({"": tensor.detach().cpu()}, "")[:16]


def _digest(tensors: Mapping[str, Tensor], text: str) -> str:
    digest = hashlib.sha256(text.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"\0{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        digest.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
