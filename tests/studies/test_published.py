"""The published numbers: whole, in range, and saying what the papers say of them."""

import csv
import math
import re
from collections import defaultdict
from collections.abc import Iterator
from decimal import Decimal
from importlib import resources

import numpy as np
import pytest

from probssl.studies.comparison import PAPERS, Published, every_published, published, references

COLUMNS = [
    "experiment",
    "setting",
    "metric",
    "value",
    "unit",
    "spread",
    "spread_is",
    "runs",
    "higher_is_better",
    "place",
    "row",
    "column",
    "note",
]
FAMILIES = {
    "Siamese-EBM": "siamese",
    "GEDI": "gedi",
    "AnInfoNCE": "anisotropic",
    "SimVAE": "simvae",
    "CL-ICA": "identify",
}
CELLS = {
    # rows, columns, cells that are a dash, NaN, or entered with another table; sums of values and spreads as printed,
    # added up from the papers' text and not from our files
    ("Siamese-EBM", "Table 2"): (2, 9, 1, "804.4", "0"),
    ("Siamese-EBM", "Table 3"): (2, 9, 1, "3654", "0"),
    ("GEDI", "Table 2"): (2, 5, 0, "4.08", "0.48"),
    ("GEDI", "Table 3"): (2, 5, 6, "1.11", "0.56"),
    ("GEDI", "Table 4"): (10, 3, 0, "5088.29", "433.43"),
    ("GEDI", "Table 5"): (2, 5, 0, "4.29", "0"),
    ("GEDI", "Table 6"): (3, 6, 0, "6.07", "0.33"),
    ("GEDI", "Table 10"): (3, 5, 0, "6.23", "0.16"),
    ("GEDI", "Table 11"): (2, 5, 0, "4.78", "0"),
    ("GEDI", "Table 12"): (2, 5, 0, "4.6", "0"),
    ("AnInfoNCE", "Table 1"): (10, 7, 0, "4860", "0"),
    ("AnInfoNCE", "appendix G, table"): (2, 4, 0, "5.02", "0"),
    ("AnInfoNCE", "appendix H.3, table"): (1, 3, 0, "2.39", "0"),
    ("SimVAE", "Table 1"): (9, 8, 0, "5430.7", "28.5"),
    ("SimVAE", "Table 5"): (8, 8, 2, "4012.4", "31.2"),
    ("SimVAE", "Table 6"): (8, 7, 2, "2428.4", "23.0"),
    ("SimVAE", "Table 7"): (8, 4, 0, "3115.6", "24.5"),
    ("CL-ICA", "Table 1"): (12, 3, 0, "3355.88", "43.77"),
    ("CL-ICA", "Table 2"): (8, 6, 0, "2783.57", "90.8"),
    ("CL-ICA", "Table 3"): (4, 7, 0, "1135.5", "87.3"),
    ("CL-ICA", "Table 4"): (4, 1, 0, "159.2", "18.6"),
    ("CL-ICA", "Table 5"): (7, 1, 0, "498.2", "26.7"),
}
PROSE = {  # numbers that stand in a sentence, a caption or a picture
    ("Siamese-EBM", "Figure 2"): 4,
    ("AnInfoNCE", "appendix F"): 4,
    ("AnInfoNCE", "appendix G"): 1,
    ("AnInfoNCE", "appendix H.1"): 4,
    ("AnInfoNCE", "Figure 3"): 1,
    ("AnInfoNCE", "Figure 10"): 1,
}
RANGES = {"ARI": (-1, 1), "RankMe": (1, 512), "FID": (0, 1000), "MSE": (0, 1), "Λ of least loss": (0, 1000)}
FRACTIONS = re.compile(
    r"(linear|MLP) probe|k-NN( accuracy)?|(GMM |class |domain )?accuracy|readout .*|NMI|AUROC of the score norm"
    r"|(linear|style|supervised|unsupervised) R²|(BetaVAE|FactorVAE) score|MIG|DCI|modularity|SAP|MCC"
)


def entries(paper: str, place: str) -> list[Published]:
    return [entry for entry in every_published() if (entry.paper, entry.place) == (paper, place)]


# --- the files --------------------------------------------------------------------------------------------------------


FOLDER = resources.files("probssl.studies") / "published"


