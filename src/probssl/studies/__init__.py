"""Studies: the papers' experiments, run here and set beside their published numbers."""

from probssl.grids.store import Store
from probssl.studies.base import Row, Study, StudyResult
from probssl.studies.comparison import published, verdict
from probssl.studies.experiments import catalogue, export, find, run, standing

__all__ = [
    "Row",
    "Store",
    "Study",
    "StudyResult",
    "catalogue",
    "export",
    "find",
    "published",
    "run",
    "standing",
    "verdict",
]
