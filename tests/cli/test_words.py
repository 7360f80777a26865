"""Messages of the library, as the program says them."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

import aimfor
from aimfor.cli._words import PHRASES, in_words
from aimfor.estimator import _inputs
from aimfor.operating_points import warn_of_weak_claims

SOURCE = "".join(path.read_text(encoding="utf-8") for path in Path(aimfor.__file__).parent.rglob("*.py"))
COMPOSED = ("solver 'lp'", "solver 'search'", "y must have one label", "try constraint")  # of several texts


@pytest.mark.parametrize("phrase", [one for one in PHRASES if not any(part in one for part in COMPOSED)])
def test_the_library_still_says_so(phrase):
    words = Path(aimfor.__file__).parent / "cli" / "_words.py"
    others = SOURCE.replace(words.read_text(encoding="utf-8"), "")
    assert phrase in others


def test_a_weak_claim_names_the_option():
    point = aimfor.operating_point([1, 0] * 10, np.arange(20.0), "recall@precision>=0.5")
    with pytest.warns(aimfor.LowConfidenceWarning) as caught:
        warn_of_weak_claims([dataclasses.replace(point, claimable=0.3)])
    words = in_words(str(caught[0].message))
    assert "confidence=" not in words
    assert "confidence: --confidence 0.5 or more asks for a threshold" in words


def test_no_confidence_without_held_out_rows():
    with pytest.raises(ValueError, match="let it be None") as caught:
        _inputs.check_confidence(0.9, None, True)  # pyright: ignore[reportArgumentType]
    assert in_words(str(caught.value)).endswith("or leave out --confidence")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("learning_rate must be in (0, inf), got nan", "--learning-rate must be above 0, got nan"),
        ("confidence must be in (0, 1), got 2", "--confidence must be above 0 and below 1, got 2"),
        ("level must be in (0, 1), got 2.0", "--level must be above 0 and below 1, got 2.0"),
        ("max_fpr must be in (0, 1), got 3", "--aim: the most fpr must be above 0 and below 1, got 3"),
        ("solver must be one of 'sgd', 'lp', got 'x'", "--solver must be one of 'sgd', 'lp', got 'x'"),
        ("hidden_layer_sizes must be at least 1, got 0", "--hidden must be at least 1, got 0"),
        ("decay must be above 0 with more than 3 features", "--weight-decay must be above 0 with more than 3 features"),
        ("model.json was modified", "model.json was modified"),
        ("column 'budget must' is missing", "column 'budget must' is missing"),
    ],
)
def test_options_are_named_as_the_program_has_them(text, words):
    assert in_words(text) == words
