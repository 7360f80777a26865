"""Packages of the extras, imported where they are needed."""

from __future__ import annotations

from typing import Any

NO_LIGHTGBM = "boosted trees need their extra: pip install 'aimfor[boosting]'"


def import_lightgbm() -> Any:
    """LightGBM, which trains forests.

    Raises:
        ModuleNotFoundError: where it is not installed.
        ImportError: where it is, but cannot be imported, as it lacks a library such as libgomp.
    """
    try:
        import lightgbm
    except ModuleNotFoundError as error:
        if error.name != "lightgbm":
            raise _broken(error) from error
        raise ModuleNotFoundError(NO_LIGHTGBM, name=error.name) from error
    except (ImportError, OSError) as error:
        raise _broken(error) from error
    return lightgbm


def _broken(error: Exception) -> ImportError:
    reason = " ".join(str(error).split())[:300]
    return ImportError(f"boosted trees need LightGBM, which is installed but cannot be imported: {reason}")
