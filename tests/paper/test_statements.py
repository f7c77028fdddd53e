"""The rules that judge the paper's statements."""

from __future__ import annotations

import pytest

from taer.paper.statements import STATEMENTS, Evidence, verdict

HOLDS = (  # of the paper's own numbers; of the others, two hold in part and those about figures are not tested
    "Methods without replay",
    "ER beats GSS",
    "With a ViT, ER on CUB200",
    "All methods do better with the ViT",
    "With a ViT, the best baseline",
    "With a ViT, TaER beats DER",
    "With ResNet18, TaER beats AANets",
    "λ and fixed columns together",
    "On CIFAR100 λ and fixed columns",
    "Fixed columns alone",
    "λ matters more",
    "TaER loses a smaller fraction",
    "TaER is as good with 5, 10 and 20",
)


def judged(claim, evidence):
    return next(test for name, test in STATEMENTS.items() if name.startswith(claim))(evidence)


def test_the_papers_own_numbers_support_what_its_text_says():
    found = {claim: verdict(list(test(Evidence("raw", None)))) for claim, test in STATEMENTS.items()}
    assert [claim for claim, said in found.items() if said == "holds"] == [
        claim for start in HOLDS for claim in STATEMENTS if claim.startswith(start)
    ]
    assert found["DER++ always beats ER (table 1)"].endswith("CORe50 ViT-S/16, CORe50 ResNet18")
    assert {said for claim, said in found.items() if "figure" in claim} == {"not tested"}


class Given(Evidence):
    """Numbers by group, column and row."""

    def __init__(self, numbers):
        self.numbers = numbers

    def groups(self, name):
        yield from self.numbers.items()

    def columns(self, name):
        for group, columns in self.numbers.items():
            yield from ((f"{column} {group}".strip(), rows) for column, rows in columns.items())


BASELINES = {"Finetune": 1, "oEWC": 2, "ER": 3, "iCaRL": 4, "GSS": 5, "DER++": 6, "UCIR": 7, "SS-IL": 8}


@pytest.mark.parametrize(
    ("claim", "numbers", "expected"),
    [
        ("All methods", {"DeiT-Ti/16": {"A": {"ER": 3, "UCIR": 2}}, "ResNet18": {"A": {"ER": 2, "UCIR": 1}}}, [True]),
        ("All methods", {"DeiT-Ti/16": {"A": {"ER": 3, "UCIR": 1}}, "ResNet18": {"A": {"ER": 2, "UCIR": 1}}}, [False]),
        ("With a ViT, the best", {"DeiT-Ti/16": {"A": BASELINES, "B": BASELINES}}, [False]),
        ("With a ViT, the best", {"DeiT-Ti/16": {"A": BASELINES, "B": BASELINES | {"ER": 9}}}, [True]),
        ("With a ViT, the best", {"ResNet18": {"A": BASELINES, "B": BASELINES}}, []),
        ("With a ViT, the best", {"DeiT-Ti/16": {"A": BASELINES, "B": {"ER": 1}}}, []),
        ("With a ViT, TaER", {"": {"DER, ResNet18": {"5": 73.0}, "TaER, DeiT-Ti/16": {"5": 74.0}}}, [True]),
        ("With a ViT, TaER", {"": {"DER, ResNet18": {"5": 73.0}, "TaER, DeiT-Ti/16": {"5": 72.0}},
                              "On an adapter": {"DER, ResNet18": {"5": 65.0}}}, [False]),
        ("With ResNet18, TaER", {"": {"DER, ResNet18": {"5": 73.0}, "AANets, ResNet32": {"5": 60.0},
                                      "FAS, ResNet32": {"5": 60.0}, "TaER, ResNet18": {"5": 70.0}},
                                 "On an adapter": {"DER, ResNet18": {"5": 65.0}}}, [True]),
        ("On CIFAR100", {"G": {"CIFAR100": {"ER": 2, "ER-fixed": 3, "ER-balanced": 1}}}, [False]),
        ("On CIFAR100", {"G": {"CIFAR100": {"ER": 2, "ER-fixed": 3, "ER-balanced": 4}}}, [True]),
        ("TaER is as good", {"G": {"TaER": {"5": 60.0, "10": 59.0, "20": 58.5, "50": 55.0}}}, [True]),
        ("TaER is as good", {"G": {"TaER": {"5": 60.0, "10": 59.0, "20": 57.5, "50": 45.0}}}, [False]),
        ("TaER is as good", {"G": {"TaER": {"5": 60.0, "10": 59.0, "20": 59.5, "50": 58.0}}}, [False]),
    ],
)  # fmt: skip
def test_rules_about_a_vit_and_about_the_number_of_tasks(claim, numbers, expected):
    assert [check.holds for check in judged(claim, Given(numbers))] == expected
