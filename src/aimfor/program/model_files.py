"""Keep: a fitted classifier as a folder that anyone may open, as reading it runs nothing that is in it.

`model.json` holds what people can read, `model.safetensors` the numbers. The first names the second by its hash, so
replacing `model.json` is the one moment in which a new model takes the place of an old one.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from aimfor.checks import rule
from aimfor.estimators import Classifier
from aimfor.program.errors import ModelFileError
from aimfor.program.model_facts import LoadedModel, facts_of, read_facts, restore, shapes_of, tensors_of, to_text

FACTS, TENSORS = "model.json", "model.safetensors"
# What is larger is refused unread.
MOST_FACTS, MOST_TENSORS = 64 * 2**20, 8 * 2**30
# Of a safetensors file, beyond its numbers: its own limit is far above what the few names of a model need.
MOST_HEADER = 2**20
WAITING = re.compile(r"model-[0-9a-f]{64}\.safetensors|\.model-[0-9a-f]{64}\.safetensors\.part")
DTYPES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "I16": torch.int16,
    "I32": torch.int32,
    "I64": torch.int64,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
}


def save_model(
    folder: str | os.PathLike[str],
    classifier: Classifier,
    *,
    preparation: Any = None,
    extra: Mapping[str, Any] | None = None,
    loss_state: Mapping[str, Tensor] | None = None,
) -> None:
    """Write a fitted classifier to a folder; whatever interrupts it, the folder holds the old model or the new one.

    Args:
        folder: made where there is none.
        classifier: fitted, with model "linear" or "mlp".
        preparation: a `Preparation` that makes its features from raw columns.
        extra: more entries of model.json, as plain data: where the rows came from, say. Readers do not check them.
        loss_state: `multipliers` and `thresholds` `[K, L]` and `priors` `[L]` of the loss, those that there are.

    Raises:
        ModelFileError: where the model is not of that kind, or the folder cannot be written.
    """
    folder = Path(folder)
    check_is_fitted(classifier, ["model_", "calibration_"] if classifier.calibrate else "model_")
    if classifier.model not in ("linear", "mlp"):
        raise ModelFileError(
            f'model must be "linear" or "mlp" to be saved, as reading a file must run no code, got {classifier.model!r}'
        )
    data = safetensors.torch.save(tensors_of(classifier, loss_state or {}))
    digest = hashlib.sha256(data).hexdigest()
    with _told("a model must be one that can be read back to be saved"):
        text = to_text(facts_of(classifier, preparation, extra or {}, loss_state or {}, digest))
        # What could not be read back is not written.
        rule(len(text) <= MOST_FACTS, "the facts", f"must have at most {MOST_FACTS:,} bytes", f"{len(text):,}")
        restore(read_facts(text), read_tensors(data))
    waiting = folder / _waiting(digest)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_bytes(waiting, data)
        write_bytes(folder / FACTS, text)
        # From here on the new model is in force: a reader finds its tensors under either name.
        os.replace(waiting, folder / TENSORS)
        _sync(folder)
    except OSError as error:
        raise _not_written(folder, error) from error
    finally:
        _tidy(folder)


def load_model(folder: str | os.PathLike[str]) -> LoadedModel:
    """Read what `save_model` wrote; nothing in it is run, and nothing is taken on trust.

    Args:
        folder: of the model.

    Raises:
        ModelFileError: where a file is missing, damaged, too large or of another kind, in one sentence.
    """
    folder = Path(folder)
    text = read_bytes(folder / FACTS, MOST_FACTS)
    with _told(f"{folder / FACTS} must describe a model"):
        facts = read_facts(text)
    # The tensors still wait under their hash where a process was stopped just before their last renaming.
    path = folder / _waiting(facts["sha256"])
    path = path if os.path.lexists(path) else folder / TENSORS
    data = read_bytes(path, 8 * sum(map(math.prod, shapes_of(facts).values())) + MOST_HEADER)
    if hashlib.sha256(data).hexdigest() != facts["sha256"]:
        raise ModelFileError(f"{path} must be the file that {FACTS} names by its hash, got another or a damaged one")
    with _told(f"{folder} must hold a model"):
        return restore(facts, read_tensors(data))


def load(path: str | os.PathLike[str]) -> Classifier | Pipeline:
    """Give back the estimator that a model folder holds, with identical scores and decisions.

    Args:
        path: the folder.

    Returns:
        A fitted `Classifier`; behind its preparation, as a `Pipeline` for tables of raw columns, where it has one.

    Raises:
        ModelFileError: where a file is missing, damaged, too large or of another kind, in one sentence.
    """
    loaded = load_model(path)
    if loaded.preparation is None:
        return loaded.classifier
    return Pipeline([("preparation", loaded.preparation), ("classifier", loaded.classifier)])


# Files


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text as UTF-8, whole or not at all; see `write_bytes`."""
    write_bytes(path, text.encode())


