"""Files in the package that are not Python source, each with its license according to ``REUSE.toml``."""

from __future__ import annotations

import tomllib
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]


class Bundled(NamedTuple):
    path: str
    holder: str
    license: str


def files() -> list[str]:
    """Every file of the package that is not Python source."""
    found = (path for path in (ROOT / "src" / "taer").rglob("*") if path.is_file())
    shipped = (path for path in found if path.suffix != ".py" and "__pycache__" not in path.parts)
    return sorted(str(path.relative_to(ROOT)) for path in shipped)


def bundled() -> list[Bundled]:
    """Their licenses; a file without one, or with two, is an error, and so is an entry without a file."""
    annotations = tomllib.loads((ROOT / "REUSE.toml").read_text())["annotations"]
    entries = []
    for annotation in annotations:
        patterns = annotation["path"]
        for pattern in [patterns] if isinstance(patterns, str) else patterns:
            entries.append((pattern, annotation["SPDX-FileCopyrightText"], annotation["SPDX-License-Identifier"]))
    result = []
    for file in files():
        fitting = [entry for entry in entries if fnmatch(file, entry[0])]
        if len(fitting) != 1:
            raise ValueError(f"{file}: expected one license in REUSE.toml, found {len(fitting)}")
        result.append(Bundled(file, *fitting[0][1:]))
    for pattern, _, _ in entries:
        if not any(fnmatch(file.path, pattern) for file in result):
            raise ValueError(f"REUSE.toml: {pattern} fits no file")
    return result
