"""Data sets that go by a name: `pmlb:letter`, `sklearn:digits`, `toy:circles`, `world:sphere10`, `mnist`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from probssl.data.columns import Columns, generated_names
from probssl.data.directory import NotOnServer, Progress, cache_directory, data_directory, download, find
from probssl.data.files import open_array
from probssl.data.images import NAMED as IMAGES
from probssl.data.images import fetch_images, find_images
from probssl.data.text import open_text
from probssl.data.wording import did_you_mean, quoted
from probssl.errors import InputError

PMLB_COMMIT = "7c1f4bdc00136dc2e55c87fa6b8ba6e8af6d1a68"
PMLB_URL = f"https://github.com/EpistasisLab/pmlb/raw/{PMLB_COMMIT}/datasets/{{name}}/{{name}}.tsv.gz"
"""Where the Penn Machine Learning Benchmark (Romano et al., 2021) keeps its files, as of February 2025."""

# rows, dimensions, classes: Table 1 of "Novel Losses for Contrastive Learning using Siamese Energy-Based Models"
_PMLB: dict[str, tuple[int, int, int, str]] = {
    "analcatdata_authorship": (841, 70, 4, "counts of function words in chapters of four authors"),
    "appendicitis": (106, 7, 2, "medical measures of patients with and without appendicitis"),
    "churn": (5000, 20, 2, "customers of a telephone company, and whether they left"),
    "collins": (485, 23, 13, "linguistic scores of English texts, by genre"),
    "led24": (3200, 24, 10, "a seven-segment display with noise and 17 irrelevant bits, by digit"),
    "letter": (20000, 16, 26, "statistics of images of capital letters"),
    "optdigits": (5620, 64, 10, "handwritten digits as 8 by 8 counts of pixels"),
    "satimage": (6435, 36, 6, "satellite pixels and their neighbours, by kind of ground"),
    "shuttle": (58000, 9, 7, "readings of the space shuttle's sensors, by state"),
    "sonar": (208, 60, 2, "sonar echoes of rocks and of mines"),
    "spambase": (4601, 57, 2, "frequencies of words and characters in e-mail, spam or not"),
    "spectf": (349, 44, 2, "features of heart scans, normal or not"),
    "texture": (5500, 40, 11, "statistics of pictures of natural textures"),
    "vehicle": (846, 18, 4, "shape features of the silhouettes of vehicles"),
    "waveform_40": (5000, 40, 3, "noisy mixtures of two of three waves, and 19 columns of noise"),
    "wine_quality_red": (1599, 11, 6, "chemistry of red wines, by quality"),
    "wine_quality_white": (4898, 11, 7, "chemistry of white wines, by quality"),
    "yeast": (1479, 8, 9, "protein features, by place in the yeast cell"),
}
_SKLEARN: dict[str, tuple[int, int, int, str]] = {
    "iris": (150, 4, 3, "sepals and petals of three species of iris"),
    "wine": (178, 13, 3, "chemistry of wines of three growers"),
    "digits": (1797, 64, 10, "handwritten digits as 8 by 8 pixels"),
    "breast_cancer": (569, 30, 2, "cell nuclei of breast tumours, malignant or benign"),
}
_TOYS: dict[str, tuple[int, int, int, str]] = {
    "circles": (200, 2, 2, "two concentric circles with noise"),
    "moons": (1000, 2, 2, "two interleaving half circles with noise"),
}
WORLD_ROWS = 5000
"""Observations that a world is loaded as; training draws others, afresh."""

# Ten dimensions stand for any from 2 to 64.
_WORLDS: dict[str, tuple[int, int, None, str]] = {
    "sphere10": (WORLD_ROWS, 10, None, "latents uniform on the sphere, positives von Mises–Fisher"),
    "box10": (WORLD_ROWS, 10, None, "latents uniform in the unit box, positives Laplace"),
    "normal10": (WORLD_ROWS, 10, None, "latents normal, positives normal"),
    "anisotropic10": (WORLD_ROWS, 10, None, "latents uniform on the sphere, half of them more stable than the others"),
}
_FAMILIES: dict[str, Mapping[str, tuple[int, int, int | None, str]]] = {
    "pmlb": _PMLB,
    "sklearn": _SKLEARN,
    "toy": _TOYS,
    "world": _WORLDS,
}
_WHERE = {"sklearn": "comes with scikit-learn", "toy": "drawn from the seed", "world": "drawn from the seed"}


@dataclass(frozen=True)
class DataSet:
    """One line of the catalogue. Sizes are None for a file that is here but was not published in a paper we follow."""

    name: str
    about: str
    rows: int | None
    dimensions: int | None
    classes: int | None
    present: bool
    where: str
    """The file when it is here; else where it would be downloaded from, or what makes it."""


def catalogue() -> list[DataSet]:
    """Every data set with a name: what is here, and what can be had."""
    found = []
    extra = {
        path.name.removesuffix(".tsv.gz")
        for base in (data_directory(), cache_directory())
        for path in (base / "pmlb").glob("*.tsv.gz")
        if not path.name.startswith(".")
    }
    for name in (*_PMLB, *sorted(extra - set(_PMLB))):
        rows, dimensions, classes, about = _PMLB.get(name, (None, None, None, "a file of PMLB"))
        path = find(_relative(name))
        where = str(path) if path else PMLB_URL.format(name=name)
        found.append(DataSet(f"pmlb:{name}", about, rows, dimensions, classes, path is not None, where))
    for family, where in _WHERE.items():
        for name, (of_rows, dimension, of_classes, about) in _FAMILIES[family].items():
            found.append(DataSet(f"{family}:{name}", about, of_rows, dimension, of_classes, True, where))
    for name, of in IMAGES.items():
        here = find_images(name)
        where = str(_shown(here)) if here else of.where
        found.append(DataSet(name, of.about, of.rows, of.dimensions, of.classes, bool(here), where))
    return found


def is_name(source: str) -> bool:
    """Whether a source is written like a name rather than a path (`C:\\data.csv` is a path)."""
    return re.match(r"[A-Za-z][\w.+-]+:", source) is not None and not Path(source).exists()


def suggestion(name: str) -> str:
    """`; did you mean …?` for a name that is nearly one of the catalogue, with or without its family."""
    family, _, member = name.rpartition(":")
    near = [family] if family in _FAMILIES else list(_FAMILIES)
    known = {member: f"{family}:{member}" for family in near for member in _FAMILIES[family]}
    if not family:
        known |= {image: image for image in IMAGES}
    return did_you_mean(member, known, known.__getitem__)


def fetch(name: str, progress: Progress | None = None) -> Path:
    """The file of a named data set: from the data directory, else from the cache, else downloaded into the cache.

    Of one that has several files it is their folder. `progress` is called with the bytes fetched so far and the bytes
    in all (or None).
    """
    if name in IMAGES:
        return _shown(fetch_images(name, progress))
    family, member = _split(name)
    if family != "pmlb":
        how = "comes with scikit-learn" if family == "sklearn" else "is drawn from the seed"
        raise InputError(f"{name} needs no file: it {how}")
    relative = _relative(member)
    path = find(relative)
    if path is not None:
        return path
    hint = "" if member in _PMLB else suggestion(name)
    try:
        return download(PMLB_URL.format(name=member), relative, progress)
    except NotOnServer as error:
        raise InputError(f"PMLB has no data set {quoted(member)}: {error}{hint}") from error
    except InputError as error:
        raise InputError(f"{name}: {error}{hint}") from error


def open_named(name: str, seed: int = 0, progress: Progress | None = None) -> Columns:
    """The columns of a named data set; its own label is the default one."""
    family, member = _split(name)
    if family == "pmlb":
        columns = open_text(fetch(name, progress))
        return replace(columns, label="target" if "target" in columns.names else None, trusted=True)
    if family == "world":
        return _draw_world(name, member, seed)
    return _open_sklearn(name, member) if family == "sklearn" else _draw_toy(name, member, seed)


def world_of(source: str) -> str | None:
    """`sphere10` of `world:sphere10`, None of any other source."""
    return source.partition(":")[2] if source.startswith("world:") and is_name(source) else None


def _shown(paths: list[Path]) -> Path:
    return paths[0] if len(paths) == 1 else paths[0].parent


def _relative(member: str) -> str:
    return f"pmlb/{member}.tsv.gz"


def _split(name: str) -> tuple[str, str]:
    family, _, member = name.partition(":")
    known = _FAMILIES.get(family)
    if family == "world":
        from probssl.worlds.named import parse_name

        parse_name(member, f"{family}:")
        return family, member
    valid = known is not None and (
        re.fullmatch(r"\w[\w.-]*", member, re.ASCII) if family == "pmlb" else member in known
    )
    if not valid:
        hint = suggestion(name)
        raise InputError(f"there is no data set {quoted(name)}{hint or ': `probssl data list` shows those there are'}")
    return family, member


def _open_sklearn(name: str, member: str) -> Columns:
    from sklearn import datasets

    bunch = getattr(datasets, f"load_{member}")()
    words = [str(word) for word in bunch.target_names]
    names = [str(feature) for feature in bunch.feature_names]
    return open_array(bunch.data, name, names=names, labels=("target", np.array(words)[bunch.target]), trusted=True)


def _draw_toy(name: str, member: str, seed: int) -> Columns:
    from sklearn import datasets

    if member == "circles":
        points, codes = datasets.make_circles(200, factor=0.1, noise=0.05, random_state=seed)
        label, words = "circle", np.array(["outer", "inner"])
    else:
        points, codes = datasets.make_moons(1000, noise=0.05, random_state=seed)
        label, words = "moon", np.array(["upper", "lower"])
    return open_array(points, name, names=generated_names(2), labels=(label, words[codes]), trusted=True)


def _draw_world(name: str, member: str, seed: int) -> Columns:
    """Observations with their latents. Their random numbers are not those that a training with the seed draws."""
    import torch

    from probssl.worlds.named import named_world

    x, z = named_world(member, seed=seed).observe(WORLD_ROWS, torch.Generator().manual_seed(seed + 2**33))
    return replace(open_array(x.double().numpy(), name, trusted=True), latents=z.double().numpy())
