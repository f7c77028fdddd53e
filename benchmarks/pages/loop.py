"""The measurements of docs/evidence/loop.md, one after the other.

    python -m benchmarks.pages.loop --features DIR [--parts suggest,desk]

DIR has banking77, clinc150, flowers102, cub200-resnet18 and out-of-scope (.safetensors), and the texts in banking77.csv.
"""

from __future__ import annotations

from benchmarks.lib.sections import Section, run

BANKING77, CLINC150, FLOWERS102, CUB200, NOISE = (
    f"DIR/{name}.safetensors" for name in ("banking77", "clinc150", "flowers102", "cub200-resnet18", "out-of-scope")
)
FEATURES = ("--features", BANKING77, CLINC150, CUB200, FLOWERS102)
SETS = (
    *("--set", f"banking77={BANKING77}", "--set", f"clinc150={CLINC150}"),
    *("--set", f"flowers102={FLOWERS102}", "--set", f"cub200={CUB200}", "--out-of-scope", NOISE),
)
SECTIONS = (
    Section(
        "discover", "What is new?", "benchmarks.notes.discover", (*FEATURES, "--noise", NOISE, "--orders", "6")
    ),
    Section("mixed", "With known classes in the pool", "benchmarks.notes.discover", ("--mixed", "--orders", "2")),
    Section(
        "small",
        "Small heads",
        "benchmarks.notes.discover",
        ("--small", *FEATURES, "--noise", NOISE, "--orders", "2"),
    ),
    Section(
        "suggest",
        "What to label next?",
        "benchmarks.notes.suggest",
        (*FEATURES, "--seeds", "3", "--rounds", "4", "--pool", "2000"),
    ),
    Section(
        "goal",
        "Labels for 95 %",
        "benchmarks.notes.suggest",
        (
            *FEATURES[:3],
            FLOWERS102,
            "--rounds",
            "16",
            "--pool",
            "2000",
            "--methods",
            "suggest",
            "random",
            "--to-goal",
        ),
    ),
    Section("desk", "A month at a support desk", "benchmarks.notes.desk", ("--features", CLINC150, "--seeds", "5")),
    Section("automate", "Automation", "benchmarks.notes.automate", SETS),
    Section(
        "errors",
        "Automation",
        "benchmarks.notes.automate",
        ("--set", f"cub200={CUB200}", "--errors", "0.1", "--alarms", "0"),
    ),
    Section(
        "multilabel",
        "Several labels per sample",
        "benchmarks.notes.multilabel",
        ("--banking77", "DIR/banking77.csv"),
    ),
    Section(
        "describe",
        "Classes by a description",
        "benchmarks.notes.describe",
        ("--banking77", BANKING77, "--clinc150", CLINC150),
    ),
)


if __name__ == "__main__":
    run(SECTIONS, __doc__)
