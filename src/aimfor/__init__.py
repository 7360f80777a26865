"""aimfor: train for the number you are judged by."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aimfor import metrics as metrics
    from aimfor.aim_parser import aim as aim
    from aimfor.aims import AUCPR as AUCPR
    from aimfor.aims import AUCROC as AUCROC
    from aimfor.aims import Aim as Aim
    from aimfor.aims import FBeta as FBeta
    from aimfor.aims import FPRAtTPR as FPRAtTPR
    from aimfor.aims import PrecisionAtRecall as PrecisionAtRecall
    from aimfor.aims import RecallAtPrecision as RecallAtPrecision
    from aimfor.aims import TPRAtFPR as TPRAtFPR
    from aimfor.batches import sparse_labels as sparse_labels
    from aimfor.diagnostics import Diagnostics as Diagnostics
    from aimfor.engines import Engine as Engine
    from aimfor.engines import engine as engine
    from aimfor.estimators import Classifier as Classifier
    from aimfor.intake import PositiveClassWarning as PositiveClassWarning
    from aimfor.losses import InfeasibleConstraintWarning as InfeasibleConstraintWarning
    from aimfor.losses import Loss as Loss
    from aimfor.losses import VacuousRangeWarning as VacuousRangeWarning
    from aimfor.metrics import UndefinedMetricError as UndefinedMetricError
    from aimfor.metrics import UndefinedMetricWarning as UndefinedMetricWarning
    from aimfor.odds import log_odds as log_odds
    from aimfor.operating_points import operating_point as operating_point
    from aimfor.pairwise import pairwise_auc_loss as pairwise_auc_loss
    from aimfor.parts import NoValidationWarning as NoValidationWarning
    from aimfor.points import OperatingPoint as OperatingPoint
    from aimfor.program.model_files import load as load
    from aimfor.scorers import scorer as scorer

    __version__: str

# Where each name is. They are imported when they are asked for, as torch takes seconds, which `aimfor --help` need not.
_MODULES = {
    "aim_parser": ("aim",),
    "aims": (
        "AUCPR",
        "AUCROC",
        "Aim",
        "FBeta",
        "FPRAtTPR",
        "PrecisionAtRecall",
        "RecallAtPrecision",
        "TPRAtFPR",
    ),
    "batches": ("sparse_labels",),
    "diagnostics": ("Diagnostics",),
    "engines": ("Engine", "engine"),
    "losses": ("InfeasibleConstraintWarning", "Loss", "VacuousRangeWarning"),
    "metrics": ("UndefinedMetricError", "UndefinedMetricWarning"),
    "odds": ("log_odds",),
    "operating_points": ("operating_point",),
    "pairwise": ("pairwise_auc_loss",),
    "points": ("OperatingPoint",),
}
_WHERE = {name: module for module, names in _MODULES.items() for name in names}
# They need the extra `sklearn`, which the rest does without; hence not in __all__, which a star imports.
_WITH_SCIKIT_LEARN = {
    "Classifier": "estimators",
    "NoValidationWarning": "parts",
    "PositiveClassWarning": "intake",
    "load": "program.model_files",
    "scorer": "scorers",
}

__all__ = sorted([*_WHERE, "metrics"])  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("aimfor")
    if name == "metrics":
        return importlib.import_module("aimfor.metrics")
    if name in _WHERE:
        value = getattr(importlib.import_module(f"aimfor.{_WHERE[name]}"), name)
        globals()[name] = value  # found at once from now on
        return value
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


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_WITH_SCIKIT_LEARN})
