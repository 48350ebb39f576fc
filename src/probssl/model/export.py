"""A model's network for other programs: ONNX, or what `torch.export` writes."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import torch

from probssl.errors import InputError, MissingExtra
from probssl.files import atomic_path, write_text
from probssl.model.model import Model

FORMATS = ("onnx", "torch")


def export(model: Model, path: str | os.PathLike[str], to: str = "onnx") -> Path:
    """Write the network from raw numbers [n, …] to representations [n, dim], and beside it a JSON document.

    The document names the columns in the order in which the network takes them. Rows are double precision, images
    single precision from 0 to 1; any number of them.
    """
    path = Path(path)
    if to not in FORMATS:
        raise InputError(f"networks are exported to {' or '.join(FORMATS)}, not {to!r}")
    module, shape = model.module(), model.facts.shape
    sample = torch.rand(4, *shape, dtype=torch.float32 if model.of_images else torch.float64)
    rows = {"x": {0: torch.export.Dim("rows", min=1)}}
    with atomic_path(path) as temporary, _hushed(), torch.no_grad():
        if to == "torch":
            torch.export.save(torch.export.export(_Named(module), (sample,), dynamic_shapes=rows), temporary)
        else:
            try:
                import onnxscript  # noqa: F401
            except ImportError:
                raise MissingExtra("exporting to ONNX", "onnx") from None
            program = torch.onnx.export(
                _Named(module),
                (sample,),
                dynamo=True,
                dynamic_shapes=rows,
                input_names=["x"],
                output_names=["z"],
                verbose=False,
            )
            assert program is not None
            program.save(str(temporary), include_initializers=True, external_data=False)
    described = description_of(path)
    document = {
        "shape": list(shape),
        "columns": list(model.feature_names),
        "dtype": str(sample.dtype).removeprefix("torch."),
        "dim": model.dim,
    }
    write_text(described, json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    return described


def description_of(path: Path) -> Path:
    """The JSON document beside an exported network."""
    return path.with_name(f"{path.name}.json")


@contextlib.contextmanager
def _hushed() -> Iterator[None]:
    """Without the exporter's warnings, which are about its own ways."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


class _Named(torch.nn.Module):
    """The network, its input called x."""

    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)
