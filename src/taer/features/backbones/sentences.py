"""Sentence encoders: a transformer, then the pooling that the model's own files describe."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from taer.extras import require
from taer.features.backbones.base import Backbone, Encoder
from taer.features.backbones.hub import model_folder, read_json, weights_of
from taer.features.backbones.inference import torch_device

_BATCH = 32


def find_hub_sentence_encoder(name: str) -> Backbone:
    """A sentence encoder of the Hugging Face hub, or in a local folder."""
    return find_sentence_encoder(f"hf:{name}", model_folder(name), f"hf:{name}")


def find_sentence_encoder(name: str, folder: Path, origin: str) -> Backbone:
    require("transformers", "text")
    require("torch", "text")
    pooling, normalise, longest = _recipe(folder)

    def load() -> Encoder:
        return SentenceEncoder(folder, pooling, normalise, longest)

    recipe = f"first {longest} tokens, {pooling} pooling{', unit length' if normalise else ''}"
    return Backbone(name, "text", recipe, f"{origin} sha256:{weights_of(folder)}", str, load)


def _recipe(folder: Path) -> tuple[str, bool, int]:
    """Pooling, whether vectors have unit length, and the longest text, as sentence-transformers says."""
    modules, pooling, normalise = folder / "modules.json", "mean", False
    if modules.is_file():
        for module in read_json(modules):
            kind = str(module["type"]).rpartition(".")[2]
            normalise |= kind == "Normalize"
            if kind == "Pooling":
                settings = read_json(folder / module["path"] / "config.json")
                chosen = [
                    key for key, value in settings.items() if key.startswith("pooling_mode_") and value is True
                ]
                chosen = chosen or [f"pooling_mode_{settings.get('pooling_mode')}"]
                names = {"pooling_mode_mean_tokens": "mean", "pooling_mode_mean": "mean"}
                names |= {"pooling_mode_cls_token": "class token", "pooling_mode_cls": "class token"}
                if len(chosen) != 1 or chosen[0] not in names:
                    raise ValueError(
                        f"{folder}: pooling {', '.join(chosen)} is not known; expected mean or class token"
                    )
                pooling = names[chosen[0]]
            elif kind not in ("Transformer", "Normalize"):
                raise ValueError(f"{folder}: has a layer after pooling that is not known: {module['type']}")
    limits = folder / "sentence_bert_config.json"
    longest = read_json(limits).get("max_seq_length") if limits.is_file() else None
    longest = longest or read_json(folder / "config.json").get("max_position_embeddings") or 512
    return pooling, normalise, int(longest)


class SentenceEncoder:
    """Texts through a transformer; those of like length share a batch, so that little of it is padding."""

    batch_size = 256

    def __init__(self, folder: Path, pooling: str, normalise: bool, longest: int) -> None:
        import torch
        from transformers import AutoModel, AutoTokenizer
        from transformers.utils import logging

        logging.set_verbosity_error()
        logging.disable_progress_bar()
        self._device = torch_device()
        self._tokenizer = AutoTokenizer.from_pretrained(folder)
        self._model = AutoModel.from_pretrained(folder, dtype=torch.float32).eval().to(self._device)
        self._pooling, self._normalise, self._longest = pooling, normalise, longest
        self.engine = f"torch {torch.__version__} on {self._device}"

    def __call__(self, items: Sequence[str], /) -> np.ndarray:
        order = sorted(range(len(items)), key=lambda row: len(items[row]))
        rows: dict[int, np.ndarray] = {}
        for start in range(0, len(order), _BATCH):
            batch = order[start : start + _BATCH]
            rows.update(zip(batch, self._encode([items[row] for row in batch]), strict=True))
        return np.stack([rows[row] for row in range(len(items))])

    def _encode(self, texts: list[str]) -> np.ndarray:
        import torch

        tokens = self._tokenizer(
            texts, padding=True, truncation=True, max_length=self._longest, return_tensors="pt"
        ).to(self._device)
        with torch.inference_mode():
            hidden = self._model(**tokens).last_hidden_state
            if self._pooling == "mean":
                mask = tokens["attention_mask"].unsqueeze(-1).to(hidden.dtype)
                vectors = (hidden * mask).sum(1) / mask.sum(1).clamp(min=1e-9)
            else:
                vectors = hidden[:, 0]
            if self._normalise:
                vectors = torch.nn.functional.normalize(vectors)
        return vectors.float().cpu().numpy()
