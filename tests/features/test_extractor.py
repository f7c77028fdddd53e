"""A backbone as a scikit-learn transformer."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from PIL import Image
from sklearn.base import clone

import taer
from taer.features import extractor
from taer.features.backbones import find_backbone


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


def test_scikit_learn_can_clone_and_copy_it_and_the_model_is_loaded_once(backbones):
    first = taer.Extractor("letters")
    first.transform(["a"])
    assert clone(first).get_params() == {"backbone": "letters", "weights": None}
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(first)).transform(["ab"]), first.transform(["ab"]))
    clone(first).transform(["a"])
    assert extractor._encoder.cache_info().misses == 1


@pytest.mark.parametrize("items", ["a text alone", [], [3], [None]])
def test_what_is_no_list_of_texts_is_refused(backbones, items):
    with pytest.raises(ValueError, match=r"expected (a list of )?texts"):
        taer.Extractor("letters").transform(items)


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
