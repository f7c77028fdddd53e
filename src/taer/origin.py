"""Where features come from: the backbone, its weights and its preprocessing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Origin(NamedTuple):
    """The frozen model behind some features. Features of two origins must not be mixed, even with the same width.

    Examples
    --------
    >>> drawings = Origin("efficientnet-lite0", "pypi:weights sha256:12ab", "resize 128")
    >>> drawings.difference(Origin("efficientnet-lite0", "weights.pth sha256:12ab", "resize 256"))
    "preprocess 'resize 128', not 'resize 256'"
    >>> drawings.difference(Origin("efficientnet-lite0"))
    ''
    """

    backbone: str
    weights: str = ""  # where they came from, then "sha256:" and their hash
    preprocess: str = ""

    @classmethod
    def of(cls, meta: Mapping[str, str]) -> Origin | None:
        """The origin in the header of a feature file; None if the header has no backbone."""
        backbone = meta.get("backbone", "unknown")
        if backbone == "unknown":
            return None
        return cls(backbone, meta.get("weights", ""), meta.get("preprocess", ""))

    def difference(self, other: Origin) -> str:
        """The first difference from another origin, as far as both are known; empty if there is none.

        Equal weights are the same model under any name, such as that of a folder or of a hub.
        """
        ours, theirs = (origin.weights.rpartition("sha256:")[2] for origin in (self, other))
        if not (ours and theirs) and self.backbone != other.backbone:
            return f"backbone {self.backbone}, not {other.backbone}"
        if ours and theirs and ours != theirs:
            return f"backbone {self.backbone} (sha256 {ours[:12]}…), not {other.backbone} (sha256 {theirs[:12]}…)"
        if self.preprocess and other.preprocess and self.preprocess != other.preprocess:
            return f"preprocess {self.preprocess!r}, not {other.preprocess!r}"
        return ""

    def check(self) -> None:
        """Raise ValueError unless all parts are strings: those of a file may be anything."""
        if not all(type(part) is str for part in self) or not self.backbone:
            raise ValueError("expected a backbone, its weights and its preprocess, as strings")
