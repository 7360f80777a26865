"""Messages of the library in the words of the program: its options, and no Python."""

from __future__ import annotations

import re

# Parameters of the library that are options of the program, where a message opens with one.
PARAMETERS = (
    *("aim", "batch_size", "budget", "calibrate", "confidence", "constraint", "device", "learning_rate", "level"),
    *("model", "patience", "restarts", "solver", "steps", "surrogate", "validation_fraction", "weight_decay"),
)
RENAMED = {"decay": "weight-decay", "groups": "group", "hidden_layer_sizes": "hidden", "sample_weight": "weight"}
OPENING = re.compile(rf"^({'|'.join((*PARAMETERS, *RENAMED))})(?= (?:must|needs|for solver) )")
TARGET = re.compile(r"^(min|max)_([a-z]+)(?= must )")
ENDS = re.compile(r"must be in ([\[(])([-\d.e+]+), ([-\d.e+]+|inf)([\])])")
# What else the library says in Python.
PHRASES = {
    "hold some back, or let it be None": "hold some back with --validation-fraction, or leave out --confidence",
    "needs equal sample weights": "needs equal weights",
    "pass confidence=0.5 or more for a threshold that is": "--confidence 0.5 or more asks for a threshold that is",
    'try constraint="exact"': "try --constraint exact",
    'surrogate="sigmoid" with constraint="exact"': "--surrogate sigmoid with --constraint exact",
    'solver="sgd"': "--solver sgd",
    "for solver 'lp'": "for --solver lp",
    "for solver 'search'": "for --solver search",
    "with solver 'lp'": "with --solver lp",
    "with solver 'search'": "with --solver search",
    "y must have one label": "the data must have one label",
    "y_true holds no": "the labels hold no",
}


def in_words(text: str) -> str:
    """A message of the library as the program says it.

    Example:
        >>> in_words("batch_size must be at least 1, got 0")
        '--batch-size must be at least 1, got 0'
        >>> in_words("budget must be in (0, inf), got 0.0")
        '--budget must be above 0, got 0.0'
        >>> in_words("min_precision must be in (0, 1), got 1.5")
        '--aim: the least precision must be above 0 and below 1, got 1.5'
    """
    text = OPENING.sub(lambda found: "--" + RENAMED.get(found[1], found[1].replace("_", "-")), text)
    text = TARGET.sub(lambda found: f"--aim: the {'least' if found[1] == 'min' else 'most'} {found[2]}", text)
    for phrase, words in PHRASES.items():
        text = text.replace(phrase, words)
    return ENDS.sub(_ends, text)


def _ends(found: re.Match[str]) -> str:
    opening, low, high, closing = found.groups()
    bounds = [f"{'at least' if opening == '[' else 'above'} {low}"]
    if high != "inf":
        bounds.append(f"{'at most' if closing == ']' else 'below'} {high}")
    return f"must be {' and '.join(bounds)}"
