"""Pipelines that keep learning, and that are saved as one file."""

from __future__ import annotations

import json

import numpy as np
import pytest
from safetensors.numpy import save_file
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.model_selection import cross_val_score
from sklearn.preprocessing import Normalizer, StandardScaler

import taer
from taer.features.backbones import NAMED
from taer.files import read_metadata
from taer.origin import Origin
from taer.persist.save import checksum, load
from tests.conftest import blobs

TEXTS, LABELS = ["aaab", "aab", "aaaab", "ccd", "cccd", "ccdd"], ["a"] * 3 + ["c"] * 3


def two_tasks():
    X, y = blobs(4, 30)
    return [(X[rows], y[rows]) for rows in (y < 2, y >= 2)]


def test_tasks_go_through_to_the_head_and_steps_are_fitted_once():
    first, second = two_tasks()
    pipe = taer.make_pipeline(StandardScaler(), Normalizer(), taer.Bayes(random_state=0))
    assert pipe.partial_fit(*first) is pipe
    scaler = StandardScaler().fit(first[0])
    pipe.partial_fit(*second)
    np.testing.assert_array_equal(pipe[0].mean_, scaler.mean_)  # of the first task, whatever came later
    by_hand = taer.Bayes(random_state=0)
    for X, y in (first, second):
        by_hand.partial_fit(Normalizer().transform(scaler.transform(X)), y)
    X = Normalizer().transform(scaler.transform(second[0]))
    np.testing.assert_array_equal(pipe.predict_proba(second[0]), by_hand.predict_proba(X))
    assert pipe.classes_.tolist() == [0, 1, 2, 3]


def test_a_step_that_is_fitted_stays_as_it_is():
    first, second = two_tasks()
    scaler = StandardScaler().fit(second[0])
    pipe = taer.make_pipeline(scaler, taer.NCM()).partial_fit(*first)
    np.testing.assert_array_equal(pipe[0].mean_, StandardScaler().fit(second[0]).mean_)


def test_a_call_that_fails_changes_nothing():
    (X, y), _ = two_tasks()
    pipe = taer.make_pipeline(StandardScaler(), taer.NCM())
    with pytest.raises(ValueError, match="labels that classes lacks"):
        pipe.partial_fit(X, y, classes=[7])
    assert not hasattr(pipe[0], "mean_")
    pipe.partial_fit(X, y)
    pipe.steps.insert(0, ("late", StandardScaler()))
    with pytest.raises(ValueError, match="the step 'late' before it is not fitted"):
        pipe.partial_fit(X, y)


def test_fit_forgets_and_scikit_learn_can_clone_it():
    (X, y), second = two_tasks()
    pipe = taer.make_pipeline(StandardScaler(), taer.NCM()).partial_fit(*second).fit(X, y)
    assert pipe.classes_.tolist() == [0, 1]
    assert isinstance(clone(pipe), taer.Pipeline)
    assert cross_val_score(pipe, X, y, cv=3).min() > 0.9


def test_from_texts_to_labels(backbones):
    pipe = taer.make_pipeline(taer.Extractor("letters"), taer.NCM()).partial_fit(TEXTS, LABELS)
    pipe.partial_fit(["eee", "eef"], ["e", "e"])
    assert pipe.predict(["aaaa", "cc", "ee"]).tolist() == ["a", "c", "e"]
    assert pipe[-1].feature_origin_ == Origin("letters", "here sha256:1e77", "counted")
    other = taer.make_pipeline(taer.Extractor("gray"), pipe[-1])
    with pytest.raises(ValueError, match="another backbone than the head has learned: backbone gray"):
        other.partial_fit(["x.png"], ["e"])
    assert pipe.fit(TEXTS, LABELS)[-1].feature_origin_.backbone == "letters"
    between = taer.make_pipeline(taer.Extractor("letters"), Normalizer(), taer.NCM()).partial_fit(TEXTS, LABELS)
    assert not hasattr(between[-1], "feature_origin_")  # its features are not the backbone's


def counted(items):
    """A backbone of one's own: how often each letter is in a text."""
    return [[item.count(letter) for letter in "abcdefgh"] for item in items]


@pytest.fixture
def loop():
    """A pipeline that knows a and c, the head with its features, and texts of a, c and the new class f."""
    rng = np.random.default_rng(0)

    def texts(letters, count):
        rows = [letter for letter in letters for _ in range(count)]
        return [row * rng.integers(12, 19) + "bdh"[rng.integers(3)] * rng.integers(1, 4) for row in rows], rows

    known, labels = texts("ace", 30)
    pipe = taer.make_pipeline(taer.Extractor(counted), "passthrough", Normalizer(), taer.Bayes(random_state=0))
    return pipe.partial_fit(known, labels), known, labels, *texts("acef", 20)


def test_the_verbs_of_the_loop_go_through_to_the_head(loop):
    pipe, known, labels, asked, truth = loop
    head, X = pipe[-1], pipe[:-1].transform(asked)
    np.testing.assert_array_equal(pipe.novelty(asked), head.novelty(X))
    np.testing.assert_array_equal(pipe.suggest(asked, 3), head.suggest(X, 3))
    assert pipe.explain(asked[:2], (known, labels), 1) == head.explain(
        X[:2], (pipe[:-1].transform(known), labels), 1
    )
    assert pipe.explain(asked[:1])[0].answer.examples == ()
    found = pipe.automate(asked[:60], truth[:60], errors=0.2)
    assert found == head.automate(X[:60], truth[:60], errors=0.2)
    np.testing.assert_array_equal(pipe.automatic(asked), head.automatic(X))
    assert pipe.automatic(asked)[:60].any()