def raw_entries() -> Iterator[tuple[str, dict[str, str]]]:
    for name in PAPERS:
        with (FOLDER / f"{name}.csv").open(encoding="utf-8", newline="") as file:
            for entry in csv.DictReader(file):
                yield name, entry


def test_files_and_columns() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {f"{name}.csv" for name in PAPERS}
    for _, entry in raw_entries():
        assert list(entry) == COLUMNS
        assert all(text == text.strip() for text in entry.values())


def test_keys_are_unique_and_cells_entered_once() -> None:
    found = every_published()
    assert len({(e.experiment, e.setting, e.metric) for e in found}) == len(found)
    tabled = [(e.paper, e.place, e.row, e.column) for e in found if (e.paper, e.place) in CELLS]
    assert len(set(tabled)) == len(tabled)


def test_every_entry_is_whole() -> None:
    directions = defaultdict(set)
    for entry in every_published():
        assert re.fullmatch(FAMILIES[entry.paper] + r"/[a-z0-9]+(-[a-z0-9]+)*", entry.experiment), entry
        low, high = (0, 1) if FRACTIONS.fullmatch(entry.metric) else RANGES[entry.metric]
        assert math.isfinite(entry.value), entry
        assert low <= entry.value <= high, entry
        assert (entry.spread is None) == (entry.spread_is is None), entry
        assert entry.spread is None or 0 <= entry.spread < high - low, entry
        assert entry.runs is None or 1 <= entry.runs <= 10, entry
        assert entry.row or entry.column or entry.note, entry
        directions[entry.experiment, entry.metric].add(entry.higher_is_better)
    assert all(len(found) == 1 for found in directions.values())
    assert {metric for (_, metric), found in directions.items() if found == {False}} == {"FID", "MSE"}


def test_every_table_is_complete() -> None:
    assert {(e.paper, e.place) for e in every_published()} == CELLS.keys() | PROSE.keys()
    for (paper, place), (rows, columns, missing, *_) in CELLS.items():
        found = entries(paper, place)
        assert len({e.row for e in found}) == rows, (paper, place)
        hidden = 3 if (paper, place) == ("GEDI", "Table 3") else 0  # JEM, no gen and GEDI stand in Table 2 too
        assert len({e.column for e in found}) == columns - hidden, (paper, place)
        assert len(found) == rows * columns - missing, (paper, place)
        with_spread = [e for e in found if e.spread is not None]
        assert len({(e.spread_is, e.runs) for e in with_spread}) <= 1, (paper, place)
    for (paper, place), count in PROSE.items():
        assert len(entries(paper, place)) == count, (paper, place)
    again = [e for e in entries("GEDI", "Table 2") if e.note == "again in Table 3"]
    assert {e.column for e in again} == {"JEM", "GEDI no gen", "GEDI"}
    assert len(again) == 6


def test_sums_of_the_tables() -> None:
    """A slip of one digit changes a sum."""
    sums = defaultdict(lambda: [Decimal(0), Decimal(0)])
    for name, entry in raw_entries():
        for position, number in enumerate((entry["value"], entry["spread"])):
            sums[PAPERS[name], entry["place"]][position] += Decimal(number or 0)
    for table, (*_, values, spreads) in CELLS.items():
        assert sums[table] == [Decimal(values), Decimal(spreads)], table


def test_percentages_are_fractions_and_keep_their_digits() -> None:
    found = references("siamese/images")["CIFAR-10, SimCLR", "linear probe"]
    assert (found.value, found.resolution, found.deviation, found.runs) == (0.846, 0.001, None, None)
    assert found.source == "Siamese-EBM, Table 2, row CIFAR10, column SimCLR"
    found = references("gedi/images")["SVHN, GEDI", "FID"]
    assert (found.value, found.resolution, found.deviation) == (193, 1, 10)
    found = references("gedi/toy")["moons, JEM", "NMI"]
    assert (found.value, found.resolution, found.deviation) == (0, 0.01, 0)
    found = references("simvae/content")["CIFAR-10, MoCo", "k-NN"]
    assert found.deviation == pytest.approx(0.02 * math.sqrt(3))  # a standard error over three runs
    found = references("identify/sprites")["LAP, AlignUniform(0.9, 1)", "MIG"]
    assert found.deviation == pytest.approx(0.046 * 1.4826)  # a median absolute deviation


