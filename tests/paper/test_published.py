"""The data files have every number of the paper's tables once, and describe valid runs."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

import taer.paper
from taer.features.backbones import NAMED
from taer.heads import HEADS
from taer.heads.params import check_params
from taer.paper import ELSEWHERE, NAMES, _read, distinct_runs, experiment, variants
from taer.stream import read_sessions

FOLDER = Path(taer.paper.__file__).parent
# As printed in the paper, read off it independently of the data files: rows of columns.
PUBLISHED = {
    "table1": """
        Finetune 25.00 46.57 22.40 11.50 10.78 12.58
        oEWC     20.41 44.30 19.77  7.85  6.31  9.69
        ER       52.70 80.00 71.62 25.29 31.73 44.85
        iCaRL    64.06 74.87 74.57 31.49 28.94 58.36
        GSS      45.61 61.13 66.55 18.92 23.08 41.97
        DER++    56.47 81.97 75.46 22.35 30.25 51.45
        UCIR     52.74 85.26 61.75 29.20 24.54 32.27
        SS-IL    65.36 79.24 65.28 36.31 33.36 53.01
        TaER     71.37 84.47 78.90 55.50 55.42 68.85
        Joint    81.50 87.00 89.43 66.47 65.86 76.44""",
    "table2": """
        5        73.21 67.59 65.44 68.86 80.68
        10       72.81 65.66 62.48 68.27 80.15""",
    "table3": """
        ER          52.70 80.00 71.62
        ER-fixed    57.47 79.87 70.49
        ER-balanced 59.73 80.50 76.33
        TaER        71.37 84.47 78.90""",
    "table4": """
        5        59.40 69.96 72.66
        10       52.70 65.36 71.37
        20       51.63 53.43 71.09
        50       48.16 47.37 66.62""",
    "fscil-cub": """
        Finetune  68.68  8.47 21.97
        UCIR      68.68 19.87 32.49
        iCaRL     68.68 21.16 36.67
        EEIL      68.68 22.11 36.27
        TOPIC     68.68 26.28 43.92
        SPPR      68.68 37.33 49.32
        CEC       75.85 52.28 61.33
        FACT      75.90 56.94 64.42
        WaRP      77.74 57.01 64.66
        LIMIT     75.89 57.41 65.48
        GKEAL     78.88 58.67 66.35
        TEEN      77.26 59.31 66.63
        NC-FSCIL  80.45 59.44 67.28
        ALICE     77.4  60.1  65.75
        Mamba-FSCIL 80.9 61.65 68.13
        SAVC      81.85 62.50 69.35
        BiDist    79.12 63.81 68.61""",
}


@pytest.mark.parametrize("name", [*NAMES, *ELSEWHERE])
def test_every_published_number_is_there_once_and_no_other(name):
    printed = [line.split() for line in PUBLISHED.get(name, "").strip().splitlines()]
    expected = [(row, float(value)) for row, *values in printed for value in values]
    cells = [cell for row in experiment(name).cells for cell in row]
    assert [
        (cell.row.partition(" (")[0], cell.published) for cell in cells if cell.published is not None
    ] == expected


def test_columns_are_the_papers():
    own = [cell for cell in experiment("table1").cells[0] if cell.trial.backbone != "deit-tiny"]
    wheres = [(cell.trial.backbone, cell.trial.dataset) for cell in own]
    datasets = ("cifar100", "cub200", "core50")
    assert wheres == [(backbone, dataset) for backbone in ("vit-small", "resnet18") for dataset in datasets]
    quoted = [cell.column for cell in experiment("table2").cells[0] if cell.trial is None]
    assert quoted == ["DER, ResNet18", "AANets, ResNet32", "FAS, ResNet32"]
    adapters = [cell for cell in experiment("table2").cells[0] if cell.group == "On an adapter"]
    assert [cell.trial.method for cell in adapters] == [
        "der-adapter", "aanets-adapter", "fas-adapter", "joint-adapter"]  # fmt: skip
    assert [cell.published for cell in adapters] == [None] * 4  # the quoted numbers are of other networks
    assert adapters[0].trial.params["memory_size"] == 2000
    assert [cell.column for cell in experiment("table4").cells[0]][:3] == ["ER", "SS-IL", "TaER"]


@pytest.mark.parametrize("variant", ["raw", "standardized"])
@pytest.mark.parametrize("name", NAMES)
def test_cells_are_runs_that_heads_accept(name, variant):
    for trial in experiment(name, variant).trials:
        check_params(HEADS[trial.method](**trial.params))
        adapted = HEADS[trial.method].card.group == "adapter"  # which needs standardized features
        treated = "none" if variant == "raw" and not adapted else "scale"
        assert trial.params.get("standardize", treated) == treated


def test_no_setting_is_misspelt():
    """A setting that no head has would otherwise be ignored silently."""
    known = {name for head in HEADS.values() for name in head().get_params()}
    known |= {"name", "group", "published", "quoted", "method", "dataset", "backbone", "tasks", "first"}
    settings = _read("settings")
    given = [settings["common"], *settings["datasets"].values(), *settings["methods"].values()]
    for change in settings["variants"].values():
        given += [{key: value for key, value in change.items() if key not in ("title", "methods")}]
        given += change.get("methods", {}).values()
    for name in NAMES:
        data = _read(name)
        given += [data.get("settings", {}), *data["rows"], *data["columns"]]
    assert {key for entry in given for key in entry} <= known
    for methods in (settings["methods"], *(change.get("methods", {}) for change in settings["variants"].values())):
        for method, own in methods.items():
            assert own.keys() <= HEADS[method]().get_params().keys()


def test_the_protocols_are_the_papers():
    taer = [trial for name in NAMES for trial in experiment(name).trials if trial.method == "taer"]
    assert {(trial.dataset, trial.params["epochs"]) for trial in taer} == {
        ("cifar100", 1), ("cub200", 10), ("core50", 1)}  # fmt: skip
    assert {trial.params["lr"] for trial in taer} == {0.1}
    assert {trial.params["memory_size"] for trial in taer if trial.first} == {2000}
    assert {trial.params["memory_size"] for trial in taer if not trial.first} == {100, 200, 500, 1000, 2000}
    assert {trial.tasks for trial in taer} == {5, 10, 20, 50}
    assert variants().keys() == {"raw", "standardized"}


def test_experiments_share_their_runs():
    trials = [*experiment("table1").trials, *experiment("table3").trials]
    alike = {trial.key for trial in experiment("table1").trials} & {
        trial.key for trial in experiment("table3").trials
    }
    assert len(alike) == 16  # ER and TaER on three data sets seen by two backbones, and on two by a third
    assert distinct_runs(trials, {}, seeds=3) == []


def test_what_is_missing_can_be_extracted():
    """The command that is shown names a backbone that exists."""
    sources = {trial.source for name in NAMES for trial in experiment(name).trials}
    assert {backbone for _, backbone in sources} <= NAMED.keys()
    assert {dataset for dataset, _ in sources} == {"cifar100", "cub200", "core50"}


def test_an_unknown_name_is_told_those_there_are():
    with pytest.raises(ValueError, match="there are table1, table2"):
        experiment("table9")


def test_the_sessions_of_cub_are_ten_ways_of_five_shots():
    trials = experiment("fscil-cub").trials
    assert {trial.samples for trial in trials} == {"cub200-sessions.json"}
    assert all(trial.params == {k: v for k, v in HEADS[trial.method]().get_params().items() if k != "random_state"}
               for trial in trials)  # fmt: skip
    base, *later = read_sessions(FOLDER / "cub200-sessions.json")
    assert sorted(base) == list(range(3000))
    assert [len(set(rows)) for rows in later] == [50] * 10
    assert all(max(a) < min(b) for a, b in itertools.pairwise([base, *later]))  # classes in their natural order
