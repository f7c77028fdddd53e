"""Which classes can have the highest score of a row, by scores in float32 whose error is bounded.

Exact products need float64, and directions are kept in float16 or float32: widening them takes longer than the product.
So they are widened once, all scores are computed in float32, and only where these leave a choice is it made by exact ones.
"""

from __future__ import annotations

import numpy as np

from taer.heads import exact

MOST = 1 << 26  # values of directions that are kept in float32: 256 MB
_AT_ONCE = 1 << 22  # products with directions that are looked at in one go
_LARGE = float(np.finfo(np.float32).max) / 2
_EPS = float(np.finfo(np.float32).eps)  # twice the error of one rounding


class Shortlist:
    """Scores ``linear_c + scale_c · (Σ_k weight_ck · (v_ck · z - along_ck)² - level_c)`` with ``z = whiteners[block_c] x``.

    ``v_c`` are the directions of class c. ``whiteners`` and ``blocks`` are left out where z is x.
    """

    def __init__(
        self,
        directions: np.ndarray,
        along: np.ndarray,
        weights: np.ndarray,
        levels: np.ndarray | float = 0.0,
        scales: np.ndarray | float = 1.0,
        blocks: np.ndarray | None = None,
        whiteners: np.ndarray | None = None,
    ) -> None:
        n_classes, _, width = directions.shape
        blocks = np.zeros(n_classes, np.int64) if blocks is None else blocks
        by_block = np.argsort(blocks, kind="stable")
        used = int(np.flatnonzero(weights.any(axis=0)).max(initial=-1)) + 1  # the last ones may be empty
        sorted_ = directions[by_block, :used]
        wide = (exact.widened(sorted_) if sorted_.dtype == np.float16 else sorted_.astype(np.float32)).reshape(
            -1, width
        )
        self.back, self.wide, self.whiteners = np.argsort(by_block), wide, whiteners
        self.along, self.weights = (part[by_block, :used].astype(np.float32) for part in (along, weights))
        self.levels, self.scales = (np.broadcast_to(part, n_classes)[by_block] for part in (levels, scales))
        n_blocks = 1 if whiteners is None else len(whiteners)
        self.ends = np.searchsorted(blocks[by_block], np.arange(1, n_blocks + 1)).tolist()
        self.absolute = np.abs(self.weights) if (self.weights < 0).any() else None
        self.totals = np.abs(self.weights).sum(axis=1)
        self.longest = float(np.sqrt(np.einsum("ij,ij->i", wide, wide).max(initial=0)))
        self.norms = [] if whiteners is None else [float(np.linalg.norm(each)) for each in whiteners]
        self.error = (width + 4) * _EPS  # of a product, in units of the lengths of both vectors

    def __call__(self, rows: np.ndarray, linear: np.ndarray, wrong: np.ndarray | None = None) -> np.ndarray:
        """Whether each class can have the highest score of each row, if ``linear`` may be ``wrong`` by that much."""
        at_once = max(1, _AT_ONCE // max(1, len(self.wide)))
        parts = [slice(start, start + at_once) for start in range(0, len(rows), at_once)]
        wrong = np.zeros_like(linear) if wrong is None else wrong
        return np.concatenate([self._possible(rows[part], linear[part], wrong[part]) for part in parts])

    def _possible(self, rows: np.ndarray, linear: np.ndarray, wrong: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore", invalid="ignore"):  # a row too large for float32 leaves all classes
            found, slack, short = np.empty_like(linear), np.empty_like(linear), rows.astype(np.float32)
            lengths, start = np.sqrt(np.square(rows).sum(axis=1)), 0
            for block, end in enumerate(self.ends):
                space, error = short, 0.0
                if self.whiteners is not None:
                    space = short @ self.whiteners[block].T
                    error = self.error * self.norms[block] * lengths
                error = (error + self.error * np.sqrt(np.square(space).sum(axis=1)))[:, None] * self.longest
                found[:, start:end], slack[:, start:end] = self._ratios(space, slice(start, end), error)
                start = end
            found, slack = linear + found[:, self.back], slack[:, self.back]
            slack += wrong + 4 * _EPS * (np.abs(linear) + np.abs(found))  # scores as close as that may be equal
            possible = ~(found + slack < (found - slack).max(axis=1, keepdims=True))
            # Scores too large for float32 are looked at one by one, where they raise if the head has that type.
            return possible | ~((np.abs(found) + slack).max(axis=1, keepdims=True) < _LARGE)

    def _ratios(self, space: np.ndarray, part: slice, error: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What the directions of some classes add, and by how much that may be wrong."""
        used, totals = self.weights.shape[1], self.totals[part]
        wide = self.wide[part.start * used : part.stop * used]
        squares = np.square((space @ wide.T).reshape(len(space), *self.along[part].shape) - self.along[part])
        added = np.einsum("nck,ck->nc", squares, self.weights[part])
        sizes = added if self.absolute is None else np.einsum("nck,ck->nc", squares, self.absolute[part])
        wrong = error * (2 * np.sqrt(totals * sizes) + error * totals) + (used + 8) * _EPS * sizes
        return self.scales[part] * (added - self.levels[part]), np.abs(self.scales[part]) * wrong
