"""Makes hostile files: valid ones, changed at random. The same seed gives the same case."""

import copy
import hashlib
import json
import math
import re
from random import Random
from typing import Any

NUMBERS = [0, -1, 1, 2, 0.5, -0.0, 1e308, -1e308, 5e-324, 2**31, 2**53 + 1, 2**63, 10**40, 10**400, math.nan, math.inf]
TEXTS = [
    "",
    " ",
    "\0",
    "\x1b[2J\x07",
    "../../precious/thesis.txt",
    "/etc/passwd",
    "%s%n{0}",
    "=cmd()",
    "é" * 3,
    "\ud800",
    "nan",
    "null",
    "A" * 3000,
    "log-loss",
    "linear",
    "trees",
    "mlp",
    "__class__",
    "aucpr",
    "recall@precision>=1e999",
    "🙂",
    "1,2",
    "2024-02-30",
    "9" * 400,
]
VALUES = [*NUMBERS, *TEXTS, None, True, False, [], {}, [[]], [{}], {"": {}}, [None], list(range(100)), ["x"] * 50]
BYTES = [
    b"\0",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b'"',
    b"\n",
    b"\r",
    b",",
    b";",
    b"\t",
    b"\x80",
    b"PK\x03\x04",
    b"\x1f\x8b",
]
BYTES += [b"PAR1", b"ARROW1", b"{", b"[" * 500, b"1e999", b"NaN", b"-", b"\xed\xa0\x80", b"9" * 400, b"'", b"\x1b[2J"]


def damaged(data: bytes, random: Random) -> bytes:
    """The bytes with one to five changes: flipped, cut, doubled, put in, or moved."""
    for _ in range(random.randint(1, 5)):
        data = _changed_bytes(data, random)
    return data


def _changed_bytes(data: bytes, random: Random) -> bytes:
    start, end = sorted(random.randint(0, len(data)) for _ in range(2))
    way = random.randrange(8)
    if way == 0:
        return data[:start] + data[end:]
    if way == 1:
        return data[:end]
    if way == 2:
        return data[:start] + random.choice(BYTES) + data[start:]
    if way == 3:
        return data[:end] + data[start:]
    if way == 4:
        return data[:start] + random.randbytes(random.randint(1, 20)) + data[start:]
    if way == 5 and len(data) > 8:  # a number of the format
        return (
            data[:start] + random.choice((0, 1, 2**31 - 1, 2**32 - 1, 2**24)).to_bytes(4, "little") + data[start + 4 :]
        )
    if way == 6 and data:
        place = random.randrange(len(data))
        return data[:place] + bytes([data[place] ^ (1 << random.randrange(8))]) + data[place + 1 :]
    return random.choice(BYTES) * random.randint(0, 50) if random.random() < 0.1 else data[end:] + data[:start]


def messy(data: bytes, random: Random) -> bytes:
    """The bytes of a text file with some of its cells replaced by hostile texts."""
    for _ in range(random.randint(1, 8)):
        cells = re.split(rb"([,\t\n: ])", data)
        place = random.randrange(0, len(cells), 2)
        text = random.choice([*TEXTS, *map(str, NUMBERS), "?", "1.234,5", "$3", "5 %", "-", "31.12.2024", "yes"])
        cells[place] = text.encode(errors="surrogatepass")
        data = b"".join(cells)
    return data


def changed(value: Any, random: Random, times: int = 1) -> Any:
    """Plain data with some values replaced, removed, renamed, swapped or doubled, at any depth.

    Half of the time only values change, and stay of their kind, so that a reader goes further.
    """
    value, gently = copy.deepcopy(value), random.random() < 0.5
    for _ in range(times):
        places = list(_places(value))
        if not places:
            return random.choice(VALUES)
        holder, key = random.choice(places)
        if gently:
            holder[key] = copy.deepcopy(random.choice(_kin(holder[key])))
        else:
            _change_at(holder, key, random, places)
    return value


def _kin(value: Any) -> list[Any]:
    """Hostile values of the kind of this one, and itself where there are none."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, (int, float)):
        return [*NUMBERS, -value, value + 1, value * 2]
    return TEXTS if isinstance(value, str) else [value]


def _change_at(holder: Any, key: Any, random: Random, places: list[tuple[Any, Any]]) -> None:
    way = random.randrange(7)
    if way == 0:
        del holder[key]
    elif way == 1 and isinstance(holder, dict):
        holder[random.choice(TEXTS)] = holder.pop(key)
    elif way == 1:
        holder.insert(random.randint(0, len(holder)), copy.deepcopy(holder[key]))
    elif way == 2:
        other, place = random.choice(places)
        if not (isinstance(other, list) and place >= len(other)) and (isinstance(other, list) or place in other):
            holder[key] = copy.deepcopy(other[place])
    else:
        holder[key] = copy.deepcopy(random.choice(VALUES))


def _places(value: Any) -> Any:
    """All (container, key) of the data."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, entry in list(items):
        yield value, key
        yield from _places(entry)


def as_json(value: Any, random: Random) -> bytes:
    """The data as JSON, at times damaged; texts that UTF-8 cannot hold stay escaped."""
    text = json.dumps(value, indent=random.choice((None, 1))).encode()
    return damaged(text, random) if random.random() < 0.15 else text


def signed(facts: Any) -> Any:
    """The facts of a model with the checksum that they should have, so that a reader looks at them."""
    if not isinstance(facts, dict):
        return facts
    rest = {name: entry for name, entry in facts.items() if name != "checksum"}
    try:
        text = json.dumps(rest, sort_keys=True, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, UnicodeEncodeError):
        return facts
    return {**rest, "checksum": hashlib.sha256(text).hexdigest()}


def tensors(data: bytes, random: Random) -> bytes:
    """A safetensors file with its header changed as data, or with other bytes."""
    size = int.from_bytes(data[:8], "little")
    try:
        header = json.loads(data[8 : 8 + size])
    except (ValueError, RecursionError):  # damaged before
        header = None
    if header is None or random.random() < 0.4:
        return damaged(data, random)
    header = changed(header, random, random.randint(1, 3))
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data[8 + size :]
