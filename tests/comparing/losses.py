"""Parts of nobody's registry, as a person would write them beside a script."""

from torch import Tensor, nn

from probssl.energies import Cosine, Energy
from probssl.objectives import PairObjective
from probssl.pairings import SampledPairing, Views

SCALE = 0.5


def spread(distances: Tensor) -> Tensor:
    """How far apart embeddings are."""
    return SCALE * distances.clamp(max=1.5).mean()


class PushAndPull(PairObjective):
    """Mean energy of pairs minus that of all others.

    Settings:
        energy: what "alike" means between embeddings.
        push: how much the others count.
    """

    family = "of my own"

    def __init__(self, energy: Energy | None = None, push: float = 1.0) -> None:
        super().__init__(Cosine(1.0) if energy is None else energy)
        self.push = push

    def terms(self, encoder: nn.Module, views: Views) -> dict[str, Tensor]:
        a, b = self.embed_pair(encoder, views)
        return {"pull": self.energy.paired(a, b).mean(), "push": -self.push * spread(self.energy.pairwise(a, b))}


class Shifted(SampledPairing):
    """Every row moved by numbers of its own.

    Settings:
        width: of these numbers.
    """

    def __init__(self, width: float = 0.1) -> None:
        super().__init__()
        self.width = width

    def sample(self, x: Tensor, generator: object = None) -> Tensor:
        import torch

        return x + self.width * torch.randn(x.shape, generator=generator)
