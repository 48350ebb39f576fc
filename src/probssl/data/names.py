"""Data sets that go by a name: `pmlb:letter`, `sklearn:digits`, `toy:circles`."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from probssl.data.columns import Columns, generated_names
from probssl.data.directory import NotOnServer, Progress, cache_directory, data_directory, download, find
from probssl.data.files import open_array
from probssl.data.text import open_text
from probssl.data.wording import did_you_mean, quoted
from probssl.errors import InputError

PMLB_URL = "https://github.com/EpistasisLab/pmlb/raw/master/datasets/{name}/{name}.tsv.gz"
"""Where the Penn Machine Learning Benchmark (Romano et al., 2021) keeps its files."""

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
_FAMILIES = {"pmlb": _PMLB, "sklearn": _SKLEARN, "toy": _TOYS}


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
    for family, where in (("sklearn", "comes with scikit-learn"), ("toy", "drawn from the seed")):
        for name, (rows, dimensions, classes, about) in _FAMILIES[family].items():
            found.append(DataSet(f"{family}:{name}", about, rows, dimensions, classes, True, where))
    return found


def is_name(source: str) -> bool:
    """Whether a source is written like a name rather than a path (`C:\\data.csv` is a path)."""
    return re.match(r"[A-Za-z][\w.+-]+:", source) is not None and not Path(source).exists()


def suggestion(name: str) -> str:
    """`; did you mean …?` for a name that is nearly one of the catalogue, with or without its family."""
    family, _, member = name.rpartition(":")
    near = [family] if family in _FAMILIES else list(_FAMILIES)
    known = {member: f"{family}:{member}" for family in near for member in _FAMILIES[family]}
    return did_you_mean(member, known, known.__getitem__)


def fetch(name: str, progress: Progress | None = None) -> Path:
    """The file of a named data set: from the data directory, else from the cache, else downloaded into the cache.

    `progress` is called with the bytes fetched so far and the bytes in all (or None).
    """
    family, member = _split(name)
    if family != "pmlb":
        raise InputError(
            f"{name} needs no file: it {'comes with' if family == 'sklearn' else 'is drawn by'} scikit-learn"
        )
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
    return _open_sklearn(name, member) if family == "sklearn" else _draw_toy(name, member, seed)


def _relative(member: str) -> str:
    return f"pmlb/{member}.tsv.gz"


def _split(name: str) -> tuple[str, str]:
    family, _, member = name.partition(":")
    known = _FAMILIES.get(family)
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
    return open_array(
        bunch.data, name, names=names, labels=("target", [words[code] for code in bunch.target]), trusted=True
    )


def _draw_toy(name: str, member: str, seed: int) -> Columns:
    from sklearn import datasets

    if member == "circles":
        points, codes = datasets.make_circles(200, factor=0.1, noise=0.05, random_state=seed)
        label, words = "circle", np.array(["outer", "inner"])
    else:
        points, codes = datasets.make_moons(1000, noise=0.05, random_state=seed)
        label, words = "moon", np.array(["upper", "lower"])
    return open_array(points, name, names=generated_names(2), labels=(label, words[codes].tolist()), trusted=True)