def write_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file whole or not at all: an earlier one stays until the new one is safely on the disk.

    Args:
        path: of the file; its folder must exist.
        data: all of it.

    Raises:
        ModelFileError: where it cannot be written, with the reason.
    """
    path = Path(path)
    part = path.with_name(f".{path.name}.part")
    try:
        part.unlink(missing_ok=True)  # a process that was stopped may have left it
        with open(part, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
        _sync(path.parent)
    except OSError as error:
        raise _not_written(path, error) from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


def read_bytes(path: Path, most: int) -> bytes:
    """Read a file of at most so many bytes, and nothing but a file: no link, no pipe, no folder.

    Args:
        path: of the file.
        most: bytes that it may have.

    Raises:
        ModelFileError: where it cannot be read, with the reason.
    """
    most = min(most, MOST_TENSORS)
    try:
        status = os.lstat(path)
        if not stat.S_ISREG(status.st_mode):
            raise ModelFileError(f"{path} must be a file, got a link, a folder or a device")
        if status.st_size <= most:
            with open(path, "rb") as file:
                data = file.read(most + 1)
            if len(data) <= most:
                return data
    except FileNotFoundError:
        raise ModelFileError(f"{path} must be there, got no such file") from None
    except OSError as error:
        raise ModelFileError(f"{path} must be readable, got: {error.strerror}") from error
    raise ModelFileError(f"{path} must have at most {most:,} bytes, got {status.st_size:,}")


def read_tensors(data: bytes) -> dict[str, Tensor]:
    """The tensors of a safetensors file, of the kinds that numbers of a model come in.

    Raises:
        ValueError: where it is no such file.
    """
    try:
        views = safetensors.deserialize(data)
    except safetensors.SafetensorError as error:
        raise ValueError(f"the tensors must be a whole safetensors file, got: {error}") from error
    tensors = {}
    for name, view in views:
        rule(view["dtype"] in DTYPES, f"the dtype of tensor {name!r}", f"must be one of {list(DTYPES)}", view["dtype"])
        dtype = DTYPES[view["dtype"]]
        # torch makes no tensor of an empty buffer
        tensor = torch.frombuffer(view["data"], dtype=dtype) if view["data"] else torch.empty(0, dtype=dtype)
        tensors[name] = tensor.reshape(view["shape"])
    return tensors


def _sync(folder: Path) -> None:
    """Bring a folder's new names to the disk, where folders can be opened."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _not_written(path: Path, error: OSError) -> ModelFileError:
    return ModelFileError(f"{path} must be writable, got: {error.strerror}")


def _waiting(digest: str) -> str:
    return f"model-{digest}.safetensors"


def _tidy(folder: Path) -> None:
    """Remove tensors that wait under their hash, or parts of them, that model.json does not name."""
    named = None
    with contextlib.suppress(ValueError):  # none yet, or no model
        named = _waiting(read_facts(read_bytes(folder / FACTS, MOST_FACTS))["sha256"])
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            if WAITING.fullmatch(path.name) and path.name != named:
                path.unlink()


@contextlib.contextmanager
def _told(must: str) -> Iterator[None]:
    """What is wrong with contents, behind a rule that they break; a number in JSON may be too large for any float."""
    try:
        yield
    except (ValueError, TypeError, OverflowError) as error:
        raise ModelFileError(f"{must}, got: {str(error)[:300]}") from error
