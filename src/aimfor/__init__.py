"""aimfor: train for the number you are judged by."""

import importlib
from pathlib import Path
from typing import Any

from aimfor._base.lazy import attach_stub, stub_names

# Packages that need the extra `sklearn`, and what it installs.
_WITH_EXTRA, _EXTRA = (".estimator", ".model_folder"), ("sklearn", "scipy", "rich", "safetensors")

_get, __dir__, _names = attach_stub(__name__, __file__)
_needing_extra = {
    name for name, module in stub_names(Path(__file__).with_suffix(".pyi")).items() if module in _WITH_EXTRA
}
# A star import must work without any extra.
__all__ = [name for name in _names if name not in _needing_extra]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("aimfor")
    if name not in _needing_extra:
        return _get(name)
    try:
        return _get(name)
    except ModuleNotFoundError as error:
        if error.name not in _EXTRA:
            raise
        message = f"aimfor.{name} needs its extra: pip install 'aimfor[sklearn]'"
        raise ModuleNotFoundError(message, name=error.name) from error
