"""A head predicts in one thread while it learns in another: every prediction comes from one state."""

from __future__ import annotations

import copy
import sys
import tempfile
import threading

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import taer
from taer import rows, threads
from taer.files import read_metadata
from taer.persist.onnx import export_onnx
from taer.threads import one_blas_thread
from tests.conftest import blobs, small_head

onnxruntime = pytest.importorskip("onnxruntime")

X, Y = blobs(12, 20, width=6)
SAMPLES = X[::4]
TASKS = ([3, 8, 5], [0, 11], [7, 1, 2], [4, 6], [9, 10])
ASKED = {
    "predict": lambda head: head.predict(SAMPLES),
    "predict or unknown": lambda head: head.predict(SAMPLES, unknown=-1, threshold=0.5),
    "predict_proba": lambda head: head.predict_proba(SAMPLES),
    "predict_with_proba": lambda head: np.column_stack(head.predict_with_proba(SAMPLES)),
    "decision_function": lambda head: head.decision_function(SAMPLES),
    "scores": lambda head: head.scores(SAMPLES),
    "scores of some": lambda head: head.scores(SAMPLES, classes=[5, 3]),
    "novelty": lambda head: head.novelty(SAMPLES),
    "coef_": lambda head: getattr(head, "coef_", np.zeros(0)),
    "intercept_": lambda head: getattr(head, "intercept_", np.zeros(0)),
    "_class_state": lambda head: np.concatenate([part.ravel() for part in head._class_state(5)]),
}


def saved(head):
    with tempfile.TemporaryDirectory() as folder:
        head.save(f"{folder}/head.safetensors")
        return taer.load(f"{folder}/head.safetensors").scores(SAMPLES)


def exported(head):
    if not head.card.exports:
        return np.zeros(0)
    with tempfile.TemporaryDirectory() as folder:
        export_onnx(head, f"{folder}/head.onnx")
        session = onnxruntime.InferenceSession(f"{folder}/head.onnx", providers=["CPUExecutionProvider"])
        return session.run(["probabilities"], {"features": SAMPLES})[0]


def learned(head, task):
    known = np.isin(Y, task)
    return head.partial_fit(X[known], Y[known])


def versions(name):
    """The head after each task, as separate objects."""
    head, found = small_head(name, random_state=0), []
    for task in TASKS:
        found.append(copy.deepcopy(learned(head, task)))
    return found


def is_one_of(answer, answers):
    # to rounding: how many threads a product has is decided while others learn
    return any(
        answer.shape == other.shape and np.allclose(answer, other, rtol=1e-4, atol=1e-6) for other in answers
    )


def changing(before, after, at):
    """A head that becomes another one just before the given reading of its state."""
    left = at

    def read(self, name):
        nonlocal left
        if self is head and (name == "__dict__" or (name.endswith("_") and not name.startswith("_"))):
            left -= 1
            if left == 0:
                object.__setattr__(self, "__dict__", dict(after.__dict__))
        return object.__getattribute__(self, name)

    kind = type(before)
    head = object.__new__(type(kind.__name__, (kind,), {"__getattribute__": read, "__module__": kind.__module__}))
    object.__setattr__(head, "__dict__", dict(before.__dict__))
    return head, lambda: left > 0


@pytest.mark.parametrize("name", list(taer.HEADS))
def test_a_task_that_ends_between_two_readings(name):
    """The state is replaced before each read in turn, as if another thread had taken over there."""
    before, after = versions(name)[1:3]
    answers_after = [after.scores(SAMPLES)]
    for asked, ask in {**ASKED, "save": saved, "export": exported}.items():
        answers = [ask(before), ask(after)]
        for at in range(1, 60):
            head, unread = changing(before, after, at)
            assert is_one_of(ask(head), answers), f"{asked}, reading {at}"
            if unread():
                break
            assert is_one_of(head.scores(SAMPLES), answers_after), f"{asked} took back the task at reading {at}"
        else:
            pytest.fail(f"{asked} reads its state more than 60 times")


@pytest.mark.parametrize("name", list(taer.HEADS))
def test_answers_while_another_thread_learns(name):
    expected = versions(name)
    answers = {asked: [ask(head) for head in expected] for asked, ask in ASKED.items()}
    head, done, failed = learned(small_head(name, random_state=0), TASKS[0]), threading.Event(), []

    def teach():
        try:
            for task in TASKS[1:]:
                learned(head, task)
        except BaseException as error:
            failed.append(error)
        finally:
            done.set()

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        teacher = threading.Thread(target=teach)
        teacher.start()
        finished = False
        while not finished:
            finished = done.is_set()  # and once more after that
            for asked, ask in ASKED.items():
                assert is_one_of(ask(head), answers[asked]), asked
        teacher.join()
    finally:
        sys.setswitchinterval(before)
    assert not failed
    assert is_one_of(head.scores(SAMPLES), answers["scores"][-1:])


@pytest.mark.parametrize("name", list(taer.HEADS))
def test_the_same_bits_whatever_the_number_of_blas_threads(name, tmp_path):
    """With 200 features, BLAS splits products and factorizations by the number of its threads."""
    wide, labels = blobs(8, 40, width=200, seed=2)
    for number in (1, 2):
        head = small_head(name, random_state=0)
        with threadpool_limits(number, user_api="blas"):
            for task in ([0, 1, 2, 3], [4, 5, 6, 7]):
                chosen = np.isin(labels, task)
                head.partial_fit(wide[chosen], labels[chosen])
        head.save(tmp_path / str(number))
    assert read_metadata(tmp_path / "1")["sha256"] == read_metadata(tmp_path / "2")["sha256"]


@pytest.mark.parametrize("name", ["taer", "slda", "gauss-chain"])
def test_answers_in_parts_on_several_cores(name, monkeypatch):
    head = versions(name)[-1]
    whole = {asked: ask(head) for asked, ask in ASKED.items()}
    monkeypatch.setattr(rows, "_CHUNK", 60)  # parts of a few rows
    monkeypatch.setattr(threads, "cores", lambda: 3)
    for asked, ask in ASKED.items():
        np.testing.assert_allclose(ask(head), whole[asked], rtol=1e-6, err_msg=asked)


def test_one_blas_thread_while_another_thread_leaves():
    """The number of threads belongs to the process: it stays at one until the last caller has left."""

    def number_of_threads():
        return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}

    with threadpool_limits(2, user_api="blas"):
        first, second = one_blas_thread(), one_blas_thread()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert number_of_threads() == {1}
        second.__exit__(None, None, None)
        assert number_of_threads() == {2}


def test_one_blas_thread_in_any_thread():
    """Whichever thread came first: inside another one BLAS has one thread, and afterwards as many as before."""

    def number_of_threads():
        return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}

    def look():
        with one_blas_thread():
            inside.append(number_of_threads())

    def stay():
        with one_blas_thread():
            entered.set()
            left.wait()

    inside, entered, left = [], threading.Event(), threading.Event()
    with threadpool_limits(2, user_api="blas"):
        with one_blas_thread():
            pass
        other = threading.Thread(target=look)
        other.start()
        other.join()
        last = threading.Thread(target=stay)
        with one_blas_thread():
            last.start()
            entered.wait()
        left.set()
        last.join()
        assert inside == [{1}]
        assert number_of_threads() == {2}
