"""Feature files for the paper, found by the data set and the backbone in their headers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from taer.features import FeatureSet, load_features
from taer.features.files import FORMAT
from taer.files import read_metadata

Source = tuple[str, str]  # data set, backbone
_NAMES = {"deit-ti": "deit-tiny"}  # of backbones: other names in headers, and those of ``taer extract``


def source_of(meta: Mapping[str, str]) -> Source:
    """The data set and the backbone in the header of a feature file, which results repeat."""
    backbone = meta.get("backbone", "")
    return meta.get("dataset", ""), _NAMES.get(backbone, backbone)


def find_features(folder: Path, wanted: Iterable[Source]) -> dict[Source, FeatureSet]:
    """The requested feature sets that are in a folder."""
    if not folder.is_dir():
        raise ValueError(f"{folder}: no such folder; expected one with feature files")
    paths: dict[Source, Path] = {}
    for path in sorted(folder.glob("*.safetensors")):
        try:
            header = read_metadata(path)
        except ValueError:
            continue  # not one of ours, or still being written
        source = source_of(header)
        if header.get("format") != FORMAT or source not in wanted:
            continue
        if source in paths:
            raise ValueError(f"{paths[source]} and {path} are both {source[0]} seen by {source[1]}; remove one")
        paths[source] = path
    return {source: load_features(path) for source, path in paths.items()}


def extract_command(source: Source) -> str:
    """The command that extracts a missing feature file."""
    dataset, backbone = source
    return f"taer extract {dataset} --backbone {backbone} --out {dataset}-{backbone}.safetensors"
