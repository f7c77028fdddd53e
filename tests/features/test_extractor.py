"""A backbone as a scikit-learn transformer."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from sklearn.base import clone

import taer
from taer.features.backbones import NAMED, find_backbone


def test_texts_become_rows_in_order(backbones):
    rows = taer.Extractor("letters").fit_transform(["aab", "c", "h", "aab", ""])
    assert (rows.shape, rows.dtype) == ((5, 8), np.float32)
    np.testing.assert_array_equal(rows[[0, 1, 3], :3], [[2, 1, 0], [0, 0, 1], [2, 1, 0]])


def test_images_as_paths_bytes_or_pillow(backbones, tmp_path):
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (9, 7, 3), np.uint8))
    image.save(tmp_path / "a.png")
    given = [str(tmp_path / "a.png"), tmp_path / "a.png", (tmp_path / "a.png").read_bytes(), image]
    rows = taer.Extractor("gray").transform(given)
    assert len(np.unique(rows, axis=0)) == 1
    assert np.ptp(rows[0]) > 0


def test_scikit_learn_can_clone_and_copy_it_and_the_model_is_loaded_once(backbones, monkeypatch):
    loaded, letters = [], backbones["letters"]
    counted = replace(letters, name="counted", load=lambda half=False: loaded.append(1) or letters.load())
    monkeypatch.setitem(NAMED, "counted", replace(NAMED["letters"], name="counted", find=lambda weights: counted))
    first = taer.Extractor("counted")
    first.transform(["a"])
    assert clone(first).get_params() == {"backbone": "counted", "weights": None, "prepare": None}
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(first)).transform(["ab"]), first.transform(["ab"]))
    clone(first).transform(["a"])
    assert len(loaded) == 1


@pytest.mark.parametrize("items", ["a text alone", [], [3], [None]])
def test_what_is_no_list_of_texts_is_refused(backbones, items):
    with pytest.raises(ValueError, match=r"expected (a list of )?texts"):
        taer.Extractor("letters").transform(items)


SHUFFLED = pd.Series(["ab", "c", "h", "aab"], index=[2, 3, 0, 1])


@pytest.mark.parametrize(
    "hold",
    [
        lambda texts: texts,
        lambda texts: texts.astype("string"),
        lambda texts: texts.to_frame("text"),
        lambda texts: texts.to_numpy(),
        lambda texts: np.array(texts.tolist())[:, None],
        lambda texts: tuple(texts),
        lambda texts: pytest.importorskip("polars").Series(texts.tolist()),
        lambda texts: pytest.importorskip("polars").DataFrame({"text": texts.tolist()}),
        lambda texts: pytest.importorskip("pyarrow").array(texts.tolist()),
        lambda texts: pytest.importorskip("pyarrow").table({"text": texts.tolist()}),
    ],
)
def test_items_are_read_by_position_whatever_holds_them(backbones, hold):
    plain = taer.Extractor("letters").transform(SHUFFLED.tolist())
    np.testing.assert_array_equal(taer.Extractor("letters").transform(hold(SHUFFLED)), plain)


def test_a_pipeline_learns_from_a_shuffled_table(backbones):
    table = pd.DataFrame({"text": ["aaa", "aa", "bb", "bbb", "cc", "ccc"], "topic": list("aabbcc")})
    table = table.sample(frac=1, random_state=0)
    pipe = taer.make_pipeline(taer.Extractor("letters"), taer.NCM()).fit(table["text"], table["topic"])
    assert pipe.score(table[["text"]], table["topic"]) == 1


@pytest.mark.parametrize(
    ("items", "words"),
    [
        (
            (text for text in "ab"),
            "texts: expected a list or an array, got a generator, which can be read only once",
        ),
        ({"a", "b"}, "got a set, whose rows have no positions"),
        (pd.DataFrame({"text": ["a"], "topic": ["b"]}), "expected one column of texts, got 2; choose one"),
        (pd.Series(["a", None]), "expected texts, got a .* in row 1"),
    ],
)
def test_what_is_no_column_of_texts_is_refused_with_words(backbones, items, words):
    with pytest.raises(ValueError, match=words):
        taer.Extractor("letters").transform(items)


def lengths(texts):
    return [[len(text), text.count("a")] for text in texts]


def test_a_function_is_a_backbone():
    items = [f"a{'b' * n}" for n in range(100)]  # several batches
    rows = taer.Extractor(lengths).transform(items)
    np.testing.assert_array_equal(rows, lengths(items))
    assert rows.dtype == np.float32
    prepared = taer.Extractor(lengths, prepare=str.upper)
    np.testing.assert_array_equal(prepared.transform(items)[:, 1], 0)
    assert clone(prepared).get_params() == prepared.get_params()
    assert prepared.origin_.difference(taer.Extractor(lengths, prepare=str.lower).origin_)


def small_network():
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(2, 5), torch.nn.BatchNorm1d(5), torch.nn.Dropout())


def pair(text):
    return np.array(lengths([text])[0])


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_torch_module_is_a_backbone(precision):
    torch = pytest.importorskip("torch")
    network = small_network().to(getattr(torch, precision))
    extractor = taer.Extractor(network, prepare=lambda text: pair(text) / 2)
    items = [f"a{'b' * n}" for n in range(40)]
    rows = extractor.transform(items)
    assert (rows.shape, rows.dtype) == ((40, 5), np.float32)
    inputs = torch.tensor(np.array(lengths(items)) / 2).to(getattr(torch, precision))
    with torch.inference_mode():
        np.testing.assert_allclose(rows, network(inputs).float().numpy(), rtol=1e-2, atol=1e-2)
    assert clone(extractor).backbone is network  # not a copy


def test_a_head_knows_the_torch_module_it_has_learned_with():
    first, other = small_network(), small_network()
    pipe = taer.make_pipeline(taer.Extractor(first, prepare=lambda text: pair(text) / 1.0), taer.NCM())
    pipe.partial_fit(["a", "bbbb"], ["a", "b"])
    pipe.steps[0][1].backbone = other
    pipe.partial_fit(["c"], ["c"])  # the same weights
    other[0].weight.data += 1
    with pytest.raises(ValueError, match="features of another backbone"):
        pipe.partial_fit(["d"], ["d"])
    with pytest.raises(ValueError, match=r"cannot be saved: .* code of your own; save the head"):
        pipe.save("pipe.safetensors")


@pytest.mark.parametrize(
    ("extractor", "words"),
    [
        (lambda: taer.Extractor(lambda texts: np.zeros((1, 3))), r"an array of shape \(1, 3\) for 2 items"),
        (lambda: taer.Extractor(lambda texts: None), "returned a NoneType; expected an array, one row per item"),
        (lambda: taer.Extractor(lengths, weights="a.pth"), "a torch module or a function without weights"),
        (lambda: taer.Extractor(3), "a torch module or a function without weights"),
        (
            lambda: taer.Extractor("letters", prepare=str.upper),
            "prepare is for a model of your own; letters prepares",
        ),
    ],
)
def test_an_own_backbone_that_cannot_work_is_refused_with_words(backbones, extractor, words):
    with pytest.raises(ValueError, match=words):
        extractor().transform(["a", "b"])


def test_an_image_that_cannot_be_read_is_named(backbones, tmp_path):
    (tmp_path / "a.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"a\.png: cannot be read \(not a readable PNG"):
        taer.Extractor("gray").transform([tmp_path / "a.png"])
    with pytest.raises(ValueError, match=r"b\.png: cannot be read"):
        taer.Extractor("gray").transform([tmp_path / "b.png"])
    with pytest.raises(ValueError, match="expected images as paths, bytes or PIL images, got a int"):
        taer.Extractor("gray").transform([3])


def test_a_wrong_name_shows_when_it_is_fitted():
    with pytest.raises(ValueError, match="wings: not a backbone"):
        taer.Extractor("wings").fit()


def test_a_hub_folder_tells_what_it_reads(tmp_path, monkeypatch):
    """Without a kind, images if the folder describes their preprocessing, else texts."""
    from taer.features.backbones import hub, sentences

    monkeypatch.setattr(hub, "find_vision_model", lambda name: f"images by {name}")
    monkeypatch.setattr(sentences, "find_hub_sentence_encoder", lambda name: f"texts by {name}")
    assert find_backbone(f"hf:{tmp_path}") == f"texts by {tmp_path}"
    (tmp_path / "preprocessor_config.json").write_text("{}")
    assert find_backbone(f"hf:{tmp_path}") == f"images by {tmp_path}"
