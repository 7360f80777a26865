"""Packages whose names are imported when they are first used.

Torch alone takes more than a second to import, which `aimfor --help` need not. The stub `__init__.pyi` beside a package
is the one list of its names: type checkers read it, and so does `attach_stub`.
"""

import ast
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any


def attach_stub(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Give `__getattr__`, `__dir__` and `__all__` of a package from its stub.

    Args:
        package: `__name__` of the package.
        file: its `__file__`; the stub lies beside it.

    Example:
        >>> import aimfor.aims
        >>> "FBeta" in dir(aimfor.aims)
        True
    """
    modules = stub_names(Path(file).with_suffix(".pyi"))

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = modules[name]
        # `from . import name` is a package of its own.
        value = importlib.import_module(f".{name}", package) if module == "." else _value(module, package, name)
        vars(importlib.import_module(package))[name] = value  # found at once from now on
        return value

    names = sorted(modules)
    return get, lambda: names, names


def _value(module: str, package: str, name: str) -> Any:
    return getattr(importlib.import_module(module, package), name)


def stub_names(stub: Path) -> dict[str, str]:
    """The names that a stub imports, each with the module that defines it, relative to the package."""
    imports = [node for node in ast.parse(stub.read_text()).body if isinstance(node, ast.ImportFrom)]
    return {
        entry.asname or entry.name: "." * node.level + (node.module or "") for node in imports for entry in node.names
    }
