"""The contract of every objective: named terms of a loss, weighted and summed in one place."""

from __future__ import annotations

import abc
import math
from collections.abc import Iterator, Mapping
from typing import ClassVar, Literal, final

from torch import Tensor, nn

from probssl.energies import Energy
from probssl.errors import InputError, NonFiniteLoss
from probssl.pairings.views import Needs, Views
from probssl.parts.part import Part

Pair = Literal["original", "augmented"]


class Summed(dict[str, Tensor]):
    """Terms together with their sum, for an objective that has it at hand: it is then not computed again.

    A copy with more terms is an ordinary dictionary, and one that was changed in place is no longer complete.
    """

    def __init__(self, values: dict[str, Tensor], total: Tensor) -> None:
        super().__init__(values)
        self.total = total
        self._given = tuple(values.items())

    @property
    def complete(self) -> bool:
        """Whether the sum is still that of the terms."""
        return len(self) == len(self._given) and all(self.get(name) is value for name, value in self._given)


class Terms(Mapping[str, Tensor]):
    """Named parts of a loss with their weights; `total` is what is minimised.

    `values` are the parts by name, `weights` those that are not 1.
    """

    total: Tensor

    def __init__(self, values: dict[str, Tensor], weights: Mapping[str, float]) -> None:
        self._values = values
        if not weights.keys() <= self._values.keys():
            unknown = ", ".join(sorted(weights.keys() - self._values.keys()))
            raise InputError(f"there is no term {unknown} to weight: the terms are {', '.join(self._values)}")
        if isinstance(values, Summed) and values.complete and not weights:
            self.total = values.total
        else:
            parts = [value * weights[name] if name in weights else value for name, value in self._values.items()]
            self.total = sum(parts[1:], parts[0])

    def __getitem__(self, name: str) -> Tensor:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def numbers(self) -> dict[str, float]:
        """Every term, unweighted, and the weighted `loss`, as Python numbers."""
        return {"loss": self.total.item(), **{name: value.item() for name, value in self._values.items()}}

    def check_finite(self) -> float:
        """The total as a number; raises `NonFiniteLoss` naming the terms at fault when it is not finite."""
        total = self.total.item()
        if not math.isfinite(total):
            guilty = {name: value.item() for name, value in self._values.items() if not math.isfinite(value.item())}
            named = ", ".join(f"{name} = {value}" for name, value in guilty.items()) or f"total = {total}"
            raise NonFiniteLoss(f"the loss is not finite ({named})")
        return total


class Objective(Part, nn.Module, abc.ABC):
    """One way to fit q(x | x̃) ∝ p(x) e^{−δ(x, x̃)}, as a loss to minimise.

    A subclass sets `energy` and `needs` and writes `terms`: the maths and nothing else. Terms are means over the
    batch, finite unless the input itself is near overflow, and a pure function of parameters and views. Parameters of
    its own (bias networks, predictors, concentrations) are made in `build` and may have their own learning rate.

    Settings:
        energy: what "alike" means between embeddings.
        pair: "original" pairs a data point with its augmentation, (x, x̃), "augmented" two augmentations, (x̃₁, x̃₂).
    """

    needs: Needs
    energy: Energy
    weights: dict[str, float]

    admits: ClassVar[dict[str, str]] = {}
    """Collapses that this loss does not rule out, with reasons: `representation`, `dimension`, `cluster`, `label`."""

    family: ClassVar[str] = ""
    """What it has in common with others, in a few words: figures group by it."""

    compares_views: ClassVar[bool] = False
    """Whether it compares views within one side or brings its own asymmetry, so that its energy must be symmetric."""

    scores: ClassVar[bool] = False
    """Whether it needs the score ∇ₓ log p(x̃ | x) of the pairing."""

    decodes: ClassVar[bool] = False
    """Whether a decoder makes observations from the representation."""

    samples: ClassVar[bool] = False
    """Whether it is a density, whose samples it draws as it trains."""

    learns: ClassVar[Literal["posterior", "ratio"]] = "posterior"
    """Which energy it wants: −log p(x̃ | x) up to a function of x̃, or minus the log density ratio of related pairs."""

    rowwise: ClassVar[bool] = False
    """Whether every term is a mean of one number a row, which depends on that row alone, with no memory between
    batches. Several processes then take their rows each; otherwise all of them see the whole batch."""

    pair_matrices: ClassVar[int] = 0
    """Matrices over all pairs of a batch that it holds at a time; none where pairs are summed block by block."""

    limited_by_batch: bool = False
    """Whether it can show log n nats at most with batches of n."""

    def __init__(self, energy: Energy, needs: Needs) -> None:
        super().__init__()
        self.energy = energy
        self.needs = needs
        self.weights = {}

    @abc.abstractmethod
    def terms(self, encoder: nn.Module, views: Views) -> dict[str, Tensor]:
        """The named terms of the loss, each a scalar mean over the batch (`Summed` where their sum is at hand)."""

    def observations(self, x: Tensor) -> Tensor:
        """The observations that an encoder takes, of rows of data [n, ...], which may each hold several."""
        return x

    def encoders(self) -> list[nn.Module]:
        """Networks of its own that take observations, as the encoder does: the work of which processes share too."""
        return self.energy.encoders()

    def optimum(self, batch_size: int, dim: int) -> float | None:
        """The greatest lower bound of the loss that holds for every data set, where one is known."""
        return None

    def with_energy(self, energy: Energy) -> Objective | None:
        """This loss for another energy, without a bias; None where its optimum is not an energy on pairs (x, x̃).

        With the true energy of `reference` it is the least that any encoder can reach on a data set; with δ = 0 it is
        what a constant encoder gets.
        """
        return None

    def without_sampling(self) -> Objective:
        """The loss that this one estimates, where it draws at random more than pairs: what it is measured by."""
        return self

    @final  # type: ignore[misc]
    def forward(self, encoder: nn.Module, views: Views, weights: Mapping[str, float] | None = None) -> Terms:
        """The loss of `encoder` on a batch; with other `weights` of its terms than its own, where given."""
        if self.unbound:
            raise InputError(
                f"{type(self).__name__} has no parameters yet: bind it first, as {type(self).__name__}(…).bind(dim=8)"
            )
        return Terms(self.terms(encoder, views), self.weights if weights is None else weights)


class PairObjective(Objective):
    """An objective over one positive pair per data point: (x, x̃), as Siamese-EBM derives, or (x̃₁, x̃₂), as is customary
    for images.

    It may need the pairing's `score`, or `negatives`.
    """

    def __init__(
        self, energy: Energy, *, pair: Pair = "original", score: bool = False, negatives: bool = False
    ) -> None:
        if pair not in ("original", "augmented"):
            raise InputError(f"pair is 'original' or 'augmented', not {pair!r}")
        super().__init__(energy, Needs(augmented=2 if pair == "augmented" else 1, score=score, negatives=negatives))
        self.pair = pair

    def embed_pair(self, encoder: nn.Module, views: Views) -> tuple[Tensor, Tensor]:
        """Embeddings of the two sides of every positive pair: [n, m] and [n, m]."""
        if len(views.augmented) < self.needs.augmented:
            raise InputError(f"pair='augmented' needs two augmented views, not {len(views.augmented)}")
        if self.pair == "augmented":
            first, second = views.augmented[0], views.augmented[1]
        else:
            first, second = views.x, views.augmented[0]
        if len(first) < 2:
            raise InputError("a contrastive batch needs at least two data points")
        return self.energy.embed(encoder, first), self.energy.embed_augmented(encoder, second)
