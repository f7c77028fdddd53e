"""Fitted state as JSON and arrays, and back. Every kind of value has a name in the file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from taer.heads import Learned
from taer.heads.bayes.correction import Corrections
from taer.heads.bayes.kept import KeptSamples
from taer.heads.bayes.novelty import Novelties
from taer.heads.bayes.state import Densities, Prior
from taer.heads.bayes.waiting import Waiting
from taer.heads.closed_form.calibration import PooledLosses
from taer.heads.embedding import Normalize, RandomFeatures, Standardize
from taer.memory import POLICIES, Everything
from taer.origin import Origin
from taer.statistics import ClassStatistics

_DTYPES = {"bool", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))} | {
    "float16",
    "float32",
    "float64",
}
_BIT_GENERATORS = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")
_SCALARS: dict[str, type] = {name: np.dtype(name).type for name in _DTYPES}
KINDS: dict[str, Any] = {
    "learned": Learned,
    "origin": Origin,
    "statistics": ClassStatistics,
    "memory-everything": Everything,
    **{f"memory-{name}": kind for name, kind in POLICIES.items()},
    **{
        kind.kind: kind
        for kind in (
            *(Standardize, Normalize, RandomFeatures, PooledLosses),
            *(Prior, Densities, Novelties, Corrections, KeptSamples, Waiting),
        )
    },
}
_NAMES = {kind: name for name, kind in KINDS.items()}


def decode_all(decode: Callable[[Any], Any], values: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(values, Mapping):
        raise ValueError("its parameters or its state are not a dictionary")
    return {name: decode(value) for name, value in values.items()}


class Encoder:
    """Turns fitted state into JSON and tensors; a tensor is named by its place in the state."""

    def __init__(self) -> None:
        self.tensors: dict[str, np.ndarray] = {}

    def encode(self, value: Any, where: str) -> Any:
        if value is None or type(value) in (bool, int, float, str):
            return value
        if isinstance(value, np.ndarray):
            return self._array(value, where)
        if type(value) in _SCALARS.values():
            return {"$scalar": [value.dtype.name, value.item()]}
        if isinstance(value, np.dtype) and value.name in _DTYPES:
            return {"$dtype": value.name}
        if isinstance(value, np.random.Generator) and type(value.bit_generator).__name__ in _BIT_GENERATORS:
            return {"$generator": self.encode(value.bit_generator.state, where)}
        if type(value) is list:
            return [self.encode(item, f"{where}.{i}") for i, item in enumerate(value)]
        if type(value) is tuple:
            return {"$tuple": self.encode(list(value), where)}
        if type(value) is dict:
            pairs = enumerate(value.items())
            return {
                "$dict": [
                    [self.encode(k, f"{where}.{i}.key"), self.encode(v, f"{where}.{i}")] for i, (k, v) in pairs
                ]
            }
        if type(value) in _NAMES:
            kind, parts = _NAMES[type(value)], list(value) if isinstance(value, tuple) else value.to_arrays()
            return {"$value": [kind, self.encode(parts, where)]}
        raise ValueError(f"the head cannot be saved: {where} is a {type(value).__name__}")

    def _array(self, array: np.ndarray, where: str) -> Any:
        if array.dtype.kind == "U" or (array.dtype.kind == "O" and all(type(item) is str for item in array.flat)):
            return {"$strings": [array.dtype.kind, list(array.shape), array.ravel().tolist()]}
        if array.dtype.name not in _DTYPES:
            raise ValueError(f"the head cannot be saved: {where} is an array of {array.dtype}")
        # Matrix products may round differently if the memory order of a matrix changes.
        turned = array.ndim == 2 and array.flags.f_contiguous and not array.flags.c_contiguous
        self.tensors[where] = np.ascontiguousarray(array.T if turned else array).reshape(
            array.shape[::-1] if turned else array.shape
        )
        return {"$turned" if turned else "$array": where}


class Decoder:
    """The inverse of the encoder. Names in the file are looked up among known kinds, never imported."""

    def __init__(self, tensors: Mapping[str, np.ndarray]) -> None:
        self._kinds: dict[str, Callable[[Any], Any]] = {
            "$array": lambda name: tensors[name],
            "$turned": lambda name: tensors[name].T,
            "$strings": self._strings,
            "$scalar": self._scalar,
            "$dtype": lambda name: np.dtype(_SCALARS[name]),
            "$tuple": lambda items: tuple(self.decode(items)),
            "$dict": lambda pairs: {self.decode(key): self.decode(value) for key, value in pairs},
            "$generator": self._generator,
            "$value": self._value,
        }

    def decode(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self.decode(item) for item in value]
        if isinstance(value, dict):
            ((kind, content),) = value.items()
            return self._kinds[kind](content)
        return value

    def _scalar(self, parts: tuple[str, Any]) -> Any:
        name, item = parts
        return _SCALARS[name](item)

    def _value(self, parts: tuple[str, Any]) -> Any:
        name, described = parts
        return made(KINDS[name], self.decode(described))

    def _strings(self, parts: tuple[str, list[int], list[str]]) -> np.ndarray:
        kind, shape, items = parts
        if not all(type(item) is str for item in items):
            raise ValueError("an array of strings holds something else")
        return np.array(items, {"U": np.str_, "O": object}[kind]).reshape(shape)

    def _generator(self, described: Any) -> np.random.Generator:
        state = self.decode(described)
        if not isinstance(state, dict) or not isinstance(state.get("state"), dict):
            raise ValueError("the state of its random numbers is not one that numpy has")
        if state["bit_generator"] not in _BIT_GENERATORS:
            raise ValueError("unknown generator of random numbers")
        # Where the next number lies in a buffer: numpy does not look whether it lies in there.
        place, end = {"MT19937": (state["state"].get("pos"), 624), "Philox": (state.get("buffer_pos"), 4)}.get(
            state["bit_generator"], (0, 0)
        )
        if type(place) is not int or not 0 <= place <= end:
            raise ValueError("the state of its random numbers is not one that numpy has")
        bits = getattr(np.random, state["bit_generator"])()
        bits.state = state
        return np.random.Generator(bits)


def made(kind: Any, parts: Any) -> Any:
    """A value of a known kind from its description."""
    return kind(*parts) if issubclass(kind, tuple) else kind.from_arrays(parts)
