"""Classifiers that keep learning new classes, on top of any frozen pretrained model.

The public names are loaded when they are first used, so that ``import taer`` stays fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "HEADS": "taer.heads",
    "Card": "taer.heads",
    "from_linear": "taer.heads.from_linear",
    "make_head": "taer.heads",
    "load": "taer.persist.pipelines",
    "diagnose": "taer.persist.diagnosis",
    "Pipeline": "taer.pipeline",
    "make_pipeline": "taer.pipeline",
    "ClassStatistics": "taer.statistics",
    "GradientBased": "taer.memory",
    "GreedyBalanced": "taer.memory",
    "Herding": "taer.memory",
    "Reservoir": "taer.memory",
    "Extractor": "taer.features.extractor",
    "FeatureSet": "taer.features",
    "extract": "taer.features.extraction",
    "features_from_arrays": "taer.features",
    "load_features": "taer.features",
    "class_stream": "taer.stream",
    "sample_stream": "taer.stream",
    "cluster": "taer.parallel",
    "metrics": "taer.metrics",
}

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        home = import_module(_HOMES[name])
        value = home if _HOMES[name] == f"taer.{name}" else getattr(home, name)
    elif name[:1].isupper() and name in (heads := _heads()):
        value = heads[name]
    else:
        raise AttributeError(f"module 'taer' has no attribute {name!r}")
    globals()[name] = value
    return value


def _heads() -> dict[str, Any]:
    """The head classes of this package, by class name; each head's file registers its class."""
    heads = import_module("taer.heads").HEADS.values()
    return {head.__name__: head for head in heads if head.__module__.startswith("taer.")}


def __dir__() -> list[str]:
    return sorted([*__all__, *_heads()])


if TYPE_CHECKING:
    from taer import metrics as metrics
    from taer.features import FeatureSet as FeatureSet
    from taer.features import features_from_arrays as features_from_arrays
    from taer.features import load_features as load_features
    from taer.features.extraction import extract as extract
    from taer.features.extractor import Extractor as Extractor
    from taer.heads import HEADS as HEADS
    from taer.heads import Card as Card
    from taer.heads import make_head as make_head
    from taer.heads.adapter.aanets import AANetsAdapter as AANetsAdapter
    from taer.heads.adapter.ags_cl import AGSCLAdapter as AGSCLAdapter
    from taer.heads.adapter.den import DENAdapter as DENAdapter
    from taer.heads.adapter.der import DERAdapter as DERAdapter
    from taer.heads.adapter.fas import FASAdapter as FASAdapter
    from taer.heads.adapter.finetune import FinetuneAdapter as FinetuneAdapter
    from taer.heads.adapter.hat import HATAdapter as HATAdapter
    from taer.heads.adapter.joint import JointAdapter as JointAdapter
    from taer.heads.adapter.xdg import XdGAdapter as XdGAdapter
    from taer.heads.closed_form.bayes import Bayes as Bayes
    from taer.heads.closed_form.bayes_replay import BayesReplay as BayesReplay
    from taer.heads.closed_form.factor_analyzer import FactorAnalyzer as FactorAnalyzer
    from taer.heads.closed_form.fecam import FeCAM as FeCAM
    from taer.heads.closed_form.gauss_chain import GaussChain as GaussChain
    from taer.heads.closed_form.gauss_frozen import GaussFrozen as GaussFrozen
    from taer.heads.closed_form.lda_frozen import LDAFrozen as LDAFrozen
    from taer.heads.closed_form.ncm import NCM as NCM
    from taer.heads.closed_form.ranpac import RanPAC as RanPAC
    from taer.heads.closed_form.rff_lda import RFFLDA as RFFLDA
    from taer.heads.closed_form.rgda import RGDA as RGDA
    from taer.heads.closed_form.ridge import Ridge as Ridge
    from taer.heads.closed_form.slda import SLDA as SLDA
    from taer.heads.closed_form.taer_gauss import TaERGauss as TaERGauss
    from taer.heads.descent.bic import BiC as BiC
    from taer.heads.descent.derpp import DERPP as DERPP
    from taer.heads.descent.eeil import EEIL as EEIL
    from taer.heads.descent.er import ER as ER
    from taer.heads.descent.er_balanced import ERBalanced as ERBalanced
    from taer.heads.descent.er_fixed import ERFixed as ERFixed
    from taer.heads.descent.feature_replay import FeatureReplay as FeatureReplay
    from taer.heads.descent.finetune import Finetune as Finetune
    from taer.heads.descent.gdumb import GDumb as GDumb
    from taer.heads.descent.gss import GSS as GSS
    from taer.heads.descent.icarl import ICaRL as ICaRL
    from taer.heads.descent.joint import Joint as Joint
    from taer.heads.descent.lwf import LwF as LwF
    from taer.heads.descent.mas import MAS as MAS
    from taer.heads.descent.mer import MER as MER
    from taer.heads.descent.oewc import OnlineEWC as OnlineEWC
    from taer.heads.descent.rwalk import RWalk as RWalk
    from taer.heads.descent.si import SI as SI
    from taer.heads.descent.ssil import SSIL as SSIL
    from taer.heads.descent.taer import TaER as TaER
    from taer.heads.descent.threshold_moving import ThresholdMoving as ThresholdMoving
    from taer.heads.descent.ucir import UCIR as UCIR
    from taer.heads.from_linear import from_linear as from_linear
    from taer.memory import GradientBased as GradientBased
    from taer.memory import GreedyBalanced as GreedyBalanced
    from taer.memory import Herding as Herding
    from taer.memory import Reservoir as Reservoir
    from taer.parallel import cluster as cluster
    from taer.persist.diagnosis import diagnose as diagnose
    from taer.persist.pipelines import load as load
    from taer.pipeline import Pipeline as Pipeline
    from taer.pipeline import make_pipeline as make_pipeline
    from taer.statistics import ClassStatistics as ClassStatistics
    from taer.stream import class_stream as class_stream
    from taer.stream import sample_stream as sample_stream
