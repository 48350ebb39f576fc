"""Data: tables and sets of images from files, objects and names, found whole or refused in one sentence."""

from __future__ import annotations

from probssl.data.dataset import Dataset, Part, Rows, Target, is_dataset
from probssl.data.directory import Progress, cache_directory, data_directory
from probssl.data.files import FORMATS
from probssl.data.image_files import Corrupt
from probssl.data.image_set import ImageSet, check_images, unit_floats
from probssl.data.images import NAMED as IMAGES
from probssl.data.images import images_of, load_images
from probssl.data.loading import load, load_table
from probssl.data.names import DataSet, catalogue, fetch, world_of
from probssl.data.preparation import Preparation
from probssl.data.standardise import Standardiser
from probssl.data.table import Table, check_trainable, in_layout
from probssl.layout import Column, Layout

__all__ = [
    "FORMATS",
    "IMAGES",
    "Column",
    "Corrupt",
    "DataSet",
    "Dataset",
    "ImageSet",
    "Layout",
    "Part",
    "Preparation",
    "Progress",
    "Rows",
    "Standardiser",
    "Table",
    "Target",
    "cache_directory",
    "catalogue",
    "check_images",
    "check_trainable",
    "data_directory",
    "fetch",
    "images_of",
    "in_layout",
    "is_dataset",
    "load",
    "load_images",
    "load_table",
    "unit_floats",
    "world_of",
]
