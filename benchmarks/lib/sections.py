"""A page of evidence from several scripts: each runs by itself, and its output stands below its heading."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple


class Section(NamedTuple):
    """What one script measures. ``DIR`` in an argument is the folder of feature files."""

    name: str
    heading: str
    module: str
    arguments: tuple[str, ...] = ()


def run(sections: Sequence[Section], description: str | None) -> None:
    """Print the sections that were asked for; one whose feature files are missing is left out, with a message."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument(
        "--features", type=Path, metavar="DIR", help="folder with the feature files that are named above"
    )
    parser.add_argument("--parts", default=",".join(section.name for section in sections))
    options = parser.parse_args()
    parts = options.parts.split(",")
    if unknown := set(parts) - {section.name for section in sections}:
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    for section in sections:
        if section.name not in parts:
            continue
        if lacking := missing(section, options.features):
            print(f"{section.name}: left out, {lacking} is missing", file=sys.stderr)
            continue
        arguments = [argument.replace("DIR", str(options.features)) for argument in section.arguments]
        command = [sys.executable, "-m", section.module, *arguments]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        print(f"## {section.heading}\n\n{done.stdout.strip()}\n", flush=True)


def missing(section: Section, features: Path | None) -> str | None:
    """The first file of a section that is not there."""
    files = [
        part.partition("=")[2] or part
        for argument in section.arguments
        for part in argument.split("+")
        if "DIR" in part
    ]
    if features is None:
        return "--features DIR" if files else None
    paths = [Path(file.replace("DIR", str(features))) for file in files]
    return next((str(path) for path in paths if not path.exists()), None)
