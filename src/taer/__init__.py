"""Classifiers that keep learning new classes, on top of any frozen pretrained model.

The public names are loaded when they are first used, so that ``import taer`` stays fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

_HOMES = {
    "Bayes": "taer.heads.bayes.head",
    "BayesReplay": "taer.heads.bayes.replay",
    "TaER": "taer.heads.descent.taer",
    "ER": "taer.heads.descent.er",
    "SLDA": "taer.heads.closed_form.slda",
    "NCM": "taer.heads.closed_form.ncm",
    "LDAFrozen": "taer.heads.closed_form.lda_frozen",
    "Ridge": "taer.heads.closed_form.ridge",
    "Finetune": "taer.heads.descent.finetune",
    "Joint": "taer.heads.descent.joint",
    "zoo": "taer.zoo",
    "HEADS": "taer.heads",
    "Card": "taer.heads",
    "from_linear": "taer.heads.from_linear",
    "make_head": "taer.heads",
    "load": "taer.persist.pipelines",
    "diagnose": "taer.inspection.diagnosis",
    "MultiLabel": "taer.multilabel.model",
    "Pipeline": "taer.pipeline",
    "make_pipeline": "taer.pipeline",
    "ClassStatistics": "taer.statistics",
    "Extractor": "taer.features.extractor",
    "FeatureSet": "taer.features",
    "extract": "taer.features.extraction",
    "features_from_arrays": "taer.features",
    "load_features": "taer.features",
    "class_stream": "taer.stream",
    "sample_stream": "taer.stream",
    "make_stream": "taer.stream.kinds",
    "ray_cluster": "taer.parallel",
    "metrics": "taer.metrics",
}

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        home = import_module(_HOMES[name])
        value = home if _HOMES[name] == f"taer.{name}" else getattr(home, name)
    else:
        there = name[:1].isupper() and name in dir(import_module("taer.zoo"))
        raise AttributeError(
            f"module 'taer' has no attribute {name!r}" + (f"; it is taer.zoo.{name}" if there else "")
        )
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


if TYPE_CHECKING:
    from taer import metrics as metrics
    from taer import zoo as zoo
    from taer.features import FeatureSet as FeatureSet
    from taer.features import features_from_arrays as features_from_arrays
    from taer.features import load_features as load_features
    from taer.features.extraction import extract as extract
    from taer.features.extractor import Extractor as Extractor
    from taer.heads import HEADS as HEADS
    from taer.heads import Card as Card
    from taer.heads import make_head as make_head
    from taer.heads.bayes.head import Bayes as Bayes
    from taer.heads.bayes.replay import BayesReplay as BayesReplay
    from taer.heads.closed_form.lda_frozen import LDAFrozen as LDAFrozen
    from taer.heads.closed_form.ncm import NCM as NCM
    from taer.heads.closed_form.ridge import Ridge as Ridge
    from taer.heads.closed_form.slda import SLDA as SLDA
    from taer.heads.descent.er import ER as ER
    from taer.heads.descent.finetune import Finetune as Finetune
    from taer.heads.descent.joint import Joint as Joint
    from taer.heads.descent.taer import TaER as TaER
    from taer.heads.from_linear import from_linear as from_linear
    from taer.inspection.diagnosis import diagnose as diagnose
    from taer.multilabel.model import MultiLabel as MultiLabel
    from taer.parallel import ray_cluster as ray_cluster
    from taer.persist.pipelines import load as load
    from taer.pipeline import Pipeline as Pipeline
    from taer.pipeline import make_pipeline as make_pipeline
    from taer.statistics import ClassStatistics as ClassStatistics
    from taer.stream import class_stream as class_stream
    from taer.stream import sample_stream as sample_stream
    from taer.stream.kinds import make_stream as make_stream
