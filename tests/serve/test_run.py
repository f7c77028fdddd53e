"""Which backbone a service starts with."""

from __future__ import annotations

import gc
from types import SimpleNamespace

import numpy as np
import pytest

import taer
from taer.features.backbones import NAMED
from taer.origin import Origin
from taer.serve import run as run_module
from taer.serve.run import open_service
from taer.serve.store import Store


def head_of(backbone: str):
    head = taer.NCM().partial_fit(np.eye(8), list("abcdefgh"))
    head.feature_origin_ = Origin(
        backbone, *{"letters": ("sha256:1e77", "counted")}.get(backbone, ("sha256:94a7",))
    )
    return head


def test_the_backbone_that_the_head_remembers(backbones, tmp_path, capsys):
    service = open_service(tmp_path / "dir", head_of("letters"), None)
    assert service.backbone(["cccab"]).tolist() == [[1, 1, 3, 0, 0, 0, 0, 0]]
    assert "loading the backbone" in capsys.readouterr().err
    service.close()
    again = open_service(tmp_path / "dir", None, None)  # from the version in the folder
    assert again.backbone.name == "letters"
    again.close()


def test_another_backbone_is_refused_before_the_folder_is_touched(backbones, tmp_path):
    """Both have eight features, so nothing else would show it."""
    with pytest.raises(
        ValueError, match=r"another backbone than the head has learned: backbone letters .*, not gray"
    ):
        open_service(tmp_path / "dir", head_of("gray"), "letters")
    assert not (tmp_path / "dir").exists()


def test_a_backbone_that_does_not_fit_the_folder_is_refused(backbones, tmp_path):
    open_service(tmp_path / "dir", head_of("letters"), None).close()
    with pytest.raises(ValueError, match="another backbone than the head has learned"):
        open_service(tmp_path / "dir", None, "gray")
    open_service(tmp_path / "dir", None, "letters").close()  # the folder was let go


def test_a_backbone_that_is_not_here_leaves_vectors(backbones, tmp_path, monkeypatch):
    head = head_of("letters")
    monkeypatch.delitem(NAMED, "letters")
    service = open_service(tmp_path / "dir", head, None)
    assert service.backbone is None
    (notice,) = service.notices
    assert notice.startswith(
        "takes vectors, no images or texts, because the head's backbone is not here: letters: not a backbone"
    )
    service.close()


def test_a_head_without_an_origin_takes_vectors_or_what_it_is_given(backbones, tmp_path):
    head = taer.NCM().partial_fit(np.eye(8), list("abcdefgh"))
    for name, expected in ((None, None), ("gray", "gray")):
        service = open_service(tmp_path / str(name), head, name)
        assert getattr(service.backbone, "name", None) == expected
        service.close()
    assert Store(tmp_path / "gray").versions()


def test_collections_while_it_answers_look_at_none_of_what_was_there_before(monkeypatch):
    """All requests wait for a full collection, which takes the longer the more objects it looks at."""
    gc.unfreeze()
    before, during = len(gc.get_objects()), []
    server = SimpleNamespace(run=lambda sockets: during.append(len(gc.get_objects())))
    monkeypatch.setattr(run_module, "server", lambda app: server)
    monkeypatch.setattr(run_module, "threadpool_limits", lambda *_, **__: None)
    try:
        run_module.answer(None, None)
    finally:
        gc.unfreeze()
    assert before > 50_000
    assert during[0] < 5_000
