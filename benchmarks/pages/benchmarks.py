"""Every comparison of speed, side by side in one run; writes docs/evidence/benchmarks.md and its figure.

    make bench                                         makes .venv-bench with Avalanche in it, and runs all
    make bench FEATURES=cifar100-resnet18.safetensors  also on real features
    python -m benchmarks.pages.benchmarks --quick --out DIR       a smoke run of all parts on small problems

Fails if two sides that are compared do not reach the same accuracy.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.lib import measuring  # first: it sets the number of threads

# isort: split
import numpy as np

from benchmarks.lib.measuring import TOLERANCE, Problem, Side, gaussian_classes, in_turn, table
from benchmarks.lib.profiling import functions, parts
from benchmarks.speed.comparisons import (
    BATCH,
    against_sklearn,
    against_torch,
    ours,
    runs_of,
    slda_against_one_product,
    taer_by_epochs,
)
from benchmarks.speed.growth import measure as measure_growth
from benchmarks.speed.growth import picture
from benchmarks.speed.sizes import EXPONENT
from benchmarks.speed.sizes import measure as measure_sizes
from benchmarks.speed.startup import measure as measure_startup
from taer.features import load_features
from taer.stream import class_stream

ROOT = Path(__file__).parents[2]
EPOCHS = (1, 10)  # the paper's numbers: one for large data sets, ten for CUB-200
REQUIRED = {"taer": 8, "er": 5, "derpp": 5, "ssil": 5, "ucir": 5, "oewc": 5, "gss": 20}  # times a torch loop
TIMES_PRODUCTS = {1: 3, 10: 2}  # by epochs: at most so many times the matrix products alone
ABLATION = ("taer", "er", "er-fixed", "er-balanced", "finetune", "joint")
MAIN_TABLE = "finetune,oewc,er,icarl,gss,derpp,ucir,ssil,taer,joint"
THREE_SIDES = "taer, s | torch, s | Avalanche, s | times torch | times Avalanche | accuracy of the three"
AS_COMPARED = {"standardize": "none", "init": "zero", "lr": 1.0}


def ratio(slow: Side, fast: Side) -> float:
    return slow.median / fast.median


class Document:
    """The sections as they are measured, and what was aimed at."""

    def __init__(self) -> None:
        self.sections: list[str] = []
        self.targets: list[str] = []
        self.missed: list[str] = []
        self.against_torch: dict[str, dict[str, Side]] = {}

    def section(self, title: str, *paragraphs: str) -> None:
        self.sections.append("\n\n".join([f"## {title}", *paragraphs]))
        print(self.sections[-1], end="\n\n", flush=True)

    def target(self, what: str, wanted: str, found: float, met: bool, otherwise: str = "") -> None:
        """``otherwise`` says what it would take."""
        self.targets.append(f"{what} | {wanted} | {found:.2f} | {'yes' if met else '**no**'}")
        if not met and otherwise:
            self.missed.append(f"- {what}: {found:.2f}, wanted {wanted}. {otherwise}")


def against_frameworks(document: Document, problem: Problem, repeats: int) -> dict[int, dict[str, Side]]:
    """The three methods that Avalanche has or can be given; TaER also with the paper's larger number of epochs."""
    found = taer_by_epochs(problem, repeats, EPOCHS)
    rows = [compared("taer", epochs, sides) for epochs, sides in found.items()]
    for name in ("er", "derpp"):
        sides = against_torch(name, problem, repeats, avalanche=True)
        rows.append(compared(name, 1, sides))
        document.against_torch[name] = sides
    steps = sum(-(-len(X) // BATCH) for X, _ in problem.tasks)
    apart = []
    for name in ("taer", "torch", "Avalanche", "products", "numpy"):
        once, often = (np.array(found[epochs][name].seconds) for epochs in EPOCHS)
        step = np.median(often - once) / (EPOCHS[1] - EPOCHS[0]) / steps
        apart.append(
            f"{name} | {1e6 * step:.0f} | {1e3 * (np.median(once) - steps * step) / len(problem.tasks):.1f}"
        )
    document.section(
        "TaER, ER and DER++ against torch and Avalanche",
        "The torch loops (`benchmarks/lib/torch_loops.py`) are tight: tensors of features, autograd, no data loader, no "
        "framework. Avalanche (`benchmarks/lib/avalanche_loops.py`) has a `TensorDataset` of features, its "
        "`IncrementalClassifier`, its `ReplayPlugin(200)` with its class-balanced buffer, and its DER strategy; the "
        "objective of TaER is a small plugin. Its DER strategy replays one draw for both terms where the other two "
        "sides draw twice. Seconds are the time to learn the whole stream, median and range.",
        table(f"method | epochs | {THREE_SIDES}", rows),
        "The time of one step, and of the rest of a task, from one and ten epochs of TaER. `products` are the two matrix "
        "products of a step (see below). `numpy` is a step as bare calls of numpy and BLAS, written out (`Calls` in "
        "`benchmarks/speed/comparisons.py`): it gathers the rows, multiplies, takes the softmax and moves the "
        "columns, with draws and constants that lie ready. No loop in numpy takes less.",
        table("side | a step, µs | rest of a task, ms", apart),
    )
    return found


def against_the_limit(document: Document, found: dict[int, dict[str, Side]]) -> None:
    compared = [("taer", epochs, sides) for epochs, sides in found.items()]
    compared += [(name, 1, sides) for name, sides in document.against_torch.items() if "products" in sides]
    document.section(
        "Against the limit",
        "The two matrix products of each step alone, in BLAS, on rows that are already in the order in which they are "
        "needed: the least that any loop with these batches can take. TaER multiplies with the ten columns of the task, "
        "ER and DER++ with all columns, UCIR with all for the scores and ten for the gradient. The heads do more: they "
        "draw, gather and check, and keep a memory; TaER multiplies with the old columns once per task. Measured in "
        "turn with the other sides. A head as fast as its products would be so many times as fast as torch as the last "
        "column says.",
        table(
            "method | epochs | taer, s | products alone, s | ratio | products against torch",
            [
                f"{name} | {epochs} | {sides['taer']} | {sides['products']} | "
                f"{ratio(sides['taer'], sides['products']):.2f} | {ratio(sides['torch'], sides['products']):.1f}"
                for name, epochs, sides in compared
            ],
        ),
    )


def compared(name: str, epochs: int, sides: dict[str, Side]) -> str:
    """A row of a table of three sides."""
    own, loop, framework = (sides[side] for side in ("taer", "torch", "Avalanche"))
    return (
        f"{name} | {epochs} | {own} | {loop} | {framework} | {ratio(loop, own):.1f} | "
        f"{ratio(framework, own):.1f} | {own.accuracy:.1f} / {loop.accuracy:.1f} / {framework.accuracy:.1f}"
    )


def other_methods(document: Document, problem: Problem, small: Problem, repeats: int) -> None:
    """The paper's other methods that descend; those whose public codes go sample by sample on a smaller problem."""
    rows = []
    for name in ("ssil", "ucir", "oewc", "gss"):
        chosen = small if name in ("oewc", "gss") else problem
        sides = against_torch(name, chosen, repeats, lr=0.1 if name == "ucir" else 1.0)
        own, loop = sides["taer"], sides["torch"]
        rows.append(f"{name} | {own} | {loop} | {ratio(loop, own):.1f} | {own.accuracy:.1f} / {loop.accuracy:.1f}")
        document.against_torch[name] = sides
    document.section(
        "Other methods against torch",
        f"One epoch; oEWC and GSS, whose public codes run one backward pass per sample, on {len(small.tasks)} tasks "
        f"of {len(small.tasks[0][0]):,}.",
        table("method | taer, s | torch, s | times torch | accuracy of the two", rows),
    )


def single_pass(document: Document, problem: Problem, repeats: int) -> None:
    rows = []
    for what, other, sides in against_sklearn(problem, repeats):
        own, theirs = sides.values()
        rows.append(
            f"{what} | {other} | {own} | {theirs} | {ratio(theirs, own):.2f} | "
            f"{own.accuracy:.1f} / {theirs.accuracy:.1f}"
        )
    document.section(
        "Heads of a single pass against scikit-learn",
        "The same samples once. `SGDClassifier` has no softmax: it learns one logistic regression per class, one "
        "sample at a time. `LinearDiscriminantAnalysis(solver='lsqr')` and `RidgeClassifier` have the same solution "
        "as the heads, in the precision of the features (float32) where the heads keep float64; they cannot learn "
        "on, so to be up to date after each task they fit everything so far again.",
        table("head | scikit-learn | taer, s | scikit-learn, s | times faster | accuracy of the two", rows),
    )


def where_the_time_goes(document: Document, problem: Problem) -> None:
    parts(problem.first(1))  # warm
    compared, default = parts(problem, **AS_COMPARED), parts(problem)
    rows = [f"{part} | {1e3 * compared[part]:.2f} | {1e3 * default[part]:.2f}" for part in compared]
    rows.append(f"together | {1e3 * sum(compared.values()):.2f} | {1e3 * sum(default.values()):.2f}")
    shares = ", ".join(f"{name} {100 * share:.0f} %" for name, share in functions(problem, **AS_COMPARED))
    document.section(
        "Where the time goes",
        "TaER, milliseconds per task of one epoch, mean over the ten tasks: as compared above (features as they are, "
        "columns from zero) and with the defaults (standardized, columns from class means).",
        table("part | as compared | defaults", rows),
        f"Own time of functions under cProfile, which makes calls look slower than they are: {shares}.",
    )


def growth(document: Document, repeats: int, quick: bool, images: Path) -> float:
    grown = measure_growth(repeats, quick)
    images.mkdir(parents=True, exist_ok=True)
    (images / "growth.svg").write_text(picture(grown).svg)
    rows = []
    for each in grown:
        scale = {"µs": 1e6, "ms": 1e3}[each.unit]
        for line in each.lines:
            medians = each.medians(line)
            rows.append(
                f"{each.title}, {line} | {each.x[0]:,} to {each.x[-1]:,} {each.label} | "
                f"{scale * medians[0]:,.1f} {each.unit} | {scale * medians[-1]:,.1f} {each.unit} | "
                f"{medians[-1] / medians[0]:.2f}"
            )
    document.section(
        "Growth",
        "![time against old classes, samples and features](images/growth.svg)",
        "Medians, with the range of the repeats as a band, on log axes. Left: a step (6,400 × 384, ten new classes); the "
        "one look at the old columns before the steps is not in it. Middle and right: a task of ten new classes "
        "after ten old ones, with everything that belongs to it.",
        table("what | growing | first | last | ratio", rows),
    )  # fmt: skip
    steps = grown[0].medians("taer")
    return steps[-1] / steps[0]


def on_real_features(document: Document, path: Path, repeats: int) -> None:
    """Features prepared once for all sides, as rates that suit raw ones depend on luck."""
    data = load_features(path)
    stream = class_stream(data, 10, order=0)
    tasks, arrival = list(stream), np.argsort(stream.order)
    first = np.asarray(tasks[0].X_train, np.float32)
    mean, scale = first.mean(axis=0), first.std(axis=0).clip(1e-6) * np.sqrt(first.shape[1], dtype=np.float32)
    problem = Problem(
        [((np.asarray(task.X_train) - mean) / scale, arrival[task.y_train]) for task in tasks],
        (data.test_x - mean) / scale,
        arrival[data.test_y],
    )
    slda = slda_against_one_product(problem, 3 * repeats)
    document.target(
        "slda against float64 and one Gram product: times slower",
        "≤ 1.5",
        found := ratio(slda["at once"], slda["product"]),
        found <= 1.5,
    )
    rows = []
    for name in ("derpp", "er", "taer"):
        sides = against_torch(name, problem, min(3, repeats), lr=3.0, avalanche=True)
        rows.insert(0, compared(name, 1, sides))
    started = time.process_time()
    for name in ABLATION:
        for seed in range(3):
            ours(name, problem, 3.0, 1)(seed)
    ablation = time.process_time() - started
    with TemporaryDirectory() as results:
        command = ["run", str(path), "--methods", MAIN_TABLE, "--epochs", "1", "--jobs", "1", "--out", results]
        raw = ["--set", "standardize=none", "--set", "init=zero"]
        started = time.perf_counter()
        subprocess.run([sys.executable, "-m", "taer", *command, *raw], check=True, stdout=subprocess.DEVNULL)
        main_table = time.perf_counter() - started
    document.section(
        "On real features",
        f"{data.name}, {len(data.train_x):,} × {data.train_x.shape[1]}, {len(tasks)} tasks, one epoch; standardized by "
        "the first task and divided by the root of the width before any side sees them.",
        table(f"method | epochs | {THREE_SIDES}", rows),
        f"slda over the file at once, calibration included: {slda['at once']} s; task after task, with all columns solved "
        f"for and calibrated after each: {slda['in tasks']} s; converting the same samples to float64 and one Gram "
        f"product: {slda['product']} s.",
        f"The six heads of the paper's ablation × 3 seeds take {ablation:.1f} s together, one torch run of TaER "
        f"{sides['torch'].median:.1f} s. The ten methods of the paper's main table × 3 seeds, measured after every task "
        f"(`taer run FILE --methods {MAIN_TABLE} --epochs 1 {' '.join(raw)}`), take {main_table:.0f} s on the clock on one "
        "core.",
    )


def starting(document: Document, repeats: int) -> None:
    rows = [f"{what} | {side}" for what, side in measure_startup(repeats).items()]
    document.section("Starting", "New processes, seconds on the clock.", table("what | s", rows))


def aims(document: Document, found: dict[int, dict[str, Side]], growing: float) -> None:
    for epochs, sides in found.items():
        own, alone = sides["taer"].median, sides["products"].median
        case = f"{epochs} epoch" + "s" * (epochs > 1)
        for other, wanted in (("Avalanche", 20), ("torch", REQUIRED["taer"])):
            times, budget = sides[other].median / own, sides[other].median / wanted
            document.target(
                f"taer against {other}, {case}: times faster",
                f"≥ {wanted}",
                times,
                times >= wanted,
                what_it_takes(own, budget, alone),
            )
        most = TIMES_PRODUCTS[epochs]
        document.target(
            f"taer against its matrix products, {case}: times slower",
            f"≤ {most}",
            own / alone,
            own <= most * alone,
            what_it_takes(own, most * alone, alone),
        )
    for name, sides in document.against_torch.items():
        wanted, times = REQUIRED[name], ratio(sides["torch"], sides["taer"])
        alone = sides["products"].median if "products" in sides else 0.0
        takes = what_it_takes(sides["taer"].median, sides["torch"].median / wanted, alone)
        document.target(
            f"{name} against torch, 1 epoch: times faster", f"≥ {wanted}", times, times >= wanted, takes
        )
    document.target("a step with 10,000 old classes against one with 10", "≤ 1.3", growing, growing <= 1.3)


def what_it_takes(own: float, budget: float, products: float) -> str:
    if budget <= products:
        return f"The matrix products alone ({products:.3f} s) take longer than the {budget:.3f} s that are allowed."
    return (
        f"It takes {own:.3f} s; the aim is {budget:.3f} s, of which the matrix products are {products:.3f} s. The "
        f"rest has to become {(own - products) / (budget - products):.1f} times as fast."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--features", type=Path, help="also measure on this feature file")
    parser.add_argument("--quick", action="store_true", help="small problems, two repeats; figures of no worth")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "docs" / "evidence", help="where benchmarks.md and images/ are written"
    )
    options = parser.parse_args()
    warnings.showwarning = lambda *_: None  # Avalanche warns of its own deprecated parts and undoes filters
    measuring.check_threads()
    started, machine = time.monotonic(), measuring.machine()
    repeats = 2 if options.quick else options.repeats
    problem = gaussian_classes(3, 500, 64, noise=1) if options.quick else gaussian_classes(10, 5000, 384)
    small = problem.first(2) if options.quick else gaussian_classes(2, 1000, 384)
    for name in ("taer", "er", "derpp"):
        in_turn(runs_of(name, small, avalanche=True), small, 1)  # warm: imports, thread pools, caches

    document = Document()
    found = against_frameworks(document, problem, repeats)
    other_methods(document, problem, small, repeats)
    against_the_limit(document, found)
    single_pass(document, problem, repeats)
    growing = growth(document, min(3, repeats), options.quick, options.out / "images")
    document.section("Growth of the heads", EXPONENT, *measure_sizes(options.quick))
    where_the_time_goes(document, problem)
    if options.features:
        on_real_features(document, options.features, repeats)
    starting(document, repeats)
    aims(document, found, growing)
    minutes = (time.monotonic() - started) / 60
    (options.out / "benchmarks.md").write_text(written(document, problem, machine, repeats, minutes))


def written(document: Document, problem: Problem, machine: str, repeats: int, minutes: float) -> str:
    tasks, (samples, width) = len(problem.tasks), problem.tasks[0][0].shape
    head = [
        "# Benchmarks",
        f"`make bench` makes this page: one run of {minutes:.0f} minutes, in an environment of its own that has Avalanche.",
        f"- Machine: {machine}.\n"
        "- One thread for every library. Seconds are processor time, which other work on the machine disturbs least. "
        "The sides of a comparison run in turn in one process; "
        f"medians of {repeats} repeats ({min(3, repeats)} for growth and real features) with their range.\n"
        f"- The problem: {tasks} tasks of {samples:,} × {width} in float32, ten Gaussian classes each; batches of 32 and "
        "32 replayed, a memory of 200, plain SGD at the same rate, features as they are and columns from zero on "
        "all sides.\n"
        f"- The sides of a comparison must reach the same accuracy on {len(problem.test_y):,} test samples, mean over the "
        f"repeats, or the run fails: at most {TOLERANCE} points apart.",
        "## Aims",
        table("what | wanted | measured | met", document.targets),
    ]
    if document.missed:
        head += ["What it would take:", "\n".join(document.missed)]
    return "\n\n".join([*head, *document.sections]) + "\n"


if __name__ == "__main__":
    sys.exit(main())
