"""CONTRIBUTING.md names folders, files and registries that exist, and the layers that make lint checks."""

import ast
import re
import sys
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli")

ROOT = Path(__file__).resolve().parent.parent.parent
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
EXTENSIONS = ("rate", "aim", "surrogate", "engine", "model kind", "file format")


def section(title: str) -> str:
    return re.split(r"^## ", TEXT.split(f"## {title}\n")[1], flags=re.MULTILINE)[0]


def tree() -> list[str]:
    """The folders of the tree, with their parents."""
    found, parents = [], {}
    for line in section("The tree").split("```")[1].splitlines():
        if match := re.match(r"( *)([\w/]+)/ ", line):
            depth = len(match[1])
            parents[depth] = parents.get(depth - 2, "") + match[2] + "/"
            found.append(parents[depth])
    return found


def test_tree_has_every_package_and_only_folders_that_exist():
    assert [folder for folder in tree() if not (ROOT / folder).is_dir()] == []
    packages = {f"src/aimfor/{path.parent.name}/" for path in (ROOT / "src/aimfor").glob("*/__init__.py")}
    assert packages <= set(tree())


def test_layers_are_those_that_lint_checks():
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]["layers"]
    shown = re.search(r"((?:^    [\w| >]+\n)+)", section("The tree").split("```")[2], flags=re.MULTILINE)
    assert shown is not None
    assert " ".join(shown[1].split()) == " > ".join(config)


def test_files_exist():
    named = [name for name in re.findall(r"`([\w./]+/[\w./]+)`", TEXT) if not name.startswith(".venv")]
    assert len(named) > 20
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("extension", EXTENSIONS)
def test_list_is_short_and_names_a_contract_test(extension):
    text = section(f"A new {extension}")
    assert 3 <= len(re.findall(r"^\d\. ", text, flags=re.MULTILINE)) <= 6
    if extension != "aim":
        assert "tests/contract/test_" in text


def test_registries_are_where_it_says():
    found = re.findall(r"`([A-Z_]+)`\s+(?:in|of)\s+`([\w./]+\.py)`", TEXT)
    assert {name for name, _ in found} == {"RATES", "SURROGATES", "ENGINES", "KINDS", "FORMATS", "AIMS"}
    for name, path in found:
        assert name in names_of(path), f"{path} has no {name}"


def test_classes_are_where_it_says():
    for name, path in re.findall(r"`([A-Z][a-z]\w+)`[^`]*?(?:in|to)\s+`([\w./]+\.py)`", TEXT):
        source = (ROOT / path).read_text()
        assert re.search(rf"\b{name}\b", source), f"{path} has no {name}"


def names_of(path: str) -> set[str]:
    """What a module assigns."""
    nodes = ast.parse((ROOT / path).read_text()).body
    targets = [node.targets[0] for node in nodes if isinstance(node, ast.Assign)]
    targets += [node.target for node in nodes if isinstance(node, ast.AnnAssign)]
    return {target.id for target in targets if isinstance(target, ast.Name)}