def test_an_experiment_without_published_numbers() -> None:
    assert published("siamese/linear-theory") == published("no/such") == {}


# --- what the papers say of their numbers -----------------------------------------------------------------------------


def test_siamese_images() -> None:
    found = published("siamese/images")
    for data, own in (("CIFAR-10", ("KL", "NCE", "SNL")), ("CIFAR-100", ("KL", "NCE"))):
        losses = (*own, "SimCLR", "SimSiam", "Spectral", "Fisher")
        probe = {loss: found[f"{data}, {loss}", "linear probe"] for loss in losses}
        rank = {loss: found[f"{data}, {loss}", "RankMe"] for loss in losses}
        untrained = found[f"{data}, untrained encoder", "linear probe"]
        assert probe["Fisher"] < found[f"{data}, Fisher on an MLP", "linear probe"] < untrained  # the MLP helps
        assert rank["KL"] > 300
        assert all(rank[loss] > 200 for loss in own)
        best = max(probe["SimCLR"], probe["SimSiam"], probe["Spectral"])
        assert (probe["NCE"] >= best) == (data == "CIFAR-100")  # NCE matches the baselines there, and only there
    assert ("CIFAR-100, SNL", "linear probe") not in found  # printed NaN: it collapsed


def test_gedi_toy() -> None:
    found = published("gedi/toy")
    for data, gain in (("moons", 0.22), ("circles", 0.87)):
        nmi = {setting.split(", ")[1]: value for (setting, _), value in found.items() if setting.startswith(data)}
        assert nmi["JEM"] == nmi["GEDI no prior"] == 0  # cluster collapse
        assert nmi["GEDI no inv"] < 0.25  # labels without meaning
        assert min(nmi["GEDI"], nmi["GEDI no gen"]) > 0.8
        best = max(nmi["JEM"], nmi["BarlowTwins"], nmi["SwAV"])
        assert max(nmi["GEDI"], nmi["GEDI no gen"]) - best == pytest.approx(gain)  # the column Gain of Table 3


def test_gedi_images_and_ood() -> None:
    found, ood = published("gedi/images"), published("gedi/ood")
    for data in ("SVHN", "CIFAR-10", "CIFAR-100"):
        fid = [found[f"{data}, {m}", "FID"] for m in ("GEDI", "JEM", "BarlowTwins", "SwAV", "GEDI no gen")]
        assert fid[0] < fid[1] < min(fid[2:])  # GEDI is the only one to stand beside JEM
        nmi = {m: found[f"{data}, {m}", "NMI"] for m in ("GEDI", "JEM", "BarlowTwins", "SwAV")}
        assert nmi["GEDI"] == max(nmi.values())
        probes = {m: found[f"{data}, {m}", "linear probe"] for m in ("GEDI", "BarlowTwins", "SwAV")}
        between = probes["SwAV"] < probes["GEDI"] < probes["BarlowTwins"]
        assert between == (data != "CIFAR-100")  # appendix N says so of all three
    for outside in ("CIFAR-10", "CIFAR-100"):
        auroc = {setting.split(", ")[1]: v for (setting, _), v in ood.items() if f"SVHN against {outside}," in setting}
        assert auroc["GEDI"] == max(auroc.values())
        assert len(auroc) == 5


def test_gedi_addition() -> None:
    found = published("gedi/addition")
    nmi = []
    for count in (100, 1000, 10000):
        accuracy = [found[f"{count} examples, {m}", "accuracy"] for m in ("constraint", "GEDI", "GEDI and constraint")]
        assert max(accuracy[:2]) < 0.12 < accuracy[2]
        nmi.append([found[f"{count} examples, {m}", "NMI"] for m in ("constraint", "GEDI", "GEDI and constraint")])
        assert 0 == nmi[-1][0] < nmi[-1][1] < nmi[-1][2]
    assert nmi == sorted(nmi)  # more data, better clusters


