"""Read an aim from its text, and suggest the nearest right spelling for a wrong one."""

import re
from difflib import get_close_matches

from aimfor.aims._areas import AUCPR, AUCROC
from aimfor.aims._format import OPTIONS, Target
from aimfor.aims._records import POINT_AIMS, Aim, check_record
from aimfor.aims._unconstrained import Cost, FBeta

AREA_AIMS = {"aucpr": (AUCPR, ("precision", "recall")), "aucroc": (AUCROC, ("fpr",))}

NUMBER = r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:e[-+]?\d+)?"
TARGET = rf"{NUMBER}|\({NUMBER}(?:,{NUMBER})*,?\)"
RANGE = re.compile(
    rf"\[(?:(?P<axis_above>[a-z]+)>=(?P<above>{TARGET})|(?P<axis_below>[a-z]+)<=(?P<below>{TARGET})"
    rf"|(?P<low>{TARGET})<=(?P<axis>[a-z]+)<=(?P<high>{TARGET}))\]"
)

OTHER_NAMES = {
    "averageprecision": "aucpr",
    "ap": "aucpr",
    "prauc": "aucpr",
    "auprc": "aucpr",
    "rocauc": "aucroc",
    "auroc": "aucroc",
    "auc": "aucroc",
    **dict.fromkeys(("fbeta", "fscore", "fmeasure"), "f1"),
    **dict.fromkeys(("fbeta#", "f#score", "f#measure", "macrof#", "microf#", "f#macro", "f#micro"), "f#"),
}
SHORT_NAMES = {
    r"\br@p(?![a-z])": "recall@precision",
    r"\bp@r(?![a-z])": "precision@recall",
    r"(?<![a-z])prec(?![a-z])": "precision",
    r"(?<![a-z])rec(?![a-z])": "recall",
    r"(?<![a-z])ppv(?![a-z])": "precision",
    r"(?<![a-z])sensitivity(?![a-z])": "tpr",
    r"(?<![a-z])(?:top|alert|alarms|alertrate|flagged)(?![a-z])": "alerts",
    # The highest specificity is the lowest false-positive rate.
    r"(?<![a-z])(?:specificity|tnr)@": "fpr@",
}
EXAMPLES = "'recall@precision>=0.9', 'tpr@fpr<=0.01', 'aucpr', 'aucroc[fpr<=0.1]', 'f1'"


def aim(text: str | Aim) -> Aim:
    """Read an aim from its text. A record is returned as it is.

    Args:
        text: such as "recall@precision>=0.9", "aucpr[recall>=0.5]", "aucroc[0.01<=fpr<=0.1]", "f2"; options behind
            semicolons, "aucpr; num_anchors=20"; "recall@precision>=(0.9, 0.8)" for one target per label.

    Raises:
        ValueError: for a text that is no aim, with the nearest right spelling, and for a target out of its range.

    Example:
        >>> aim("recall@precision>=0.9")
        RecallAtPrecision(min_precision=0.9, band=None, num_anchors=None)
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
        raise ValueError(_suggestion(text, head, parts))
    return record


# A longer text was not typed by hand, and the search for a near spelling could take very long.
LONGEST_TYPED = 1000


def _read(head: str, options: dict) -> Aim | None:
    for text, kind in POINT_AIMS.items():
        if head.startswith(text) and re.fullmatch(TARGET, head.removeprefix(text)):
            check_record(kind)
            return _build(kind, (_target(head.removeprefix(text)),), options)
    if match := re.fullmatch(rf"f({TARGET})", head):
        return _build(FBeta, (_target(match[1]),), options)
    if match := re.fullmatch(rf"cost\[(fp|fn)=({TARGET}),(?!\1)(fp|fn)=({TARGET})\]", head):
        return _build(Cost, (), options | {match[1]: _target(match[2]), match[3]: _target(match[4])})
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
    known = [f"{name}=" for name in OPTIONS if name in kind.__dataclass_fields__]
    for name in options:
        if name in OPTIONS and f"{name}=" not in known:
            must = f"be one of {', '.join(known)}" if known else "be left out"
            raise ValueError(f"an option of {kind.__name__} must {must}, got '{name}='")
    return kind(*arguments, **options)


def _target(text: str) -> Target:
    if "," in text:  # as in Python, parentheses alone make no tuple
        return tuple(float(part) for part in text.strip("()").split(",") if part)
    return float(text.strip("()"))


def _suggestion(text: str, head: str, parts: list[str]) -> str:
    if len(text) > LONGEST_TYPED:
        return f"aim must be a text such as {EXAMPLES}, got {len(text)} characters, {text[:40]!r} and so on"
    head, *more = re.sub(rf"[,(]*({'|'.join(OPTIONS)})=", r";\1=", head).split(";")
    nearest = _nearest(head)
    if nearest is None:
        return f"aim must be a text such as {EXAMPLES}, got {text!r}"
    meant = "; ".join([nearest, *(part.rstrip("),") for part in more), *parts])
    try:
        return f"aim must be a known aim, got {text!r}; did you mean {str(aim(meant))!r}?"
    except ValueError as error:  # a suggestion must itself be an aim
        return f"aim must be a known aim, got {text!r}; read as {meant!r}, {error}"


def _spellings() -> list[str]:
    """Right spellings with # for a number or a tuple, used for suggestions only."""
    limits = ("{}>=#", "{}<=#", "#<={}<=#")
    areas = [
        f"{name}[{limit.format(axis)}]" for name, (_, axes) in AREA_AIMS.items() for axis in axes for limit in limits
    ]
    return [*(f"{text}#" for text in POINT_AIMS), *areas, *AREA_AIMS, "f#", "f1", "cost[fp=#,fn=#]"]


def _nearest(head: str) -> str | None:
    """The spelling nearest to a text that is no aim, with the same numbers; None if none is near."""
    head = re.sub(rf"({NUMBER})%", lambda percent: f"{float(percent[1]) / 100:.12g}", head)
    head = re.sub(rf"\(({NUMBER})\)", r"\1", head)
    for short, name in SHORT_NAMES.items():
        head = re.sub(short, name, head)
    head = re.sub(rf"(?:specificity|tnr)>=?({NUMBER})", lambda at: f"fpr<={1 - float(at[1]):.12g}", head)
    numbers = re.findall(TARGET, head)
    skeleton = re.sub(r"=?([<>])=?", r"\1=", re.sub(TARGET, "#", head))
    # 0.8<=precision is precision>=0.8, and 0.1>=fpr>=0.01 is 0.01<=fpr<=0.1
    skeleton = re.sub(r"#([<>])=([a-z]+)(?!.*#)", lambda end: f"{end[2]}{'<>'[end[1] == '<']}=#", skeleton)
    if re.search("#>=[a-z]+>=#", skeleton):
        numbers, skeleton = numbers[::-1], skeleton.replace(">=", "<=")
    name, bracket, rest = skeleton.partition("[")
    skeleton = OTHER_NAMES.get(re.sub("[^a-z#]", "", name), name) + bracket + rest
    candidates = [spelling for spelling in _spellings() if spelling.count("#") == len(numbers)]
    # Recall and the true-positive rate are the same, so both are first called recall.
    for old, new in (("tpr", "recall"), ("", "")):
        spelt = {spelling.replace(old, new): spelling for spelling in candidates}
        if matches := get_close_matches(skeleton.replace(old, new), spelt, n=1, cutoff=0.8):
            return re.sub("#", lambda _: numbers.pop(0), spelt[matches[0]])
    return None
