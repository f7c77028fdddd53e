"""Classifiers that learn new classes for ever, on top of any frozen pretrained model.

The public names are loaded when they are first used, so that ``import taer`` stays fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "HEADS": "taer.heads",
    "make_head": "taer.heads",
    "load": "taer.saving",
    "ER": "taer.heads.er",
    "ERBalanced": "taer.heads.er",
    "ERFixed": "taer.heads.er",
    "Finetune": "taer.heads.finetune",
    "Joint": "taer.heads.joint",
    "TaER": "taer.heads.taer",
    "NCM": "taer.heads.ncm",
    "SLDA": "taer.heads.slda",
    "Ridge": "taer.heads.ridge",
    "RanPAC": "taer.heads.ridge",
    "RFFLDA": "taer.heads.rff_lda",
    "RGDA": "taer.heads.rgda",
    "FeCAM": "taer.heads.fecam",
    "TaERGauss": "taer.heads.taer_gauss",
    "LDAFrozen": "taer.heads.lda_frozen",
    "GaussFrozen": "taer.heads.gauss_frozen",
    "GaussChain": "taer.heads.gauss_chain",
    "ClassStatistics": "taer.statistics",
    "BiC": "taer.heads.bic",
    "DERPP": "taer.heads.derpp",
    "EEIL": "taer.heads.eeil",
    "GDumb": "taer.heads.gdumb",
    "GSS": "taer.heads.gss",
    "ICaRL": "taer.heads.icarl",
    "LwF": "taer.heads.lwf",
    "OnlineEWC": "taer.heads.oewc",
    "SSIL": "taer.heads.ssil",
    "UCIR": "taer.heads.ucir",
    "GradientBased": "taer.memory",
    "GreedyBalanced": "taer.memory",
    "Herding": "taer.memory",
    "Reservoir": "taer.memory",
    "FeatureSet": "taer.features",
    "extract": "taer.features.extraction",
    "features_from_arrays": "taer.features",
    "load_features": "taer.features",
    "class_stream": "taer.stream",
    "cluster": "taer.engine",
    "metrics": "taer.metrics",
}

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'taer' has no attribute {name!r}")
    home = import_module(_HOMES[name])
    value = home if _HOMES[name] == f"taer.{name}" else getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


if TYPE_CHECKING:
    import taer.metrics as metrics  # noqa: F401
    from taer.engine import cluster as cluster
    from taer.features import FeatureSet as FeatureSet
    from taer.features import features_from_arrays as features_from_arrays
    from taer.features import load_features as load_features
    from taer.features.extraction import extract as extract
    from taer.heads import HEADS as HEADS
    from taer.heads import make_head as make_head
    from taer.heads.bic import BiC as BiC
    from taer.heads.derpp import DERPP as DERPP
    from taer.heads.eeil import EEIL as EEIL
    from taer.heads.er import ER as ER
    from taer.heads.er import ERBalanced as ERBalanced
    from taer.heads.er import ERFixed as ERFixed
    from taer.heads.fecam import FeCAM as FeCAM
    from taer.heads.finetune import Finetune as Finetune
    from taer.heads.gauss_chain import GaussChain as GaussChain
    from taer.heads.gauss_frozen import GaussFrozen as GaussFrozen
    from taer.heads.gdumb import GDumb as GDumb
    from taer.heads.gss import GSS as GSS
    from taer.heads.icarl import ICaRL as ICaRL
    from taer.heads.joint import Joint as Joint
    from taer.heads.lda_frozen import LDAFrozen as LDAFrozen
    from taer.heads.lwf import LwF as LwF
    from taer.heads.ncm import NCM as NCM
    from taer.heads.oewc import OnlineEWC as OnlineEWC
    from taer.heads.rff_lda import RFFLDA as RFFLDA
    from taer.heads.rgda import RGDA as RGDA
    from taer.heads.ridge import RanPAC as RanPAC
    from taer.heads.ridge import Ridge as Ridge
    from taer.heads.slda import SLDA as SLDA
    from taer.heads.ssil import SSIL as SSIL
    from taer.heads.taer import TaER as TaER
    from taer.heads.taer_gauss import TaERGauss as TaERGauss
    from taer.heads.ucir import UCIR as UCIR
    from taer.memory import GradientBased as GradientBased
    from taer.memory import GreedyBalanced as GreedyBalanced
    from taer.memory import Herding as Herding
    from taer.memory import Reservoir as Reservoir
    from taer.saving import load as load
    from taer.statistics import ClassStatistics as ClassStatistics
    from taer.stream import class_stream as class_stream
