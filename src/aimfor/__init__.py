"""aimfor: train for the number you are judged by."""

from aimfor import metrics
from aimfor.aim_parser import aim
from aimfor.aims import AUCPR, AUCROC, Aim, FBeta, FPRAtTPR, PrecisionAtRecall, RecallAtPrecision, TPRAtFPR
from aimfor.batches import sparse_labels
from aimfor.engines import Engine, engine
from aimfor.log_odds import log_odds
from aimfor.losses import Diagnostics, InfeasibleConstraintWarning, Loss
from aimfor.metrics import UndefinedMetricWarning
from aimfor.operating_points import OperatingPoint, operating_point
from aimfor.pairwise import pairwise_auc_loss

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
    "UndefinedMetricWarning",
    "aim",
    "engine",
    "log_odds",
    "metrics",
    "operating_point",
    "pairwise_auc_loss",
    "sparse_labels",
]
