"""Save a fitted classifier as a folder, and load it. Reading a folder runs no code that is in it.

`model.json` holds what people can read, and `model.safetensors` the numbers. The first names the second by its hash. So
replacing `model.json` is the one moment at which a new model replaces an old one.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import safetensors
import safetensors.torch
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from aimfor._base.checks import rule
from aimfor._base.errors import ModelFileError
from aimfor._base.files import is_there, not_written, read_bytes, sync_folder, write_bytes
from aimfor.estimator import Classifier
from aimfor.model_folder._restore import restore
from aimfor.model_folder._schema import LoadedModel, facts_of, read_facts, tensor_bytes, tensors_of, to_text
from aimfor.model_kinds import KINDS
from aimfor.tables import as_path

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

FACTS, TENSORS = "model.json", "model.safetensors"
# A larger file is refused without being read.
MOST_FACTS = 64 * 2**20
# The most bytes of a safetensors file beside its numbers. The format would allow far more than a model needs.
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
    """Write a fitted classifier to a folder. Whatever interrupts it, the folder has the old model or the new one.

    Args:
        folder: created if it does not exist.
        classifier: fitted, with a model that has a name.
        preparation: a `Preparation` that makes its features from raw columns.
        extra: more entries of model.json, as plain data, such as the source of the rows. Readers do not check them.
        loss_state: `multipliers` and `thresholds` `[K, L]` and `priors` `[L]` of the loss, as far as they exist.

    Raises:
        ModelFileError: if the model cannot be stored as data, or the folder cannot be written.
    """
    folder = as_path(folder)
    check_is_fitted(classifier, ["model_", "calibration_"] if classifier.calibrate else "model_")
    kind = KINDS.get(classifier.model_.kind)
    if kind is None or not kind.stored:
        names = ", ".join(f'"{name}"' for name, kind in KINDS.items() if kind.stored)
        raise ModelFileError(
            f"model {classifier.model!r} cannot be saved, because reading a file must run no code; use one of {names}"
        )
    data = safetensors.torch.save(tensors_of(classifier, loss_state or {}))
    digest = hashlib.sha256(data).hexdigest()
    with _told("this model cannot be saved"):
        text = to_text(facts_of(classifier, preparation, extra or {}, loss_state or {}, digest))
        # A model that could not be read back is not written.
        rule(len(text) <= MOST_FACTS, "the facts", f"must have at most {MOST_FACTS:,} bytes", f"{len(text):,}")
        restore(read_facts(text), read_tensors(data))
    waiting = folder / _waiting(digest)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_bytes(waiting, data)
        write_bytes(folder / FACTS, text)
        # From here on readers get the new model, because they find its tensors under either name.
        waiting.replace(folder / TENSORS)
        sync_folder(folder)
    except OSError as error:
        raise not_written(folder, error) from error
    finally:
        _tidy(folder)


def load_model(folder: str | os.PathLike[str]) -> LoadedModel:
    """Read what `save_model` wrote. No code in it is run, and every entry is checked.

    Args:
        folder: of the model.

    Raises:
        ModelFileError: if a file is missing, damaged, too large or of another kind.
    """
    folder = as_path(folder)
    text = read_bytes(folder / FACTS, MOST_FACTS)
    with _told(f"{folder / FACTS} does not describe a model"):
        facts = read_facts(text)
    # The tensors still have their hash as name if a process was stopped just before renaming them.
    path = folder / _waiting(facts["sha256"])
    path = path if is_there(path) else folder / TENSORS
    data = read_bytes(path, tensor_bytes(facts) + MOST_HEADER)
    if hashlib.sha256(data).hexdigest() != facts["sha256"]:
        raise ModelFileError(f"{path} is damaged or of another model: its hash is not the one in {FACTS}")
    with _told(f"{folder} does not hold a model"):
        return restore(facts, read_tensors(data))


def save(folder: str | os.PathLike[str], classifier: Classifier) -> None:
    """Write a fitted classifier to a folder that `aimfor.load` reads, as plain data.

    Whatever interrupts it, the folder holds the old model or the new one.

    Args:
        folder: created if it does not exist.
        classifier: fitted, with a model that has a name.

    Raises:
        ModelFileError: if the model cannot be stored as data, or the folder cannot be written.

    Example:
        >>> import tempfile
        >>> from sklearn.datasets import make_classification
        >>> X, y = make_classification(200, random_state=0)
        >>> model = Classifier("f1", model="linear", steps=20, random_state=0).fit(X, y)
        >>> with tempfile.TemporaryDirectory() as run:
        ...     save(run, model)
        ...     bool((load(run).predict(X) == model.predict(X)).all())
        True
    """
    if not isinstance(classifier, Classifier):
        raise TypeError(f"classifier must be an aimfor.Classifier, got {type(classifier).__name__}")
    save_model(folder, classifier)


def load(path: str | os.PathLike[str]) -> Classifier | Pipeline:
    """Load the estimator of a model folder, with identical scores and decisions.

    Args:
        path: the folder.

    Returns:
        A fitted `Classifier`. If it has a preparation, a `Pipeline` of both, for tables of raw columns.

    Raises:
        ModelFileError: if a file is missing, damaged, too large or of another kind.

    Example:
        >>> import tempfile
        >>> from sklearn.datasets import make_classification
        >>> from aimfor.model_folder import save
        >>> X, y = make_classification(200, random_state=0)
        >>> model = Classifier("f1", model="linear", steps=20, random_state=0).fit(X, y)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save(folder, model)
        ...     same = load(folder)
        >>> bool((same.predict(X) == model.predict(X)).all())
        True
    """
    loaded = load_model(path)
    if loaded.preparation is None:
        return loaded.classifier
    from sklearn.pipeline import Pipeline  # takes long to import, and the program does not need it

    return Pipeline([("preparation", loaded.preparation), ("classifier", loaded.classifier)])


def read_tensors(data: bytes) -> dict[str, Tensor]:
    """The tensors of a safetensors file.

    Raises:
        ValueError: if it is not a safetensors file.
    """
    try:
        views = safetensors.deserialize(data)
    except safetensors.SafetensorError as error:
        raise ValueError(f"the tensors are not a whole safetensors file: {error}") from error
    tensors = {}
    for name, view in views:
        rule(view["dtype"] in DTYPES, f"the dtype of tensor {name!r}", f"must be one of {list(DTYPES)}", view["dtype"])
        dtype = DTYPES[view["dtype"]]
        # torch makes no tensor of an empty buffer
        tensor = torch.frombuffer(view["data"], dtype=dtype) if view["data"] else torch.empty(0, dtype=dtype)
        tensors[name] = tensor.reshape(view["shape"])
    return tensors


def _waiting(digest: str) -> str:
    return f"model-{digest}.safetensors"


def _tidy(folder: Path) -> None:
    """Remove tensor files with a hash as name, and parts of them, unless model.json names them."""
    named = None
    with contextlib.suppress(ValueError):  # there is no model yet
        named = _waiting(read_facts(read_bytes(folder / FACTS, MOST_FACTS))["sha256"])
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            if WAITING.fullmatch(path.name) and path.name != named:
                path.unlink()


@contextlib.contextmanager
def _told(problem: str) -> Iterator[None]:
    """Raise a ModelFileError that says what is wrong. A number in JSON may even be too large for a float."""
    try:
        yield
    except (ValueError, TypeError, OverflowError) as error:
        raise ModelFileError(f"{problem}: {str(error)[:300]}") from error
