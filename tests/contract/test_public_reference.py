"""Every public name has a docstring with an executed example, and an entry in the reference."""

import inspect
import re
from pathlib import Path

import pytest

import aimfor

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"
PACKAGES = ("metrics", "boosting")  # public packages, whose names have a page of their own
NAMES = [name for name in dir(aimfor) if not name.startswith("_") and name not in PACKAGES]

METRICS = [name for name in dir(aimfor.metrics) if not name.isupper()]  # the constants are documented with `Share`


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_has_an_example(name):
    # pytest runs the examples of all docstrings; here it is only seen that there is one.
    assert ">>>" in (inspect.getdoc(getattr(aimfor, name)) or ""), f"aimfor.{name} has no example in its docstring"


@pytest.mark.parametrize("name", [*NAMES, *(f"metrics.{name}" for name in METRICS)])
def test_a_public_name_is_in_the_reference(name):
    if "Undefined" in name:
        name = name.rsplit(".")[-1]
    pages = "".join(page.read_text() for page in REFERENCE.glob("*.md"))
    assert re.search(rf"::\s+aimfor\.{re.escape(name)}\s", pages), f"aimfor.{name} is not in docs/reference"


@pytest.mark.parametrize("name", NAMES)
def test_public_methods_are_documented(name):
    value = getattr(aimfor, name)
    if not inspect.isclass(value):
        return
    own = {key: part for key, part in vars(value).items() if not key.startswith("_")}
    methods = {key: part for key, part in own.items() if inspect.isfunction(part) or isinstance(part, property)}
    missing = [key for key, part in methods.items() if not inspect.getdoc(part)]
    assert not missing, f"aimfor.{name}: {missing} have no docstring"
