"""Put measured tables into a page of the documentation.

    python benchmarks/fidelity.py --features DIR > fidelity.out.md
    python tools/fill_docs.py docs/fidelity.md fidelity.out.md

    taer report results/paper
    python tools/fill_docs.py docs/reproduction.md results/paper/report/report.md

A page marks a place with ``<!-- measured: SECTION -->`` and ``<!-- end -->``, or, for one titled block of a section,
``<!-- measured: SECTION / BLOCK -->``. A section is a heading of the measured file, a block begins with a title in bold;
both are named by how they begin. What lies between the marks is replaced. Pictures named ``images/NAME.svg`` that the
measured file has beside it in ``figures/`` are copied too.
"""

from __future__ import annotations

import argparse
import re
import shutil
from pathlib import Path

MARK = re.compile(r"(<!-- measured: (.*?) -->\n).*?(<!-- end -->)", re.DOTALL)
IMAGE = re.compile(r"\(images/([\w-]+\.svg)\)")


def measured(text: str, name: str) -> str:
    """What a section, or a block of it, holds."""
    section, _, block = name.partition(" / ")
    found = re.search(rf"^##+ {re.escape(section)}[^\n]*\n(.*?)(?=^##+ |\Z)", text, re.DOTALL | re.MULTILINE)
    if not found:
        raise SystemExit(f"no section begins with {section!r}")
    body = found[1].strip()
    if block:
        inside = re.search(rf"^\*\*{re.escape(block)}.*?(?=^\*\*|\Z)", body, re.DOTALL | re.MULTILINE)
        if not inside:
            raise SystemExit(f"{section}: no block begins with {block!r}")
        body = inside[0].strip()
    return body


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path)
    parser.add_argument("measured", type=Path)
    options = parser.parse_args()
    text, source = options.page.read_text(), options.measured.read_text()
    options.page.write_text(MARK.sub(lambda mark: f"{mark[1]}{measured(source, mark[2])}\n{mark[3]}", text))
    for name in IMAGE.findall(text):
        if (figure := options.measured.parent / "figures" / name).is_file():
            shutil.copy(figure, options.page.parent / "images" / name)


if __name__ == "__main__":
    main()
