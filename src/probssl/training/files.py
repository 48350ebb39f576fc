"""Writing that never leaves half a file: tensors as safetensors with JSON metadata and a checksum."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from probssl.errors import CheckpointError


@contextlib.contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` that takes its place, synced to disk, when the block ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.partial")
    temporary.touch(exist_ok=False)
    permissions = temporary.stat().st_mode  # as the user's umask has them, whatever the writer makes of it
    try:
        yield temporary
        with temporary.open("r+b") as written:
            os.fsync(written.fileno())
        os.chmod(temporary, permissions)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def save_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> None:
    """Write tensors and JSON metadata to one safetensors file, atomically, with a checksum over both."""
    from safetensors.torch import save_file

    held = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in sorted(tensors.items())}
    text = json.dumps(metadata, sort_keys=True)
    header = {"probssl": f"{_digest(held, text)} {text}"}  # one entry: the order of several is random in the file
    with atomic_path(path) as temporary:
        save_file(held, temporary, metadata=header)


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what `save_tensors` wrote; any damage gives a `CheckpointError` that names the file."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise CheckpointError(f"{path} does not exist")
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 - not a mapping
    except (SafetensorError, OSError, ValueError, RuntimeError) as error:
        raise CheckpointError(f"{path} is damaged and cannot be read ({_one_line(error)})") from error
    if "probssl" not in header:
        raise CheckpointError(f"{path} was not written by probssl")
    digest, _, text = header["probssl"].partition(" ")
    if _digest(tensors, text) != digest:
        raise CheckpointError(f"{path} does not match its checksum: it was changed after it was written")
    return tensors, json.loads(text)


def fingerprint(tensor: Tensor) -> str:
    """A short hash of a tensor's type, shape and values."""
    return _digest({"": tensor.detach().cpu()}, "")[:16]


def _digest(tensors: Mapping[str, Tensor], text: str) -> str:
    digest = hashlib.sha256(text.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"\0{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        digest.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:120]
