"""Heads in the previous format: sorted classes, columns in the user's space, values named by Python modules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from taer.heads import exact
from taer.heads.base import Learned
from taer.heads.closed_form.calibration import PooledLosses
from taer.heads.embedding import Normalize, RandomFeatures, Standardize
from taer.memory import Everything, GradientBased, GreedyBalanced, Herding, Reservoir
from taer.persist.encoding import Decoder, decode_all, made
from taer.statistics import ClassStatistics

_VALUES: dict[str, Any] = {
    "taer.heads.base:Learned": Learned,
    "taer.statistics:ClassStatistics": ClassStatistics,
    **{
        f"taer.memory:{kind.__name__}": kind
        for kind in (Everything, GradientBased, GreedyBalanced, Herding, Reservoir)
    },
}
_KEPT = ("classes_", "learning_order_", "n_tasks_", "n_features_in_", "feature_names_in_", "dtype_", "memory_")
_CLOSED = ("statistics_", "temperature_", "shrinkage_", "covariance_", "prior_", "strength_")
_GAUSSIAN = ("first_temperature_", "betas_")


def converted(
    header: Mapping[str, Any], tensors: Mapping[str, np.ndarray]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parameters and state converted to the current format."""
    decode = _EarlierDecoder(tensors).decode
    name, params, old = header["name"], decode_all(decode, header["params"]), decode_all(decode, header["state"])
    labels = np.array([label for label, _ in old["learning_order_"]])
    order = np.searchsorted(old["classes_"], labels)  # of each class in order of arrival
    state = {key: old[key] for key in (*_KEPT, *_CLOSED, *_GAUSSIAN) if key in old}
    state |= {"rng_": old["_rng_"], "numbers_": np.argsort(labels, kind="stable")}
    if "unlabelled_" in old:
        state["unlabeled_"] = old["unlabelled_"]
    state.setdefault("dtype_", "float32")
    if "mean_" in old:
        state |= _descended(old, order, params)
    else:
        state |= _closed_form(old, order)
        if name in _RENAMED:
            _RENAMED[name](state, old, params)
    if name == "icarl":
        params["memory"] = params.pop("exemplars")
    if name == "derpp":
        params["unseen_logits"] = "ignore"
    if params.get("init") == "normalised-mean":
        params["init"] = "normalized-mean"
    return params, state


def _descended(old: dict[str, Any], order: np.ndarray, params: dict[str, Any]) -> dict[str, Any]:
    embedding = Standardize(old["mean_"], old["scale_"], old["dtype_"])
    state: dict[str, Any] = {"embedding_": embedding, "offsets_": np.zeros(len(order))}
    if "rows_" in old:
        state |= {"columns_": old["rows_"][order], "eta_": float(old["eta_"])}
    else:
        coef = old["coef_"][order].astype(np.float64)
        state["columns_"] = exact.rounded(coef * embedding.scale, embedding.dtype)
        state["offsets_"] = old["intercept_"][order] + coef @ embedding.mean
    state |= {key: old[key][order] for key in ("fisher_", "means_", "offsets_") if key in old}
    if "n_iter_" in old:
        return {**state, "n_iter_": old["n_iter_"], "statistics_": old["statistics_"]}
    params["last_batch"] = "keep"
    return state


def _closed_form(old: dict[str, Any], order: np.ndarray) -> dict[str, Any]:
    width = old["statistics_"].means.shape[1]
    state: dict[str, Any] = {"embedding_": Normalize(old["normalize_"], np.zeros(width))}
    if "trial_losses_" in old:
        state["held_out_"] = PooledLosses(float(old["trial_unit_"]), old["trial_losses_"])
    if "coef_" in old:
        state["columns_"] = exact.rounded(old["coef_"][order], old["dtype_"])
        state["offsets_"] = old["intercept_"][order].astype(np.float64)
    for key in ("means_", "offsets_", "whiteners_", "directions_", "spectra_", "sizes_", "block_"):
        if key in old:
            state[key] = old[key][order]
    return state


def _ridge(state: dict[str, Any], old: dict[str, Any], params: dict[str, Any]) -> None:
    statistics = old["statistics_"]
    distances = statistics.means - statistics.counts @ statistics.means / statistics.n_samples
    trace = np.trace(statistics.scatter) + (statistics.counts @ np.square(distances)).sum()
    share = old.get("share_", 0.0)
    state["gamma_"] = float(
        share * trace / len(statistics.scatter) if params["gamma"] == "auto" else params["gamma"]
    )
    if "projection_" in old:
        center = np.zeros(old["projection_"].shape[1])
        state["embedding_"] = RandomFeatures(old["normalize_"], old["projection_"], None, center)


def _random_fourier(state: dict[str, Any], old: dict[str, Any], params: dict[str, Any]) -> None:
    center, waves = np.zeros(len(old["phases_"])), old["frequencies_"]
    state["embedding_"] = RandomFeatures(old["normalize_"], waves, old["phases_"], center)
    params["shrinkage"] = state.pop("shrinkage_")


def _nearest_mean(state: dict[str, Any], old: dict[str, Any], params: dict[str, Any]) -> None:
    means, arrays = state.pop("means_"), state["statistics_"].to_arrays()
    variances = np.diagonal(arrays["scatter"]).copy()
    state["statistics_"] = ClassStatistics.from_arrays({**arrays, "scatter": variances})
    offsets = np.zeros(len(means)) if params["metric"] == "cosine" else -0.5 * np.square(means).sum(axis=1)
    state |= {
        "columns_": exact.rounded(means, old["dtype_"]),
        "offsets_": offsets,
        "origin_": np.zeros(means.shape[1]),
    }


def _fecam(state: dict[str, Any], old: dict[str, Any], params: dict[str, Any]) -> None:
    state |= {"columns_": state.pop("means_"), "whiteners_": exact.rounded(state["whiteners_"], np.float32)}
    state["offsets_"] = np.zeros(len(state["columns_"]))


def _rgda(state: dict[str, Any], old: dict[str, Any], params: dict[str, Any]) -> None:
    state["columns_"] = np.zeros((len(state["means_"]), 0), old["dtype_"])


def _gaussians(state: dict[str, Any], old: dict[str, Any], params: dict[str, Any]) -> None:
    kept = exact.rounded(state["directions_"], np.float32)
    order = np.searchsorted(old["classes_"], np.array([label for label, _ in old["learning_order_"]]))
    state |= {
        "directions_": kept.astype(np.float16),
        "along_": np.einsum("crd,cd->cr", kept, old["centres_"][order]).astype(np.float32),
        "whiteners_": exact.rounded(np.linalg.inv(old["factors_"].astype(np.float64)), np.float32),
    }


_RENAMED = {
    "ridge": _ridge,
    "ranpac": _ridge,
    "rff-lda": _random_fourier,
    "ncm": _nearest_mean,
    "fecam": _fecam,
    "rgda": _rgda,
    "gauss-frozen": _gaussians,
    "gauss-chain": _gaussians,
}


class _EarlierDecoder(Decoder):
    """Looks up values by the names of their former modules."""

    def __init__(self, tensors: Mapping[str, np.ndarray]) -> None:
        super().__init__(tensors)
        self._kinds["$arrays"] = self._kinds["$record"] = lambda parts: made(
            _VALUES[parts[0]], self.decode(parts[1])
        )
