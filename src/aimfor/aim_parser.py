"""Aim, read: from text to record, with the nearest right spelling for a wrong one."""

import re
from difflib import get_close_matches

from aimfor.aim_texts import OPTIONS, Target
from aimfor.aims import AUCPR, AUCROC, Aim, FBeta, PointAim

POINT_AIMS: tuple[type[PointAim], ...] = tuple(PointAim.__subclasses__())
AREA_AIMS = {"aucpr": (AUCPR, ("precision", "recall")), "aucroc": (AUCROC, ("fpr",))}

NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?"
TARGET = rf"{NUMBER}|\({NUMBER}(?:,{NUMBER})*,?\)"
RANGE = re.compile(
    rf"\[(?:(?P<axis_above>[a-z]+)>=(?P<above>{TARGET})|(?P<axis_below>[a-z]+)<=(?P<below>{TARGET})"
    rf"|(?P<low>{TARGET})<=(?P<axis>[a-z]+)<=(?P<high>{TARGET}))\]"
)

# Right spellings with # for a number, and what they stand for: used only to suggest one.
SPELLINGS = {
    **{f"{kind.text}#": f"{kind.text}0.5" for kind in POINT_AIMS},
    "aucpr": "aucpr",
    "aucpr[precision>=#]": "aucpr[precision>=0.8]",
    "aucpr[precision<=#]": "aucpr[precision<=0.5]",
    "aucpr[#<=precision<=#]": "aucpr[0.6<=precision<=0.9]",
    "aucpr[recall>=#]": "aucpr[recall>=0.5]",
    "aucpr[recall<=#]": "aucpr[recall<=0.5]",
    "aucpr[#<=recall<=#]": "aucpr[0.2<=recall<=0.8]",
    "aucroc": "aucroc",
    "aucroc[fpr<=#]": "aucroc[fpr<=0.1]",
    "aucroc[fpr>=#]": "aucroc[fpr>=0.01]",
    "aucroc[#<=fpr<=#]": "aucroc[0.01<=fpr<=0.1]",
    "f#": "f1",
}
OTHER_NAMES = {
    "averageprecision": "aucpr",
    "ap": "aucpr",
    "prauc": "aucpr",
    "auprc": "aucpr",
    "rocauc": "aucroc",
    "auroc": "aucroc",
    "auc": "aucroc",
    "fbeta": "f1",
    "fscore": "f1",
    "fmeasure": "f1",
    "macrof#": "f1",
    "microf#": "f1",
}
SHORT_NAMES = {r"\br@p": "recall@precision", r"\bp@r": "precision@recall"}


def aim(text: str | Aim) -> Aim:
    """Read an aim from its text; a record is returned as it is.

    Args:
        text: such as "recall@precision>=0.9", "aucpr[recall>=0.5]", "aucroc[0.01<=fpr<=0.1]", "f2"; options behind
            semicolons, "aucpr; num_anchors=20"; "recall@precision>=(0.9, 0.8)" for one target per label.

    Raises:
        ValueError: for a text that is no aim, with the nearest right spelling; for a target out of its range.

    Example:
        >>> aim("recall@precision>=0.9")
        RecallAtPrecision(min_precision=0.9, band=None, num_anchors=5)
        >>> str(aim("AUCROC [fpr <= 0.10]"))
        'aucroc[fpr<=0.1]'
    """
    if isinstance(text, Aim):
        return text
    if not isinstance(text, str):
        raise TypeError(f"aim must be a text or an aim record, got {type(text).__name__}")
    head, *parts = re.sub(r"\s+", "", text.lower()).split(";")
    options = {}
    for part in parts:
        name, equals, value = part.partition("=")
        if name in options:
            raise ValueError(f"{name} must be given once, got {text!r}")
        if not equals or name not in OPTIONS:
            raise ValueError(
                f"an option of an aim must be one of {', '.join(f'{key}=' for key in OPTIONS)}, got {part!r}"
            )
        try:
            options[name] = OPTIONS[name](value)
        except ValueError:
            kind = "whole number" if OPTIONS[name] is int else "number"
            raise ValueError(f"{name} must be a {kind}, got {value!r}") from None
    record = _read(head, options)
    if record is None:
        suggestion = "; ".join([_nearest(head), *parts])
        raise ValueError(f"aim must be a known aim, got {text!r}; did you mean {suggestion!r}?")
    return record


def _read(head: str, options: dict) -> Aim | None:
    for kind in POINT_AIMS:
        if head.startswith(kind.text) and re.fullmatch(TARGET, head.removeprefix(kind.text)):
            return _build(kind, (_target(head.removeprefix(kind.text)),), options)
    if match := re.fullmatch(rf"f({TARGET})", head):
        return _build(FBeta, (_target(match[1]),), options)
    name, bracket, rest = head.partition("[")
    if name not in AREA_AIMS:
        return None
    kind, axes = AREA_AIMS[name]
    if not bracket:
        return _build(kind, (), options)
    match = RANGE.fullmatch(bracket + rest)
    axis = match and (match["axis_above"] or match["axis_below"] or match["axis"])
    if not match or axis not in axes:
        return None
    low, high = match["above"] or match["low"], match["below"] or match["high"]
    limits = {f"min_{axis}": low, f"max_{axis}": high}
    return _build(kind, (), options | {key: _target(value) for key, value in limits.items() if value is not None})


def _build(kind: type, arguments: tuple, options: dict) -> Aim:
    unknown = [name for name in options if name not in kind.__dataclass_fields__]
    if unknown:
        raise ValueError(f"{kind.__name__} has no option {unknown[0]!r}")
    return kind(*arguments, **options)


def _target(text: str) -> Target:
    if text.startswith("("):
        return tuple(float(part) for part in text.strip("()").split(",") if part)
    return float(text)


def _nearest(head: str) -> str:
    head = re.sub(rf"({NUMBER})%", lambda percent: f"{float(percent[1]) / 100:g}", head)
    for short, name in SHORT_NAMES.items():
        head = re.sub(short, name, head)
    numbers = re.findall(NUMBER, head)
    skeleton = re.sub(NUMBER, "#", head)
    bare = re.sub(r"[^a-z#]", "", skeleton)
    if bare in OTHER_NAMES:
        return OTHER_NAMES[bare]
    nearest = get_close_matches(skeleton, SPELLINGS, n=1, cutoff=0)[0]
    filled = nearest
    for number in numbers[: nearest.count("#")]:
        filled = filled.replace("#", number, 1)
    try:
        return filled if "#" not in filled and _read(filled, {}) else SPELLINGS[nearest]
    except ValueError:  # a suggestion must itself be a valid aim
        return SPELLINGS[nearest]
