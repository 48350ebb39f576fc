"""Names of parts: from what a recipe or the command line calls one to its class, without importing torch.

A name stands for a class, or for a class with settings that were published under it (a preset). Other packages add
names through entry points, in groups called `probssl.objectives`, `probssl.energies`, …; each points to a class.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Union

from probssl.errors import InputError, UnknownPart

LISTED = 12
"""Names that an error lists at most."""


@dataclass(frozen=True)
class Entry:
    """One name: where its class is, what it is in a few words, and the settings that the name fixes."""

    name: str
    target: str
    """`module:Class`."""
    about: str
    preset: Mapping[str, Any] = field(default_factory=dict)
    beside: Mapping[str, str] = field(default_factory=dict)
    """Parts that it was published with, by slot of a recipe, which it gets unless others are chosen."""
    plugin: bool = False
    """Whether another package brings it."""

    def load(self) -> type:
        """The class."""
        module, _, name = self.target.partition(":")
        try:
            found: type = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError, ValueError) as error:
            where = "" if self.name == self.target else f", which {self.name!r} stands for,"
            raise InputError(f"{self.target}{where} cannot be imported ({error})") from error
        if not isinstance(found, type):
            raise InputError(f"{self.target} is not a class")
        return found


class Registry(Mapping[str, Entry]):
    """The names of one kind of part."""

    def __init__(self, kind: str, plural: str, base: str, *entries: Entry) -> None:
        self.kind, self.plural, self.base = kind, plural, base
        self._own = {entry.name: entry for entry in entries}

    @functools.cached_property
    def entries(self) -> dict[str, Entry]:
        """Ours, then those of other packages, which cannot take a name of ours."""
        from importlib.metadata import entry_points

        found = {
            point.name: Entry(
                point.name, point.value, f"from the package {point.module.partition('.')[0]}", plugin=True
            )
            for point in entry_points(group=f"probssl.{self.plural}")
        }
        return {**self._own, **{name: entry for name, entry in found.items() if name not in self._own}}

    def __getitem__(self, name: str) -> Entry:
        return self.entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def find(self, name: str, *, own: bool = False) -> Entry:
        """The entry of a name; `InputError` with a suggestion where there is none. With `own`, of ours alone.

        A name with a colon is that of a class, "package.module:Class".
        """
        known = self._own if own else self.entries
        if name in known:
            return known[name]
        if ":" in name and not own:
            return Entry(name, name, "your own class", plugin=True)
        if ":" in name or name in self.entries:
            raise InputError(f"the {self.kind} {name!r} comes from another package: {name_again(self.kind, name)}")
        close = difflib.get_close_matches(name, known, 1) or [entry for entry in known if name and name in entry]
        listed = f"choose one of {', '.join(known)}" if len(known) <= LISTED else f"see probssl parts {self.kind}"
        hint = f"did you mean {close[0]!r}?" if close else f"{listed} (parts of another package need it installed)"
        raise UnknownPart(f"there is no {self.kind} {name!r}: {hint}")

    def name_of(self, cls: type) -> str | None:
        """The name of a class of ours: the one that fixes no settings, where there is one."""
        path = f"{cls.__module__}:{cls.__qualname__}"
        names = [entry.name for entry in self._own.values() if entry.target == path]
        return min(names, key=lambda name: bool(self._own[name].preset), default=None)


def name_again(kind: str, name: str) -> str:
    """What to do about a part that a file may name, and only a person may have imported."""
    options = f"with --{kind} {name} of fit, --part {kind}={name} of other commands"
    return f"name it again, {options}, or {kind}=… in Python"


def _entries(module: str, *lines: tuple[Any, ...]) -> list[Entry]:
    return [Entry(name, f"probssl.{module}{target}", about, *preset) for name, target, about, *preset in lines]


KINDS: dict[str, Registry] = {
    registry.kind: registry
    for registry in (
        Registry(
            "objective",
            "objectives",
            "probssl.objectives.base:Objective",
            *_entries(
                "objectives.",
                ("infonce", "infonce:InfoNCE", "InfoNCE, the KL loss: sample the normaliser"),
                ("debiased", "debiased:DebiasedInfoNCE", "InfoNCE corrected for negatives that are related in truth"),
                ("snl", "normalised:SNL", "self-normalised likelihood: learn the normaliser"),
                ("nce", "normalised:NCE", "noise-contrastive estimation: classify against it"),
                ("fisher", "fisher:Fisher", "Fisher divergence: differentiate it away, no negatives"),
                ("sliced-fisher", "fisher:SlicedFisher", "the same along random directions: no second derivative"),
                ("jensen-shannon", "divergences:JensenShannon", "logistic loss on pairs with one bias, as SigLIP"),
                ("chi-squared", "divergences:ChiSquared", "least squares on the density ratio: the Brier score"),
                ("renyi", "divergences:RenyiInfoNCE", "Rényi divergence of an order of choice; at 1 it is InfoNCE"),
                ("simclr", "infonce:InfoNCE", "NT-Xent over both views", {"candidates": "two-view"}),
                ("spectral", "contrast:Spectral", "spectral contrastive loss"),
                ("triplet", "contrast:Triplet", "triplet loss with a margin"),
                ("simsiam", "contrast:SimSiam", "SimSiam: predictor and stop-gradient, no negatives"),
                ("barlow", "redundancy:BarlowTwins", "Barlow Twins: correlations between views near the identity"),
                ("vicreg", "redundancy:VICReg", "VICReg: close pairs, standard deviations above 1, no covariances"),
                ("wmse", "redundancy:WMSE", "W-MSE: cosine of whitened pairs"),
                (
                    "corinfomax",
                    "redundancy:CorInfoMax",
                    "CorInfoMax: close pairs, a large determinant of the covariance",
                ),
                (
                    "aninfonce",
                    "infonce:InfoNCE",
                    "AnInfoNCE: InfoNCE on the unit sphere, with a learnt concentration per dimension",
                    {"candidates": "originals", "energy": {"name": "anisotropic", "normalise": True}},
                ),
                ("tricl", "contrast:TriCL", "TriCL: contrast with learnt importances, and decorrelation"),
                ("align-uniform", "latents:AlignUniform", "alignment and uniformity, weighed"),
                ("ensemble", "latents:Ensemble", "several losses, one for each of several relatives"),
                ("latent-regression", "latents:LatentRegression", "regression on the latents of a world: a bound"),
                ("swav", "clustering:SwAV", "SwAV: predict the balanced cluster code of the other view"),
                ("protocpc", "clustering:ProtoCPC", "ProtoCPC: contrast clusters in place of observations"),
                (
                    "deepcluster",
                    "memory:DeepClustering",
                    "DeepCluster: predict what k-means makes of the representation",
                ),
                ("instance", "memory:InstanceDiscrimination", "instance discrimination: every row a class of its own"),
                ("gedi", "gedi:GEDI", "GEDI: clusters and a density of the rows in one network"),
                ("jem", "gedi:GEDI", "JEM: the density alone", {"generative": 1.0, "invariance": 0.0, "balance": 0.0}),
                ("ebclr", "gedi:EBCLR", "EBCLR: InfoNCE whose logits are a density too"),
                ("vae", "generative:VAE", "VAE: latents that the rows can be made from again", {"of": "data"}),
                ("beta-vae", "generative:VAE", "β-VAE: fewer, more independent latents", {"of": "data", "beta": 4.0}),
                ("cr-vae", "generative:CRVAE", "CR-VAE: latents that an augmentation moves little"),
                ("simvae", "generative:SimVAE", "SimVAE: latents of related rows lie around a mean of their own"),
                ("moco", "momentum:MoCo", "MoCo: InfoNCE against many remembered keys of a slow teacher"),
                (
                    "mocov2",
                    "momentum:MoCo",
                    "MoCo v2: the same behind a head",
                    {"temperature": 0.2},
                    {"head": "projection"},
                ),
                ("byol", "momentum:BYOL", "BYOL: predict a slow teacher, no negatives"),
            ),
        ),
        Registry(
            "energy",
            "energies",
            "probssl.energies:Energy",
            *_entries(
                "energies:",
                ("euclidean", "Euclidean", "half the squared distance"),
                ("cosine", "Cosine", "(1 − cos) / temperature"),
                ("pnorm", "PNorm", "sum of |difference|^p"),
                ("dot", "Dot", "−⟨a, b⟩ / temperature"),
                ("student", "Student", "heavy tails: the kernel of Student's t, as in t-SNE"),
                ("anisotropic", "Anisotropic", "half the squared distance, each dimension with its own learnt weight"),
                ("asymmetric", "Asymmetric", "another energy, the augmented side with a map of its own"),
            ),
        ),
        Registry(
            "pairing",
            "pairings",
            "probssl.pairings.views:Pairing",
            *_entries(
                "pairings.",
                ("mask-and-noise", "masking:MaskAndNoise", "features set to 0 at random, and noise"),
                ("columns", "columns:ResampledColumns", "columns of any kind drawn from their marginals, or masked"),
                (
                    "scarf",
                    "columns:ResampledColumns",
                    "most columns drawn from their marginals, without noise, as in SCARF",
                    {"preservation": 0.4, "noise": 0.0},
                ),
                ("gaussian-noise", "gaussian:GaussianNoise", "Gaussian noise"),
                ("rotations", "gaussian:Rotations", "rotations of the plane, and noise"),
                ("linear-mixture", "gaussian:LinearMixture", "one of several linear maps, and noise"),
                ("hard-negatives", "composed:HardNegatives", "another pairing, with hard negatives for every row"),
                ("in-turn", "composed:InTurn", "several pairings in turn, one for each loss of an ensemble"),
                ("image", "images:ImageAugmentation", "crops, flips, colours, blur and noise, each as strong as asked"),
                (
                    "countable-image",
                    "image_score:CountableImageAugmentation",
                    "flips, shifts and noise: an exact density",
                ),
                *(
                    (name, "images:ImageAugmentation", f"the image augmentations of {whose}", {"strengths": name})
                    for name, whose in (
                        ("simclr-cifar", "SimCLR on CIFAR"),
                        ("siamese-cifar", "Siamese-EBM on CIFAR"),
                        ("siamese-fisher", "Siamese-EBM's Fisher loss"),
                        ("siamese-digits", "Siamese-EBM's Fisher loss on digits"),
                        ("gedi-svhn", "GEDI on SVHN"),
                        ("gedi-cifar10", "GEDI on CIFAR-10"),
                        ("gedi-cifar100", "GEDI on CIFAR-100"),
                        ("gedi-mnist", "GEDI on MNIST"),
                        ("simvae-mnist", "SimVAE on MNIST"),
                        ("simvae-fashion", "SimVAE on Fashion-MNIST"),
                        ("simvae-cifar10", "SimVAE on CIFAR-10"),
                        ("simvae-celeba", "SimVAE on CelebA"),
                    )
                ),
            ),
        ),
        Registry(
            "encoder",
            "encoders",
            "probssl.encoders.mlp:Encoder",
            *_entries(
                "encoders.",
                ("mlp", "mlp:MLP", "a multilayer perceptron"),
                (
                    "table",
                    "mlp:MLP",
                    "a multilayer perceptron beside a linear map that begins at PCA",
                    {"hidden": (256, 256), "linear": "pca"},
                ),
                ("conv", "conv:ConvEncoder", "convolutions that halve the image, then a hidden layer"),
                ("resnet8", "resnet:ResNet8", "GEDI's residual network"),
                ("resnet18", "resnet18:ResNet18", "ResNet-18, for small images unless told otherwise"),
                (
                    "latent",
                    "latents:LatentEncoder",
                    "whitening, a leaky MLP and, on request, the sphere: to recover latents",
                ),
            ),
        ),
        Registry(
            "head",
            "heads",
            "probssl.encoders.heads:ProjectionHead",
            *(
                Entry(name, "probssl.encoders.heads:ProjectionHead", about, preset)
                for name, about, preset in (
                    ("projection", "linear maps with ReLU between them", {}),
                    ("simclr", "SimCLR's; also that of Siamese-EBM's models of images", {"dim": 128}),
                    ("moco-v2", "MoCo v2's", {"dim": 128}),
                    ("byol", "BYOL's", {"hidden": 4096, "dim": 256, "batch_norm": True}),
                    ("simsiam", "SimSiam's", {"layers": 3, "batch_norm": True, "last_norm": True}),
                    ("barlow", "Barlow Twins'", {"layers": 3, "hidden": 8192, "dim": 8192, "batch_norm": True}),
                    ("vicreg", "VICReg's", {"layers": 3, "hidden": 8192, "dim": 8192, "batch_norm": True}),
                    ("swav", "SwAV's", {"hidden": 2048, "dim": 128, "batch_norm": True}),
                )
            ),
        ),
        Registry(
            "decoder",
            "decoders",
            "probssl.encoders.decoders:Decoder",
            *_entries(
                "encoders.decoders:",
                ("mirror", "MirrorDecoder", "the mirror image of the encoder"),
                ("mlp", "MLPDecoder", "a multilayer perceptron"),
                ("conv", "ConvDecoder", "transposed convolutions that double the image"),
                ("residual", "ResidualDecoder", "residual blocks that double the image"),
            ),
        ),
        Registry(
            "likelihood",
            "likelihoods",
            "probssl.objectives.generative:Likelihood",
            *_entries(
                "objectives.generative:",
                ("columns", "ColumnsLikelihood", "for tables: numbers with a variance each, levels and gaps"),
                ("gaussian", "GaussianLikelihood", "every number with normal errors of one variance"),
                ("bernoulli", "BernoulliLikelihood", "every number a chance from 0 to 1, for images"),
            ),
        ),
        Registry(
            "bias",
            "biases",
            "probssl.objectives.normalised:Bias",
            *_entries(
                "objectives.normalised:",
                ("network", "BiasNetwork", "a small network of the embedding"),
                ("none", "NoBias", "0, for energies that are normalised already"),
            ),
        ),
        Registry(
            "sampler",
            "samplers",
            "probssl.samplers.sgld:SGLD",
            *_entries("samplers.sgld:", ("sgld", "SGLD", "stochastic gradient Langevin dynamics")),
        ),
    )
}
"""Every kind of part by what recipes call it."""


def options_of(annotation: Any) -> tuple[Any, ...]:
    """The alternatives of a union, or the annotation alone."""
    if typing.get_origin(annotation) in (Union, types.UnionType):
        return tuple(option for inner in typing.get_args(annotation) for option in options_of(inner))
    return (annotation,)


def registry_of(options: Sequence[Any]) -> Registry | None:
    """The registry whose parts a setting takes."""
    for option in options:
        if isinstance(option, type):
            for registry in KINDS.values():
                path = [f"{base.__module__}:{base.__qualname__}" for base in option.__mro__]
                if registry.base in path:
                    return registry
    return None
