"""The zoo: every head that is not of the core, one file each, named like the head.

They are published methods and experiments of ours, here to be compared with. By name they are where the core's heads are
(``taer.make_head("derpp")``, ``taer run --methods derpp``), as classes here: ``taer.zoo.DERPP``. A class is loaded when it
is first used, and the core imports nothing of this.
"""

from typing import TYPE_CHECKING, Any

from taer.heads import HEADS


def __getattr__(name: str) -> Any:
    hint = "dir(taer.zoo) lists its heads"
    if name[:1].isupper():
        if name in (heads := _heads()):
            return heads[name]
        if name in _heads("taer.heads"):
            hint = f"it is taer.{name}"
    raise AttributeError(f"module 'taer.zoo' has no attribute {name!r}; {hint}")


def _heads(package: str = __name__) -> dict[str, Any]:
    return {head.__name__: head for head in HEADS.values() if head.__module__.startswith(f"{package}.")}


def __dir__() -> list[str]:
    return sorted(_heads())


if TYPE_CHECKING:
    from taer.zoo.aanets_adapter import AANetsAdapter as AANetsAdapter
    from taer.zoo.ags_cl_adapter import AGSCLAdapter as AGSCLAdapter
    from taer.zoo.anacp import AnaCP as AnaCP
    from taer.zoo.bic import BiC as BiC
    from taer.zoo.den_adapter import DENAdapter as DENAdapter
    from taer.zoo.der_adapter import DERAdapter as DERAdapter
    from taer.zoo.derpp import DERPP as DERPP
    from taer.zoo.eeil import EEIL as EEIL
    from taer.zoo.er_balanced import ERBalanced as ERBalanced
    from taer.zoo.er_fixed import ERFixed as ERFixed
    from taer.zoo.factor_analyzer import FactorAnalyzer as FactorAnalyzer
    from taer.zoo.fas_adapter import FASAdapter as FASAdapter
    from taer.zoo.feature_replay import FeatureReplay as FeatureReplay
    from taer.zoo.fecam import FeCAM as FeCAM
    from taer.zoo.finetune_adapter import FinetuneAdapter as FinetuneAdapter
    from taer.zoo.gacl import GACL as GACL
    from taer.zoo.gauss_chain import GaussChain as GaussChain
    from taer.zoo.gauss_frozen import GaussFrozen as GaussFrozen
    from taer.zoo.gdumb import GDumb as GDumb
    from taer.zoo.gss import GSS as GSS
    from taer.zoo.hat_adapter import HATAdapter as HATAdapter
    from taer.zoo.hycal import HyCal as HyCal
    from taer.zoo.icarl import ICaRL as ICaRL
    from taer.zoo.joint_adapter import JointAdapter as JointAdapter
    from taer.zoo.klda import KLDA as KLDA
    from taer.zoo.loranpac import LoRanPAC as LoRanPAC
    from taer.zoo.lwf import LwF as LwF
    from taer.zoo.mas import MAS as MAS
    from taer.zoo.mer import MER as MER
    from taer.zoo.oewc import OnlineEWC as OnlineEWC
    from taer.zoo.ranpac import RanPAC as RanPAC
    from taer.zoo.rgda import RGDA as RGDA
    from taer.zoo.rwalk import RWalk as RWalk
    from taer.zoo.si import SI as SI
    from taer.zoo.ssil import SSIL as SSIL
    from taer.zoo.taer_gauss import TaERGauss as TaERGauss
    from taer.zoo.teen import TEEN as TEEN
    from taer.zoo.threshold_moving import ThresholdMoving as ThresholdMoving
    from taer.zoo.ucir import UCIR as UCIR
    from taer.zoo.xdg_adapter import XdGAdapter as XdGAdapter
