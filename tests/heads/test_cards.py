"""The cards of the heads are true, and the documentation agrees with them."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest

import taer
from taer.heads.fitted import declared
from taer.heads.registry import CORE
from taer.memory import Everything
from tests.conftest import blobs, small_head

ROOT = Path(__file__).parents[2]
HEADS = dict(taer.HEADS)
every_head = pytest.mark.parametrize("name", list(HEADS))


@pytest.fixture(scope="module")
def hard_tasks():
    """Overlapping classes, so that every score that can move does."""
    X, y = blobs(6, 60, width=10, spread=3.0)
    return [(X[np.isin(y, pair)], y[np.isin(y, pair)]) for pair in ([4, 1], [0, 5], [3, 2])]


def union(tasks):
    return np.concatenate([X for X, _ in tasks]), np.concatenate([y for _, y in tasks])


def learn(head, tasks):
    for X, y in tasks:
        head.partial_fit(X, y)
    return head


@every_head
def test_old_scores_move_or_never_do(name, hard_tasks):
    X, _ = union(hard_tasks)
    head = learn(small_head(name, random_state=0), hard_tasks[:2])
    before = head.scores(X, [4, 1, 0, 5])
    after = head.partial_fit(*hard_tasks[2]).scores(X, [4, 1, 0, 5])
    if name != "lwf":  # whose old columns move by rounding alone, if at all
        assert np.array_equal(before, after) == HEADS[name].card.frozen


@every_head
def test_what_it_keeps(name, hard_tasks):
    head = learn(small_head(name, random_state=0), hard_tasks)
    memory, samples = getattr(head, "memory_", None), sum(len(y) for _, y in hard_tasks)
    kept = (
        "everything" if isinstance(memory, Everything) or hasattr(head, "kept_")
        else "exemplars" if memory is not None
        else "statistics" if any(hasattr(head, name) for name in ("statistics_", "densities_", "scatters_"))
        else "nothing"
    )  # fmt: skip
    assert kept == head.card.keeps
    assert memory is None or len(memory) == min(samples, head.get_params().get("memory_size", samples))


@every_head
def test_what_forgetting_leaves(name, hard_tasks):
    """Scores are as if the class had never been seen, exactly in the heads whose cards say so."""
    said = HEADS[name].card.forgets
    of_the_first = "first task" in said or "first covariance" in said  # what a class of the first task leaves
    exact = said in ("yes", "with `forgettable=True`") or of_the_first
    assert is_as_if_never_seen(name, 5, hard_tasks) == exact
    if of_the_first:
        assert not is_as_if_never_seen(name, 4, hard_tasks)


def is_as_if_never_seen(name, label, tasks):
    params = {"normalize": "l2"} if "normalize" in HEADS[name]().get_params() else {}
    if HEADS[name].card.forgets.startswith("with `forgettable=True`"):
        params["forgettable"] = True
    X, _ = union(tasks)
    head = learn(small_head(name, random_state=0, **params), tasks).forget(label)
    others = [(X[y != label], y[y != label]) for X, y in tasks]
    never = learn(small_head(name, random_state=0, **params), others)
    one, other = (scores - scores.mean(axis=1, keepdims=True) for scores in (head.scores(X), never.scores(X)))
    return np.allclose(one, other, rtol=1e-5, atol=1e-5)


@every_head
def test_scores_of_a_linear_head_are_one_product(name, hard_tasks):
    head, (X, _) = learn(small_head(name, random_state=0), hard_tasks), union(hard_tasks)
    if not hasattr(head, "embedding_"):  # klda has one for each draw
        assert not head.card.linear
        return
    rows = head.embedding_(X).astype(np.float64)
    columns = getattr(head, "weights_", np.zeros(0))
    product = rows @ columns.T if columns.shape[1:] == rows.shape[1:] else None
    offsets = getattr(head, "offsets_", 0)
    is_product = product is not None and np.allclose((product + offsets)[:, head.arrival_], head.scores(X))
    assert is_product == HEADS[name].card.linear
    if hasattr(head, "coef_"):
        np.testing.assert_allclose(X @ head.coef_.T + head.intercept_, head.scores(X), atol=1e-4)


def filler():
    """``tools/fill_docs.py``, which is not part of the package."""
    spec = importlib.util.spec_from_file_location("fill_docs", ROOT / "tools" / "fill_docs.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_documents_say_what_the_cards_say():
    for page, text in filler().from_cards().items():
        assert page.read_text() == text, f"{page.name} differs: python tools/fill_docs.py cards"


def test_measured_figures_of_readme_and_guides_are_those_of_the_evidence():
    """A table that is measured again changes them; ``make docs`` writes them."""
    filling = filler()
    pages = filling.with_figures()
    for page, text in pages.items():
        assert page.read_text() == text, f"{page.name} differs: python tools/fill_docs.py figures"
    listed = set(tomllib.loads((ROOT / "docs" / "figures.toml").read_text())) - {"banking77"}
    assert {mark[2] for text in pages.values() for mark in filling.FIGURE.finditer(text)} == listed
    assert "<!-- figures: banking77 -->" in pages[ROOT / "README.md"]


def test_the_filler_writes_into_a_table_what_the_cards_say():
    table = "| head | A_T | old scores move | ONNX |\n| --- | ---: | --- | --- |\n| `ucir` | 1.0 | ? | ? |\n"
    assert filler().with_facts(table, HEADS).splitlines()[2] == "| `ucir` | 1.0 | yes | no |"
    table = filler().heads_table(HEADS)
    assert re.search(r"^\| `taer` \| .*\| yes \|$", table, re.M)
    assert re.search(r"^\| `joint` \| .*\|  \|$", table, re.M)
    assert f"| the zoo | {len(HEADS) - len(CORE)} more" in table


def test_the_filler_keeps_what_was_not_measured_only_if_told_so():
    page = "<!-- measured: one -->\nold\n<!-- end -->\n<!-- measured: two -->\nold\n<!-- end -->\n"
    assert filler().filled(page, "## two\nnew\n", some=True) == page.replace("two -->\nold", "two -->\nnew")
    with pytest.raises(SystemExit, match="no section begins with 'one'"):
        filler().filled(page, "## two\nnew\n", some=False)


def test_one_row_of_a_table_is_measured_again():
    page = "<!-- measured: one -->\n**T**\n\n| head | A |\n|---|---|\n| `b` | 1 |\n| `c` | 2 |\n<!-- end -->\n"
    again = "### one\n\n| head | A |\n|---|---|\n| `a` | 9 |\n| `c` | 8 |\n"
    found = filler().filled(page, again, some=True, rows=True)
    assert found == page.replace("| `b` |", "| `a` | 9 |\n| `b` |").replace("| `c` | 2 |", "| `c` | 8 |")
    with pytest.raises(SystemExit, match="other columns"):
        filler().filled(page, again.replace("| A |", "| B |"), some=True, rows=True)


def test_methods_shows_the_cards(cli):
    _, out, _ = cli("methods", "--all")
    assert max(map(len, out.splitlines())) <= 100
    zoo = [name for name in HEADS if name not in CORE]
    assert described(out) == [*CORE, *zoo]
    assert re.search(r"^  ncm +none +never +yes +yes +yes +yes$", out, re.M)
    assert "Task-aware experience replay: only the columns of the current task move." in out
    assert "memory_size=200" not in out


def test_methods_shows_parameters_if_asked(cli):
    _, out, _ = cli("methods", "--long", "--all")
    assert max(map(len, out.splitlines())) <= 100
    assert "memory_size=200" in out
    # one name may mean something else in another head
    assert re.search(r"^  alpha +weight of the stored logits \(derpp\)$", out, re.M)
    assert re.search(r"^  alpha +weight of the distillation \(threshold-moving\)$", out, re.M)
    assert re.search(r"^    forgets a class exactly: with `forgettable=True`", out, re.M)


@pytest.mark.parametrize(
    ("typed", "meant"), [("tear", "taer"), ("baies", "bayes"), ("gauss-frosen", "gauss-frozen")]
)
def test_a_typo_in_a_method_is_answered_with_what_was_meant(cli, file, typed, meant):
    code, _, err = cli("fit", file, "--method", typed, "--out", "head")
    assert code == 2
    assert f"unknown method '{typed}'; did you mean {meant}" in err
    assert "icarl" not in err


def described(out):
    """The heads that ``taer methods`` describes, each in a row of its table."""
    return re.findall(r"^  ([a-z-]+) +(?:none|all|memory_size) +(?:never|yes) ", out, re.M)


def test_methods_folds_the_zoo(cli):
    _, out, _ = cli("methods")
    assert described(out) == list(CORE)
    assert re.search(r"The zoo .*taer methods --all.*\bderpp\b", out, re.S)
    assert "weight of the stored logits" not in out  # a parameter of the zoo alone


def test_the_description_of_the_recommended_head_is_short():
    assert len(taer.Bayes.__doc__.splitlines()) <= 55
    assert "densities_ :" not in taer.Bayes.__doc__


def section(text, title):
    """Entries of a section of a docstring, by name."""
    body = re.search(rf"\n{title}\n-+\n(.*?)(?=\n\n\w+\n---|\Z)", text, re.S)[1]
    return {name: (kind, help) for name, kind, help in re.findall(r"^(\w+) : (.+)\n((?: {4}.+\n?)+)", body, re.M)}


@every_head
def test_help_is_enough(name):
    """Parameters, attributes, a reference and an example, in numpydoc's order and form; the examples run as doctests."""
    head = HEADS[name]
    titles = re.findall(r"\n\n(\w+)\n-+\n", head.__doc__)
    assert titles == ["Parameters", "Attributes", "References", "Examples"]
    parameters, attributes = section(head.__doc__, "Parameters"), section(head.__doc__, "Attributes")
    assert set(parameters) == set(head().get_params())
    stored = re.findall(r"``(\w+_)``", re.search(r"\n\nAlso stored.*?\n\n", head.__doc__, re.S)[0])
    assert {*attributes, *stored} - {"coef_", "intercept_"} == set(declared(head))
    for kind, help in [*parameters.values(), *attributes.values()]:
        assert kind
        assert re.match(r" {4}[^a-z\s]", help), help  # a sentence
        assert help.strip().endswith(".")
        assert max(map(len, help.splitlines())) <= 100
    assert all(f"default={value!r}" in parameters[name][0] for name, value in head().get_params().items())
    example = head.__doc__.partition("Examples\n")[2]
    assert f"taer.{'' if name in CORE else 'zoo.'}{head.__name__}(" in example
    assert "\n>>> " in example


@every_head
def test_coefficients_are_documented_where_they_exist(name, tasks):
    head = small_head(name, random_state=0)
    if "normalize" in head.get_params():
        head.set_params(normalize="none")
    attributes = section(type(head).__doc__, "Attributes")
    assert hasattr(learn(head, tasks), "coef_") == ("coef_" in attributes)
    if "coef_" in attributes:
        assert ("normalize='none'" in attributes["coef_"][1]) == ("normalize" in head.get_params())
