"""Sentence encoders: a transformer, then the pooling that the model's own files describe."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from taer.extras import require
from taer.features.backbones.base import Backbone, Encoder
from taer.features.backbones.hub import config_of, model_folder, origin_of, read_json, weights_of
from taer.features.backbones.inference import OnnxEncoder, TorchEncoder, encoder_of
from taer.threads import spread

if TYPE_CHECKING:
    from torch import nn

_TOKENS = 1024  # per batch; more is not faster


def find_hub_sentence_encoder(name: str) -> Backbone:
    """A sentence encoder from the Hugging Face hub or a local folder."""
    folder = model_folder(name)
    return find_sentence_encoder(f"hf:{name}", folder, origin_of(name, folder))


def find_sentence_encoder(name: str, folder: Path, origin: str) -> Backbone:
    require("transformers", "text")
    require("torch", "text")
    (pooling, normalize, longest), weights = _recipe(folder), weights_of(folder)

    def load(half: bool = False) -> Encoder:
        from transformers import AutoTokenizer

        tokens = np.array([[0, 1, 2], [3, 4, 5]])
        identity = f"hidden states {weights} {config_of(folder)}"
        network = encoder_of(identity, lambda: _hidden_states(folder), tokens, dynamic=(0, 1), threads=1, half=half)
        return SentenceEncoder(AutoTokenizer.from_pretrained(folder), network, pooling, normalize, longest)

    recipe = f"first {longest} tokens, {pooling} pooling{', unit length' if normalize else ''}"
    return Backbone(name, "text", recipe, f"{origin} sha256:{weights}", str, load)


def _recipe(folder: Path) -> tuple[str, bool, int]:
    """Pooling, whether vectors are normalized, and the maximum length, from the files of sentence-transformers."""
    modules, pooling, normalize = folder / "modules.json", "mean", False
    if modules.is_file():
        for module in read_json(modules):
            kind = str(module["type"]).rpartition(".")[2]
            normalize |= kind == "Normalize"
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
    return pooling, normalize, int(longest)


def _hidden_states(folder: Path) -> nn.Module:
    """The transformer, from the tokens of texts of equal length to the last hidden state of each token."""
    import torch
    from transformers import AutoModel
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    model = AutoModel.from_pretrained(folder, dtype=torch.float32)

    class HiddenStates(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.model(input_ids=tokens, attention_mask=torch.ones_like(tokens)).last_hidden_state

    return HiddenStates()


class SentenceEncoder:
    """Runs texts through a transformer. Only texts with the same number of tokens share a batch, so there is no
    padding, and the features of a text do not depend on the others."""

    batch_size = 256

    def __init__(
        self, tokenizer: Any, network: OnnxEncoder | TorchEncoder, pooling: str, normalize: bool, longest: int
    ) -> None:
        self._tokenizer, self._network = tokenizer, network
        self._pooling, self._normalize, self._longest = pooling, normalize, longest
        self.engine, self.in_flight = network.engine, network.in_flight

    def __call__(self, items: Sequence[str], /) -> np.ndarray:
        tokens = self._tokenizer(list(items), truncation=True, max_length=self._longest)["input_ids"]
        # an empty text may have no token at all
        tokens = [ids or [self._tokenizer.pad_token_id or 0] for ids in tokens]
        of_length: defaultdict[int, list[int]] = defaultdict(list)
        for row, ids in enumerate(tokens):
            of_length[len(ids)].append(row)
        batches = []
        for length, rows in of_length.items():
            size = max(1, _TOKENS // length)
            batches += [rows[start : start + size] for start in range(0, len(rows), size)]
        # The longest first, so that no core is idle at the end.
        batches.sort(key=lambda batch: -len(batch) * len(tokens[batch[0]]))

        def encode(batch: list[int]) -> np.ndarray:
            return self._pooled(self._network.run(np.array([tokens[row] for row in batch])))

        # one core per batch: two cores that share a short text mostly wait for each other
        encoded = np.concatenate(spread(encode, batches))
        return encoded[np.argsort(np.concatenate(batches))]

    def _pooled(self, hidden: np.ndarray) -> np.ndarray:
        # not in the network: onnxruntime's mean has other last bits if a text is alone in its batch
        vectors = hidden.mean(1) if self._pooling == "mean" else hidden[:, 0]
        if self._normalize:
            vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        return vectors
