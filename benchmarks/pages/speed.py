"""The measurements of docs/evidence/speed.md, one after the other.

python -m benchmarks.pages.speed [--parts serving,memory]
"""

from __future__ import annotations

from benchmarks.lib.sections import Section, run

SECTIONS = (
    Section("extraction", "How fast is extraction?", "benchmarks.speed.extraction"),
    Section("engines", "Why onnxruntime?", "benchmarks.speed.extraction", ("--engines",)),
    Section("serving", "How fast is the service?", "benchmarks.speed.serving", ("--seconds", "6")),
    Section("memory", "Many heads on one server: memory", "benchmarks.speed.many", ("--parts", "memory")),
    Section(
        "fairness",
        "Many heads on one server: fairness",
        "benchmarks.speed.many",
        ("--parts", "fairness", "--seconds", "1"),
    ),
)


if __name__ == "__main__":
    run(SECTIONS, __doc__)
