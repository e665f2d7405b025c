# Generated from almakit.registry by: python tests/packaging/package_stubs.py
from pathlib import Path

from . import attacks as attacks
from . import certify as certify
from . import data as data
from . import distances as distances
from . import goals as goals
from . import models as models
from . import trackers as trackers
from .api import attack as attack
from .api import evaluate as evaluate
from .api import standard_evaluation as standard_evaluation
from .api import transfer as transfer
from .attacks.alm import ALM as ALM
from .attacks.alma import ALMA as ALMA
from .attacks.alma_prox import ALMAProx as ALMAProx
from .attacks.apgd import APGD as APGD
from .attacks.asma import ASMA as ASMA
from .attacks.bb import BB as BB
from .attacks.cw import CW as CW
from .attacks.dag import DAG as DAG
from .attacks.ddn import DDN as DDN
from .attacks.deepfool import DeepFool as DeepFool
from .attacks.ead import EAD as EAD
from .attacks.ensemble import Ensemble as Ensemble
from .attacks.fab import FAB as FAB
from .attacks.fmn import FMN as FMN
from .attacks.hopskipjump import HopSkipJump as HopSkipJump
from .attacks.lpa import LPA as LPA
from .attacks.pdgd import PDGD as PDGD
from .attacks.pdgd import PDPGD as PDPGD
from .attacks.perc_al import PerCAL as PerCAL
from .attacks.pgd import PGD as PGD
from .attacks.sea import SEA as SEA
from .attacks.search import Search as Search
from .attacks.sigma_zero import SigmaZero as SigmaZero
from .attacks.soft_walk import SoftWalk as SoftWalk
from .attacks.square import Square as Square
from .attacks.standard import StandardEvaluation as StandardEvaluation
from .attacks.strattack import StrAttack as StrAttack
from .attacks.superdeepfool import SuperDeepFool as SuperDeepFool
from .attacks.tr import TR as TR
from .attacks.vfga import VFGA as VFGA
from .core.attack import Attack as Attack
from .core.box import Box as Box
from .core.oracle import EOT as EOT
from .core.result import ImageResult as ImageResult
from .core.result import Result as Result
from .core.result import Status as Status
from .core.result import best_of as best_of
from .distances import check_distance as check_distance
from .errors import AlmakitError as AlmakitError
from .goals import check_goal as check_goal
from .report.run import Run as Run

__version__: str
ALMAPlus = SoftWalk

def open(folder: str | Path) -> Run: ...
