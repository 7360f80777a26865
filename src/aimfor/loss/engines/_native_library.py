"""The C++ library of `csrc`, loaded through ctypes, and the records that are passed to it.

It is built with the package where there is a compiler, and needs nothing of Python's or torch's ABI. The library says
how its structs are laid out and which number each surrogate has. If that differs from this file, it is not used.
"""

import ctypes
import hashlib
from ctypes import POINTER, Structure, c_char_p, c_double, c_float, c_int32, c_int64, c_void_p
from functools import lru_cache
from pathlib import Path
from struct import Struct, calcsize
from typing import NamedTuple

import torch

from aimfor.loss._surrogates import HINGE, LOG, RAMP, SIGMOID, SMOOTH_HINGE, Surrogate

LIBRARY = Path(__file__).parent / "libaimfor.so"
WIDE_LIBRARY = Path(__file__).parent / "libaimfor_v4.so"  # the same for AVX-512
SOURCES = Path(__file__).parent / "csrc"

# The surrogates that the library counts, by the number that it has for each.
SURROGATE_CODES: dict[Surrogate, int] = {HINGE: 0, LOG: 1, SMOOTH_HINGE: 2, RAMP: 3, SIGMOID: 4}

# A batch, the table of an aim and the buffers of a state are bytes and an array of numbers, because records of records
# take Python as long to make as a small batch takes to count. Their fields, with the codes of `struct`:
POINTER_CODE, STRIDED_CODE = "q", "3q"  # a pointer; a pointer and two strides
BATCH_FIELDS = {
    "rows": "q",
    "labels": "q",
    **dict.fromkeys(("scores", "label_values", "weights", "mask"), STRIDED_CODE),
    **dict.fromkeys(("starts", "columns", "stored"), POINTER_CODE),
    "positions": "q",
    "positive": POINTER_CODE,
    "largest_score": "f",
    "largest_weight": "f",
    "score_type": "i",
    "label_type": "i",
    "threads": "i",
}
TABLE = ("width", "objective_u", "objective_v", "load_u", "load_v", "room", "room_recall", "multiplier")
BUFFERS = (
    "class_weight",
    "steps",
    "thresholds",
    "multipliers",
    "rates",
    "positives",
    "exact_positives",
    "negatives",
    "exact_negatives",
    "score_mean",
    "score_variance",
    "slope_square",
    "violation_square",
    "lowest_violation",
    "fruitless_steps",
)


def _struct(codes: list[str]) -> Struct:
    return Struct(" ".join(codes) + " 0q")  # the last pads as C++ does


BATCH_STRUCT = _struct(list(BATCH_FIELDS.values()))
TABLE_STRUCT = _struct([STRIDED_CODE] * len(TABLE))
StateRecord = c_int64 * len(BUFFERS)


class FaultRecord(Structure):
    """What is wrong with a batch, as the library writes it."""

    _fields_ = (("kind", c_int32), ("value", c_double))


class RulesRecord(Structure):
    """Options of a loss and constants of its state, as the library reads them."""

    _fields_ = (
        *((name, c_float) for name in ("dual_rate", "threshold_rate", "sharpness", "leak", "log_loss")),
        *((name, c_float) for name in ("forget", "forget_slope", "progress", "max_multiplier", "longest_count")),
        *((name, c_float) for name in ("smallest_size", "smallest_deviation", "rounding", "outlying", "mean_rounding")),
        ("nearest_to_ends", c_float),
        ("warmup", c_int64),
        *((name, c_int32) for name in ("surrogate", "tight", "exact", "learning", "exclusive")),
        *((name, c_int32) for name in ("look_every", "count_every")),
    )


def expected_layout() -> list[str]:
    """The structs as this file writes them, one line each: name, size, and place and size of every field."""
    return [
        _line_of_codes("Batch", BATCH_FIELDS),
        _line_of_structure("Fault", FaultRecord),
        _line_of_codes("Table", dict.fromkeys(TABLE, STRIDED_CODE)),
        _line_of_codes("State", dict.fromkeys(BUFFERS, POINTER_CODE)),
        _line_of_structure("Rules", RulesRecord),
    ]


def expected_surrogates() -> str:
    """Names of the surrogates in the order of their numbers."""
    return " ".join(surrogate.name for surrogate in sorted(SURROGATE_CODES, key=SURROGATE_CODES.__getitem__))


def _line_of_codes(name: str, fields: dict[str, str]) -> str:
    codes = list(fields.values())
    sizes = [calcsize(code) for code in codes]
    ends = [calcsize(" ".join(codes[: index + 1])) for index in range(len(codes))]
    places = [f"{field}@{end - size}+{size}" for field, end, size in zip(fields, ends, sizes, strict=True)]
    return f"{name} {_struct(codes).size}: {' '.join(places)}"


