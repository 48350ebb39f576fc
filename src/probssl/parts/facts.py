"""What is known of data before a part is made for it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from probssl.layout import Column, Kind, Layout, plain_columns
from probssl.schema import Mismatch


@dataclass(frozen=True)
class Facts:
    """What choices and sizes depend on; it is stored with a model, which is made again from it."""

    kind: Kind
    shape: tuple[int, ...]
    """Of one observation, as encoders take it."""
    rows: int
    """That training sees; of a world, which has no end, those it is looked at by."""
    name: str | None = None
    """Of a data set that is known by name: "mnist", "sphere10"."""
    columns: tuple[Column, ...] = ()
    """Of a table, as encoders take them; none where all are numbers without gaps."""

    def __post_init__(self) -> None:
        if not self.shape or min(self.shape) < 1 or self.rows < 0 or (self.kind == "images" and len(self.shape) != 3):
            raise Mismatch(f"{self.kind} cannot have {self.rows} rows of {list(self.shape)}")
        if self.kind == "world" and self.name is None:
            raise Mismatch("a world has a name")
        if self.columns and self.shape != (len(self.columns),):
            raise Mismatch(f"{len(self.columns)} columns cannot have the shape {list(self.shape)}")

    @property
    def features(self) -> int:
        """How many numbers an observation is, indicators of levels and gaps among them."""
        return self.layout.width if self.columns else math.prod(self.shape)

    @property
    def layout(self) -> Layout:
        """What one row is as encoders take it."""
        return Layout(self.kind, self.shape, self.columns)

    @property
    def words(self) -> str:
        """What the data is, for a sentence."""
        if self.kind == "table":
            return f"a table of {self.shape[0]} columns"
        sizes = " × ".join(map(str, self.shape))
        return f"images of {sizes}" if self.kind == "images" else f"a {self.kind} of {sizes} numbers each"

    @property
    def coloured(self) -> bool:
        """Whether images have colours."""
        return self.kind == "images" and self.shape[0] == 3

    @property
    def relation(self) -> str | None:
        """How the data itself says which observations belong together, where it does: "world:sphere10"."""
        return f"world:{self.name}" if self.kind == "world" else None

    def with_gaps(self) -> Facts:
        """The same of a table in which any column may have gaps."""
        columns = self.columns or tuple(Column(f"x{place}") for place in range(self.features))
        return replace(self, columns=tuple(replace(column, gaps=True) for column in columns))

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        plain = {name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()}
        return {**plain, "columns": plain_columns(self.columns)}
