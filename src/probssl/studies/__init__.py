"""Studies: the papers' experiments, run here and set beside their published numbers."""

from probssl.studies.base import Row, Study, StudyResult
from probssl.studies.catalogue import catalogue, run
from probssl.studies.comparison import published, verdict

__all__ = ["Row", "Study", "StudyResult", "catalogue", "published", "run", "verdict"]
