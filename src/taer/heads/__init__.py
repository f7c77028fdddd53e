"""Heads: scikit-learn classifiers whose set of classes grows. One file a method; found here by name."""

from __future__ import annotations

from typing import Any

from taer.heads.base import Head
from taer.heads.bic import BiC
from taer.heads.derpp import DERPP
from taer.heads.eeil import EEIL
from taer.heads.er import ER, ERBalanced, ERFixed
from taer.heads.fecam import FeCAM
from taer.heads.finetune import Finetune
from taer.heads.gauss_chain import GaussChain
from taer.heads.gauss_frozen import GaussFrozen
from taer.heads.gdumb import GDumb
from taer.heads.gss import GSS
from taer.heads.icarl import ICaRL
from taer.heads.joint import Joint
from taer.heads.lda_frozen import LDAFrozen
from taer.heads.lwf import LwF
from taer.heads.ncm import NCM
from taer.heads.oewc import OnlineEWC
from taer.heads.rff_lda import RFFLDA
from taer.heads.rgda import RGDA
from taer.heads.ridge import RanPAC, Ridge
from taer.heads.slda import SLDA
from taer.heads.ssil import SSIL
from taer.heads.taer import TaER
from taer.heads.taer_gauss import TaERGauss
from taer.heads.ucir import UCIR

HEADS: dict[str, type[Head]] = {
    "taer": TaER,
    "er": ER,
    "er-fixed": ERFixed,
    "er-balanced": ERBalanced,
    "oewc": OnlineEWC,
    "icarl": ICaRL,
    "gss": GSS,
    "derpp": DERPP,
    "ucir": UCIR,
    "ssil": SSIL,
    "lwf": LwF,
    "eeil": EEIL,
    "bic": BiC,
    "gdumb": GDumb,
    "ncm": NCM,
    "slda": SLDA,
    "ridge": Ridge,
    "ranpac": RanPAC,
    "rff-lda": RFFLDA,
    "rgda": RGDA,
    "fecam": FeCAM,
    "taer-gauss": TaERGauss,
    "lda-frozen": LDAFrozen,
    "gauss-frozen": GaussFrozen,
    "gauss-chain": GaussChain,
    "finetune": Finetune,
    "joint": Joint,
}


def make_head(name: str, **params: Any) -> Head:
    """A head by its name in ``HEADS``.

    Examples
    --------
    >>> import taer
    >>> taer.make_head("taer", memory_size=500)
    TaER(memory_size=500)
    """
    if name not in HEADS:
        raise ValueError(f"unknown method {name!r}; there are {', '.join(HEADS)}")
    known = HEADS[name]().get_params()
    if unknown := [param for param in params if param not in known]:
        raise ValueError(f"{name} has no parameter {unknown[0]!r}; it has {', '.join(known)}")
    return HEADS[name](**params)
