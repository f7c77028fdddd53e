"""A table of numbers, written as Markdown, CSV or LaTeX; the page has its own template."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

from taer.experiment import Spread


@dataclass(frozen=True)
class Number:
    """Mean and standard deviation over runs, in percent, beside the published number."""

    spread: Spread
    published: float | None = None
    quoted: bool = False

    @classmethod
    def of(cls, fractions: Iterable[float], published: float | None = None, quoted: bool = False) -> Number:
        return cls(Spread.of(100 * value for value in fractions), published, quoted)

    @property
    def mean(self) -> float | None:
        return self.spread.mean

    def __str__(self) -> str:
        """The measured number alone."""
        if self.mean is not None:
            return str(self.spread)
        return "missing" if not self.quoted else "quoted" if self.published is not None else ""

    @property
    def difference(self) -> float | None:
        return None if self.mean is None or self.published is None else self.mean - self.published


Value = str | int | float | Number


@dataclass(frozen=True)
class Table:
    name: str  # of its files
    title: str
    note: str
    columns: list[tuple[str, str]]  # heading over neighbors (may be empty), and name
    rows: list[list[Value]]

    @property
    def groups(self) -> list[tuple[str, int]]:
        """Headings over neighboring columns and the number of columns they span; empty if there are none."""
        spans = [(name, len(list(members))) for name, members in groupby(group for group, _ in self.columns)]
        return spans if any(name for name, _ in spans) else []

    @property
    def flat_names(self) -> list[str]:
        return [f"{group} {name}" if group else name for group, name in self.columns]

    def markdown(self) -> str:
        numeric = [not isinstance(value, str) for value in self.rows[0]]
        lines = [self.flat_names, ["---:" if right else "---" for right in numeric]]
        lines += [[text(value) for value in row] for row in self.rows]
        safe = ([cell.replace("|", "\\|") for cell in line] for line in lines)
        body = "\n".join(f"| {' | '.join(line)} |" for line in safe)
        return f"**{self.title}.** {self.note}\n\n{body}\n"

    def csv(self) -> str:
        """Numbers with all digits; a measured number has five columns: mean, std, runs, published, difference."""
        wide = [any(isinstance(row[i], Number) for row in self.rows) for i in range(len(self.columns))]
        parts = ("", " std", " runs", " published", " difference")
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        names = zip(self.flat_names, wide, strict=True)
        writer.writerow([name + part for name, spread in names for part in (parts if spread else ("",))])
        for row in self.rows:
            cells = zip(row, wide, strict=True)
            writer.writerow([item for value, spread in cells for item in _csv(value, spread)])
        return file.getvalue()

    def latex(self) -> str:
        """LaTeX with the package booktabs."""
        align = "".join("l" if isinstance(value, str) else "r" for value in self.rows[0])
        lines = [rf"% needs \usepackage{{booktabs}}; {self.title}", rf"\begin{{tabular}}{{{align}}}", r"\toprule"]
        if self.groups:
            spans = (rf"\multicolumn{{{span}}}{{c}}{{{_escape(name)}}}" for name, span in self.groups)
            lines += [rf"{' & '.join(spans)} \\"]
        lines += [rf"{' & '.join(_escape(name) for _, name in self.columns)} \\", r"\midrule"]
        lines += [rf"{' & '.join(_escape(text(value)) for value in row)} \\" for row in self.rows]
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def text(value: Value) -> str:
    """``54.80 ± 0.81 (paper 55.42, −0.62)``."""
    if isinstance(value, str):
        return value
    if isinstance(value, int | float):
        return f"{value:,.2f}" if isinstance(value, float) and abs(value) < 100 else f"{value:,.0f}"
    published = published_text(value)
    return f"{value} ({published})" if published else str(value)


def published_text(number: Number) -> str:
    if number.published is None:
        return ""
    return f"paper {number.published:.2f}" + ("" if number.difference is None else f", {signed(number.difference)}")


def signed(difference: float) -> str:
    return f"{difference:+.2f}".replace("-", "−")


def _csv(value: Value, spread: bool) -> Iterable[str | float | None]:
    if isinstance(value, Number):
        return value.mean, value.spread.std, len(value.spread.values), value.published, value.difference
    return (value, *[None] * 4) if spread else (value,)


def _escape(words: str) -> str:
    for sign, command in (("\\", r"\textbackslash{}"), ("&", r"\&"), ("%", r"\%"), ("_", r"\_"), ("#", r"\#")):
        words = words.replace(sign, command)
    words = re.sub(r"(?<!\S)-(?=\d)", "−", words)  # a minus, not a hyphen
    return words.replace("±", r"$\pm$").replace("−", "$-$").replace("λ", r"$\lambda$")