def test_a_pipeline_discovers_texts_with_their_words(loop):
    pipe, _, _, asked, truth = loop
    found = pipe.discover([f"{text} ok" for text in asked])
    np.testing.assert_array_equal(found.labels >= 0, np.array(truth) == "f")
    assert all(word[0] == "f" for group in found.groups for word in group.words if word != "ok")
    (X, y), (other, _) = two_tasks()
    numbers = taer.make_pipeline(StandardScaler(), taer.Bayes()).partial_fit(X, y)
    assert all(group.words == () for group in numbers.discover(other).groups)


def test_a_pipeline_that_knows_nothing_suggests_by_spread(loop):
    _, _, _, asked, truth = loop
    pipe = taer.make_pipeline(taer.Extractor(counted), StandardScaler(), taer.Bayes())
    assert sorted(truth[row] for row in pipe.suggest(asked, 4)) == list("acef")
    assert not hasattr(pipe[1], "mean_")  # it is fitted on the first task


def test_what_a_head_cannot_is_told():
    (X, y), _ = two_tasks()
    pipe = taer.make_pipeline(StandardScaler(), taer.NCM()).partial_fit(X, y)
    assert len(pipe.novelty(X)) == len(X)
    for verb, arguments in (
        ("discover", ()),
        ("suggest", (3,)),
        ("explain", ()),
        ("automate", (y,)),
        ("automatic", ()),
    ):
        with pytest.raises(ValueError, match=f"NCM has no {verb}; bayes and bayes-replay have it"):
            getattr(pipe, verb)(X, *arguments)


def test_one_file_for_all_steps(backbones, tmp_path):
    steps = [taer.Extractor("letters"), StandardScaler(), PCA(2), "passthrough", taer.Bayes(random_state=0)]
    pipe = taer.make_pipeline(*steps).partial_fit(TEXTS, LABELS)
    pipe.save(tmp_path / "pipe.safetensors")
    same = taer.load(tmp_path / "pipe.safetensors")
    assert [name for name, _ in same.steps] == [name for name, _ in pipe.steps]
    np.testing.assert_array_equal(same.predict_proba(TEXTS), pipe.predict_proba(TEXTS))
    for grown in (pipe, same):
        grown.partial_fit(["eee", "eef"], ["e", "e"])
    np.testing.assert_array_equal(same.predict_proba(TEXTS), pipe.predict_proba(TEXTS))
    expected = r"a pipeline, not a head alone; taer.load reads it, and taer.load\(path\)\[-1\].save\(name\) writes"
    with pytest.raises(ValueError, match=expected):
        load(tmp_path / "pipe.safetensors")


def test_the_head_of_a_pipeline_is_for_the_commands(backbones, cli, tmp_path):
    pipe = taer.make_pipeline(taer.Extractor("letters"), taer.Bayes(random_state=0)).partial_fit(TEXTS, LABELS)
    pipe.save(tmp_path / "pipe.safetensors")
    taer.load(tmp_path / "pipe.safetensors")[-1].save(tmp_path / "head.safetensors")
    assert cli("predict", "head.safetensors", "aaaa", "cc") == (0, "a\nc\n", "")  # it knows its backbone


def test_a_head_is_still_loaded_as_a_head(tmp_path):
    taer.NCM().partial_fit(*two_tasks()[0]).save(tmp_path / "head")
    assert isinstance(taer.load(tmp_path / "head"), taer.NCM)


def test_what_cannot_be_saved_is_named(tmp_path):
    words = taer.make_pipeline(CountVectorizer(), taer.NCM())
    words.steps[-1][1].partial_fit(*two_tasks()[0])
    with pytest.raises(
        ValueError, match="its step 'countvectorizer' is a CountVectorizer; expected a head, an Extractor"
    ):
        words.save(tmp_path / "x")
    with pytest.raises(ValueError, match="learned nothing yet"):
        taer.make_pipeline(Normalizer(), taer.NCM()).save(tmp_path / "x")
    with pytest.raises(ValueError, match="its last step, 'pca', is not a head of taer"):
        taer.make_pipeline(Normalizer(), PCA()).save(tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_another_backbone_of_that_name_is_refused(backbones, tmp_path, monkeypatch):
    taer.make_pipeline(taer.Extractor("letters"), taer.NCM()).partial_fit(TEXTS, LABELS).save(tmp_path / "pipe")
    monkeypatch.setitem(NAMED, "letters", NAMED["gray"])
    taer.features.extractor._found.cache_clear()
    with pytest.raises(ValueError, match="here its extractor is another one: backbone gray"):
        taer.load(tmp_path / "pipe")


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([["x", "os.system", None]], "'os.system' is not a kind of step that taer writes"),
        ([["x", "StandardScaler", [{}, {"__class__": 1}]]], "'__class__' is not the name of a fitted attribute"),
        ([["x", "StandardScaler", [{}, {"fit_": 1}]]], "its last step is not a head"),
        ([["x", "StandardScaler", [{"wings": 2}, {}]]], "not one that taer writes"),
        (7, "not one that taer writes"),
    ],
)
def test_a_forged_file_is_refused(tmp_path, steps, message):
    text = json.dumps({"steps": steps})
    meta = {"format": "taer-pipeline/1", "head": text, "sha256": checksum(text, {})}
    save_file({}, tmp_path / "forged", metadata=meta)
    assert read_metadata(tmp_path / "forged")["format"] == "taer-pipeline/1"
    with pytest.raises(ValueError, match=message):
        taer.load(tmp_path / "forged")
