"""aimfor: train for the number you are judged by."""

import importlib
from typing import TYPE_CHECKING, Any

from aimfor import metrics
from aimfor.aim_parser import aim
from aimfor.aims import AUCPR, AUCROC, Aim, FBeta, FPRAtTPR, PrecisionAtRecall, RecallAtPrecision, TPRAtFPR
from aimfor.batches import sparse_labels
from aimfor.engines import Engine, engine
from aimfor.log_odds import log_odds
from aimfor.losses import Diagnostics, InfeasibleConstraintWarning, Loss, VacuousRangeWarning
from aimfor.metrics import UndefinedMetricError, UndefinedMetricWarning
from aimfor.operating_points import OperatingPoint, operating_point
from aimfor.pairwise import pairwise_auc_loss

if TYPE_CHECKING:
    from aimfor.estimators import Classifier as Classifier
    from aimfor.program.model_files import load as load
    from aimfor.scorers import scorer as scorer

    __version__: str

__all__ = [
    "AUCPR",
    "AUCROC",
    "Aim",
    "Diagnostics",
    "Engine",
    "FBeta",
    "FPRAtTPR",
    "InfeasibleConstraintWarning",
    "Loss",
    "OperatingPoint",
    "PrecisionAtRecall",
    "RecallAtPrecision",
    "TPRAtFPR",
    "UndefinedMetricError",
    "UndefinedMetricWarning",
    "VacuousRangeWarning",
    "aim",
    "engine",
    "log_odds",
    "metrics",
    "operating_point",
    "pairwise_auc_loss",
    "sparse_labels",
]

# They need the extra `sklearn`, which the rest does without; hence not in __all__, which a star imports.
_WITH_SCIKIT_LEARN = {"Classifier": "estimators", "load": "program.model_files", "scorer": "scorers"}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("aimfor")
    if name not in _WITH_SCIKIT_LEARN:
        raise AttributeError(f"module 'aimfor' has no attribute {name!r}")
    try:
        module = importlib.import_module(f"aimfor.{_WITH_SCIKIT_LEARN[name]}")
    except ModuleNotFoundError as error:
        if error.name not in ("sklearn", "scipy", "rich", "safetensors"):
            raise
        raise ModuleNotFoundError(
            f"aimfor.{name} needs its extra: pip install 'aimfor[sklearn]'", name=error.name
        ) from error
    return getattr(module, name)
