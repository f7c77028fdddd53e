"""The counts of the page "How it is tested", as a table: of the slow tests that ran last, and of mutants.

    python tools/counts.py results/tests/*.xml > results/counts.md
    python tools/fill_docs.py --some docs/evidence/testing.md results/counts.md

(or ``make counts``) after ``make test-all`` or ``make test-long``, whose reports pytest writes as JUnit XML, and after
``make mutation``, whose results are in ``mutants/``. A test names what it counts with ``record_property``.
"""

from __future__ import annotations

import json
import os
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
SURVIVED, NO_TESTS, NOT_RUN = 0, 33, None  # what mutmut records of a mutant; anything else is a failed test


def counts(reports: list[Path]) -> list[str]:
    """What the tests counted, summed over tests of the same name, and the tests themselves."""
    found: Counter[str] = Counter()
    tests, names, seconds, dates = 0, {}, 0.0, set()
    for report in reports:
        for suite in ET.parse(report).getroot().iter("testsuite"):
            dates.add(suite.get("timestamp", "")[:10])
            seconds += float(suite.get("time", 0))
            for case in suite.iter("testcase"):
                tests += case.find("skipped") is None
                for each in case.iter("property"):
                    found[each.get("name", "")] += int(each.get("value", 0))
                    names[each.get("name", "")] = f"tests/{'/'.join(case.get('classname', '').split('.')[1:])}.py"
    machine = f"{os.cpu_count()} cores {os.uname().machine}"
    tier = "make test-long" if os.environ.get("TAER_TESTS") == "long" else "make test-all"
    return [
        f"Of `{tier}`, {' and '.join(sorted(dates))}, {machine}: {tests:,} slow tests in {seconds / 60:.0f} minutes.",
        "",
        "| what | count | where |",
        "|---|---:|---|",
        *(f"| {name} | {count:,} | `{names[name]}` |" for name, count in found.items()),
    ]


def mutants(folder: Path) -> list[str]:
    """Mutants of each file: how many were run, killed, survived, and are reached by no test."""
    rows = ["| file | mutants | run | killed | survived | reached by no test |", "|---|---:|---:|---:|---:|---:|"]
    for report in sorted(folder.rglob("*.py.meta")):
        codes = Counter(json.loads(report.read_text())["exit_code_by_key"].values())
        if not codes:
            continue
        name, total = report.relative_to(folder / "src/taer").with_suffix(""), codes.total()
        run = total - codes[NOT_RUN] - codes[NO_TESTS]
        killed = run - codes[SURVIVED]
        rows.append(f"| `{name}` | {total} | {run} | {killed} | {codes[SURVIVED]} | {codes[NO_TESTS]} |")
    return rows


def main(*reports: str) -> None:
    sections = {}
    if reports:
        sections["Slow tests"] = counts([Path(report) for report in reports])
    if (ROOT / "mutants").is_dir():
        sections["Mutants"] = mutants(ROOT / "mutants")
    for title, lines in sections.items():
        print(f"## {title}", "", *lines, "", sep="\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
