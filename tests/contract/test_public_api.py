"""The public names, signatures and fields are those of the committed snapshot."""

import difflib
import json
import runpy
from pathlib import Path

import pytest

import aimfor

SCRIPT = Path(__file__).parents[2] / "scripts" / "api_snapshot.py"
SNAPSHOT = Path(__file__).parent / "public_api.json"


@pytest.fixture(scope="module")
def api():
    """What the script defines, without writing anything."""
    return runpy.run_path(str(SCRIPT))


def changes(old, new):
    """One line for each fact that is new, gone or different, under the name that it belongs to."""
    old, new = (dict(facts_of(json.loads(text))) for text in (old, new))
    for name in sorted(old.keys() | new.keys()):
        if name not in new:
            yield f"removed {name}: {old[name]}"
        elif name not in old:
            yield f"added {name}: {new[name]}"
        elif old[name] != new[name]:
            yield from (f"changed {name}", *difflib.ndiff([old[name]], [new[name]]))


def facts_of(value, name=""):
    if isinstance(value, dict):
        for key, entry in value.items():
            yield from facts_of(entry, f"{name}.{key}" if name else key)
    else:
        yield name, str(value)


def test_the_public_face_is_that_of_the_snapshot(api):
    found = [*changes(SNAPSHOT.read_text(), api["text_of"](api["snapshot"]()))]
    if found:
        told = "\n".join(line.rstrip("\n") for line in found)
        pytest.fail(f"{told}\n\nIf you meant this, run: python scripts/api_snapshot.py", pytrace=False)


def test_a_renamed_parameter_a_new_default_and_a_removed_name_are_named(api, monkeypatch):
    def renamed(scores, label, *, sample_weight=None):
        raise NotImplementedError

    def operating_point(y_true, y_score, aim, *, sample_weight=None, confidence=0.5):
        raise NotImplementedError

    monkeypatch.setattr(aimfor, "pairwise_auc_loss", renamed)
    monkeypatch.setattr(aimfor, "operating_point", operating_point)
    monkeypatch.delattr(aimfor.OperatingPoint, "to_json")
    monkeypatch.setattr(aimfor.metrics, "__all__", [name for name in aimfor.metrics.__all__ if name != "recall"])
    found = [*changes(SNAPSHOT.read_text(), api["text_of"](api["snapshot"]()))]
    named = [line for line in found if line.startswith(("removed", "added", "changed"))]
    assert [line.split(": ")[0] for line in named] == [
        "removed aimfor.OperatingPoint.members.to_json",
        "removed aimfor.metrics.recall.kind",
        "removed aimfor.metrics.recall.signature",
        "changed aimfor.operating_point.signature",
        "changed aimfor.pairwise_auc_loss.signature",
    ]