def test_aninfonce() -> None:
    found = published("anisotropic/readout")
    parts = [f"readout {name}" for name in ("grayscale", "brightness", "contrast", "hue", "saturation")]
    for data in ("CIFAR-10", "ImageNet"):
        for features in ("backbone", "projection"):
            losses = ["InfoNCE", "AnInfoNCE", "AnInfoNCE without normalisation"][: 3 if data == "CIFAR-10" else 2]
            settings = [f"{data}, {loss}, {features}" for loss in losses]
            averages = [found[setting, "readout average"] for setting in settings]
            classes = [found[setting, "class accuracy"] for setting in settings]
            assert averages == sorted(averages)  # more of the augmentation, less of the class
            assert classes == sorted(classes, reverse=True)
            for setting, average in zip(settings, averages, strict=True):
                assert np.mean([found[setting, part] for part in parts]) == pytest.approx(average, abs=0.00051)
    for metric, sign in (("class accuracy", -1), ("linear R²", 1), ("readout crop", 1), ("readout Gaussian blur", 1)):
        assert sign * (found["MNIST, AnInfoNCE", metric] - found["MNIST, InfoNCE", metric]) > 0
    ensemble = [
        published("anisotropic/ensemble")[m, "linear R²"] for m in ("InfoNCE", "AnInfoNCE", "ensemble AnInfoNCE")
    ]
    assert ensemble == [0.48, 0.93, 0.98]


def test_simvae() -> None:
    found = published("simvae/content")
    discriminative, generative = ("SimCLR", "MoCo", "MoCoV2", "VICReg"), ("VAE", "BetaVAE", "CRVAE")
    for metric in ("MLP probe", "k-NN"):
        for data in ("MNIST", "Fashion-MNIST", "CelebA"):
            assert found[f"{data}, SimVAE", metric] > max(found[f"{data}, {m}", metric] for m in discriminative)
    mlp = {m: found[f"CIFAR-10, {m}", "MLP probe"] for m in (*discriminative, *generative, "SimVAE")}
    best = max(mlp[m] for m in discriminative)
    assert best - max(mlp[m] for m in generative) == pytest.approx(0.329)  # 32.8 in the text
    assert best - mlp["SimVAE"] == pytest.approx(0.179)  # 17.6 in the text
    assert mlp["SimVAE"] - max(mlp[m] for m in generative) == pytest.approx(0.15)  # "+15 % on CIFAR10"
    same = {key for key in found if key[0].endswith("MoCo") and found[key] == found.get((key[0] + "V2", key[1]))}
    assert same == {
        ("CIFAR-10, MoCo", "MLP probe"),
        *[(f"{d}, MoCo", "k-NN") for d in ("MNIST", "Fashion-MNIST", "CIFAR-10")],
    }
    notes = references("simvae/content")
    assert all("perhaps copied" in notes[key].note for key in same)
    assert all("interchanged" in notes["CIFAR-10, SimCLR", metric].note for metric in ("ARI", "NMI"))


def test_simvae_generation() -> None:
    found = published("simvae/generation")
    for metric, exception in (("MSE", "Fashion-MNIST"), ("FID", "MNIST")):  # "small but significant improvements"
        for data in ("MNIST", "Fashion-MNIST", "CelebA", "CIFAR-10"):
            others = min(found[f"{data}, {m}", metric] for m in ("VAE", "BetaVAE", "CRVAE"))
            assert (found[f"{data}, SimVAE", metric] < others) == (data != exception)


def test_clica() -> None:
    table = defaultdict(dict)
    for (setting, metric), value in published("identify/table1").items():
        table[setting][metric] = value
    for scores in table.values():
        assert scores["linear R²"] < 0.9 < 0.97 < scores["unsupervised R²"]
        assert scores["unsupervised R²"] > scores["supervised R²"] - 0.022
    assert list(table)[:2] == ["sphere uniform vMF(1) | sphere vMF(1)", "box uniform GenNorm(2, 0.05) | R10 GenNorm(2)"]
    sprites = published("identify/sprites")
    weights = [f"LAP, AlignUniform({alpha}, 1)" for alpha in ("0.9", "0.99", "0.999")]
    assert all(sprites[setting, "BetaVAE score"] == 1 for setting in weights)
    rising = {m for _, m in sprites if all(np.diff([sprites[s, m] for s in weights]) > 0)}
    assert rising == {"FactorVAE score", "SAP"}  # "scores increase consistently": of six, these
    kitti = published("identify/kitti")
    assert kitti["Δt 1, AlignUniform(0.5, 1)", "MCC"] > kitti["Δt 1, SlowVAE", "MCC"] > kitti["BetaVAE", "MCC"]