def _line_of_structure(name: str, structure: type[Structure]) -> str:
    fields = [(field, getattr(structure, field)) for field, *_ in structure._fields_]
    places = [f"{field}@{place.offset}+{place.size}" for field, place in fields]
    return f"{name} {ctypes.sizeof(structure)}: {' '.join(places)}"


def problem() -> str | None:
    """Why no library can be used here; None where one can."""
    return _chosen().problem


def library() -> ctypes.CDLL:
    """The library in use."""
    chosen = _chosen().library
    if chosen is None:
        raise OSError(problem())
    return chosen


def description() -> str:
    """How the library was built, and why it is not the one for wider vectors where torch uses them."""
    vectors = library().aimfor_vectors().decode()
    threads = "OpenMP" if library().aimfor_has_threads() else "one thread, built without OpenMP"
    narrower = _chosen().wide_problem
    without = "" if narrower is None else f"; without AVX-512: {narrower}"
    return f"C++ built with the package, {vectors}, {threads}{without}"


class _Chosen(NamedTuple):
    """The library in use, or why there is none, and why it is not the wide one where that would be right."""

    library: ctypes.CDLL | None
    problem: str | None
    wide_problem: str | None


@lru_cache(maxsize=1)
def _chosen() -> _Chosen:
    chosen, wide_problem = None, None
    # Torch has examined the processor, and follows ATEN_CPU_CAPABILITY: both use the same vectors.
    if torch.backends.cpu.get_cpu_capability() == "AVX512":
        chosen, wide_problem = _usable(WIDE_LIBRARY)
    if chosen is not None:
        return _Chosen(chosen, None, None)
    return _Chosen(*_usable(LIBRARY), wide_problem)


def _usable(path: Path) -> tuple[ctypes.CDLL, None] | tuple[None, str]:
    """The library of a file, or why it cannot be used here."""
    try:
        loaded = _loaded(path)
    except OSError as error:
        return None, str(error)
    difference = _difference(loaded)
    if difference is not None:
        return None, f"{difference}: install the package again"
    if not loaded.aimfor_runs_here():
        return None, "this processor lacks instructions that it was compiled for"
    _declare(loaded)
    return loaded, None


def _difference(loaded: ctypes.CDLL) -> str | None:
    """What of a library is not as this file knows it, and would make it write where it must not."""
    if loaded.aimfor_sources().decode() != _sources():
        return "it was built from other sources than those beside it"
    layout = loaded.aimfor_layout().decode().splitlines()
    for line in expected_layout():
        if line not in layout:
            return f"its struct {line.split()[0]} has another layout than the Python code expects"
    surrogates = loaded.aimfor_surrogates().decode()
    if surrogates != expected_surrogates():
        return f"it numbers the surrogates as {surrogates}, the Python code as {expected_surrogates()}"
    return None


def _sources() -> str:
    """What the sources are, as setup.py says it: a library of another layout would write where it must not."""
    digest = hashlib.sha256()
    for file in sorted(SOURCES.glob("*.[ch]*")):
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:16]


def _loaded(path: Path) -> ctypes.CDLL:
    if not path.is_file():
        raise OSError("it was not built when the package was installed: no C++ compiler that could was found")
    try:
        loaded = ctypes.CDLL(str(path))  # takes the OpenMP that torch has loaded
    except OSError:
        ctypes.CDLL("libgomp.so.1", ctypes.RTLD_GLOBAL)
        loaded = ctypes.CDLL(str(path))
    texts = "aimfor_sources", "aimfor_vectors", "aimfor_layout", "aimfor_surrogates"
    if not all(hasattr(loaded, name) for name in texts):
        raise OSError("it was built by an older version: install the package again")
    for name in texts:
        getattr(loaded, name).restype = c_char_p
    return loaded


def _declare(loaded: ctypes.CDLL) -> None:
    """What the functions of a library take, once it is known to be of the sources here."""
    pointer = c_void_p
    loaded.aimfor_census.argtypes = (c_char_p, pointer, POINTER(FaultRecord))
    loaded.aimfor_observe.argtypes = (StateRecord, pointer, c_int64, c_int64, POINTER(RulesRecord), pointer)
    loaded.aimfor_observe.restype = None
    records = c_char_p, StateRecord, POINTER(RulesRecord)
    loaded.aimfor_step.argtypes = (c_char_p, pointer, c_int64, *records, *[pointer] * 5)
    loaded.aimfor_learn.argtypes = (c_char_p, pointer, c_int64, *records, *[pointer] * 4)
