"""Masks of pedestrians in videos: the last image experiment of CL-ICA (A.6, Table 5). Needs the published file."""

from __future__ import annotations

import functools
from pathlib import Path

import torch
from torch import nn

from probssl.data.directory import data_directory, find
from probssl.encoders import encode, seeded
from probssl.errors import InputError
from probssl.metrics import mcc
from probssl.pairings.views import Needs, Source, Views
from probssl.studies.base import Budget, Config, Result
from probssl.studies.sprites import SCALE, Loss, PairsStudy
from probssl.studies.sprites_trials import COMPONENTS, UNTRAINED, network, principal_components, train
from probssl.worlds.sprite_files import KittiMasks, load_kitti_masks

FILE = "kitti/kitti_peds_v2.pickle"
"""Below the data directory; KITTI Masks as Klindt et al. 2021 publish them."""

SEPARATIONS = (1, 5)
METRIC = "MCC"


def masks_file() -> Path:
    """Where the masks are."""
    path = find(FILE)
    if path is None:
        raise InputError(f"identify/kitti needs the published KITTI Masks, and there is no {data_directory() / FILE}")
    return path


@functools.lru_cache(maxsize=1)
def _masks(path: Path) -> KittiMasks:
    return load_kitti_masks(path)


class MaskPairs(Source):
    """Two frames of one pedestrian, at most `separation` apart."""

    def __init__(self, masks: KittiMasks, separation: int) -> None:
        super().__init__()
        self.masks, self.separation = masks, separation

    def draw(self, count: int, needs: Needs, generator: torch.Generator | None = None) -> Views:
        if needs.augmented > 1:
            raise InputError("a frame has one later frame in a pair: choose an objective of one augmented view")
        rows, later = self.masks.draw_pairs(count, generator, separation=self.separation)
        augmented = self.masks.images(later).unsqueeze(0)[: needs.augmented]
        return Views(x=self.masks.images(rows), augmented=augmented, latents=self.masks.latents[rows])


class Kitti(PairsStudy):
    """L_AU(½, p) on frames one and up to five apart; codes beside vertical centre, horizontal centre and area."""

    name = "identify/kitti"
    paper = "CL-ICA, A.6, Table 5"
    claim = "p = 1 finds position and size of pedestrians better than p = 2, and better from frames further apart"
    laptop = "needs kitti_peds_v2.pickle"
    code = ("probssl.studies.sprites_trials", "probssl.studies.sprites_kitti")
    metrics = (METRIC,)
    baselines = (UNTRAINED, COMPONENTS)

    def configs(self, budget: Budget) -> list[Config]:
        scale = SCALE[budget]
        losses = [(apart, Loss(f"Δt {apart}", 0.5, p)) for apart in SEPARATIONS for p in (1, 2)]
        every: list[Config] = [
            {"setting": loss.setting, "separation": apart, "alpha": loss.alpha, "p": loss.p} for apart, loss in losses
        ]
        every += [{"setting": name, "separation": 1} for name in self.baselines]
        return [{**one, "seed": seed, **scale.settings} for seed in range(scale.seeds) for one in every]

    def prepare(self, budget: Budget) -> None:
        masks_file()

    def trial(self, config: Config) -> Result:
        masks, seed = _masks(masks_file()), config["seed"]
        source = MaskPairs(masks, config["separation"])
        generator = torch.Generator().manual_seed(seed + 1_000_003)
        looked_at = torch.randint(len(masks), (config["rows"],), generator=generator)
        found: Result = {"history": [], "collapsed": {}, "failure": None}
        shrink = nn.AvgPool2d(masks.pixels.height // config["size"])
        encoder: nn.Module
        if config["setting"] == COMPONENTS:
            encoder = principal_components(shrink(masks.images(looked_at[:4096])))
        else:
            encoder = seeded(seed, lambda: network(config))
        encoder = nn.Sequential(shrink, encoder)
        if config["setting"] not in self.baselines:
            found = train(encoder, source, config)
        if found["failure"] is not None:
            return found
        codes = torch.cat([encode(encoder, masks.images(rows)) for rows in looked_at.split(512)])
        return {**found, METRIC: mcc(codes.numpy(), masks.latents[looked_at].numpy(), correlation="spearman").value}
