"""The model that training begins with: new weights, those of another run, or those of a file."""

from __future__ import annotations

import os
from pathlib import Path

from probssl.data import Dataset, Preparation
from probssl.errors import InputError
from probssl.model import Model
from probssl.parts.resolve import Resolved
from probssl.runs.folder import Run
from probssl.training.loop import make_optimiser


def starting_model(
    resolved: Resolved,
    data: Dataset,
    preparation: Preparation | None,
    base: Run | None,
    weights: str | os.PathLike[str] | None,
) -> Model:
    """A model for data that is prepared so, with the weights of `base` and the encoder's of a file, where given."""
    model = Model.of(resolved, data, preparation)
    if base is not None:
        _take_over(model, base)
    if weights is not None:
        _load_weights(model, Path(weights))
    make_optimiser(model.encoder, model.objective, resolved.plan)  # refuses where nothing would be trained
    return model


def _take_over(model: Model, base: Run) -> None:
    """Begin with the weights of another run, as far as the parts are the same."""
    from probssl.training.checkpoints import gather, restore

    theirs = gather("encoder", base.model.encoder.state_dict())
    try:
        restore(model.encoder, "encoder", theirs)
        if type(model.objective) is type(base.model.objective):
            restore(model.objective, "objective", gather("objective", base.model.objective.state_dict()))
    except InputError as error:
        raise InputError(f"the weights of {base.folder} do not fit this recipe: {error}") from error


def _load_weights(model: Model, path: Path) -> None:
    """Put weights from a safetensors file into the encoder."""
    import safetensors.torch

    try:
        tensors = safetensors.torch.load_file(path)
    except (OSError, safetensors.SafetensorError) as error:
        raise InputError(f"{path} cannot be read as a safetensors file ({error})") from error
    backbone = model.backbone
    for prefix in ("", "encoder.", "backbone."):
        found = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
        if found.keys() & backbone.state_dict().keys():
            break
    try:
        backbone.load_state_dict(found)
    except RuntimeError as error:
        detail = " ".join(str(error).split("\n")[1:2]).strip()
        raise InputError(f"the weights in {path} do not fit the encoder ({detail})") from error
