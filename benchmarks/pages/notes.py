"""The measurements of docs/evidence/notes.md, one after the other.

    python -m benchmarks.pages.notes --features DIR [--parts house,online]

DIR has cub200-resnet18, cub200-deit-ti, banking77 and clinc150 (.safetensors).
"""

from __future__ import annotations

from benchmarks.lib.sections import Section, run

BANKING77, CLINC150, CUB200 = (f"DIR/{name}.safetensors" for name in ("banking77", "clinc150", "cub200-resnet18"))
DEIT = "DIR/cub200-deit-ti.safetensors"
SECTIONS = (
    Section("house", "How large is the code?", "benchmarks.notes.house", ("eba7dd4", "44721d1", "HEAD")),
    Section("online", "`bayes` on an online stream", "benchmarks.notes.online", ("--features", CUB200)),
    Section("streams", "Which head on which stream?", "benchmarks.notes.streams", ("--seeds", "1")),
    *(
        Section(
            f"stale-{name}",
            f"Does a novelty threshold stay right as the head learns? {name}",
            "benchmarks.notes.bayes",
            ("--features", file, "--tasks", "10"),
        )
        for name, file in (("cub200", CUB200), ("clinc150", CLINC150))
    ),
    Section(
        "first-tasks",
        "Are the classes of a small first task crowded out?",
        "benchmarks.notes.first_tasks",
        ("--features", DEIT, f"{DEIT}+{CUB200}", "--orders", "4"),
    ),
    Section(
        "thresholds",
        "Are thresholds right after a tiny first task?",
        "benchmarks.notes.thresholds",
        ("--features", "sketches100", BANKING77, CUB200),
    ),
    Section(
        "sets",
        "How close do sets of `bayes` come without calibration?",
        "benchmarks.notes.sets",
        (BANKING77, CUB200, CLINC150),
    ),
    Section(
        "weights",
        "What does it gain to weight classes equally?",
        "benchmarks.notes.class_weights",
        ("--features", "DIR", "--methods", "joint,taer,bayes,ncm"),
    ),
    Section(
        "mislabeled",
        "How many wrong labels does `taer diagnose` find?",
        "benchmarks.notes.mislabeled",
        (BANKING77,),
    ),
    Section(
        "from-linear", "Why does `from_linear` grow by TaER, and not by `bayes`?", "benchmarks.notes.from_linear"
    ),
)


if __name__ == "__main__":
    run(SECTIONS, __doc__)
