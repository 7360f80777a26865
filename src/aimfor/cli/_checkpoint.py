"""Facts and tensors in one file, from which an interrupted run resumes."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from aimfor._base.errors import ModelFileError
from aimfor._base.files import MOST_BYTES, is_there, read_bytes, write_bytes
from aimfor.model_folder import read_tensors
from aimfor.tables import as_path


class Checkpoint:
    """One safetensors file with the facts in its metadata: always the last one that was saved whole.

    Args:
        path: of the file; its folder must exist.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = as_path(path)

    def save(self, facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """Put a new checkpoint in the place of the last one.

        Args:
            facts: plain data, finite numbers.
            tensors: of any names, shapes and kinds of numbers.

        Raises:
            ModelFileError: where the file cannot be written; the last checkpoint is then still there.
        """
        text = json.dumps(facts, allow_nan=False)
        # Copies, as tensors that share their storage cannot be written.
        own = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
        data = safetensors.torch.save(own, {"facts": text, "sha256": _digest(text, own)})
        write_bytes(self.path, data)

    def load(self) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
        """The facts and tensors that were saved last, bit for bit; None where there are none.

        Raises:
            ModelFileError: where the file is damaged.
        """
        if not is_there(self.path):
            return None
        data = read_bytes(self.path, MOST_BYTES)
        try:
            tensors = read_tensors(data)
            header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
            text, digest = ((header.get("__metadata__") or {})[name] for name in ("facts", "sha256"))
            if _digest(text, tensors) != digest:
                raise ValueError("other contents than were written")
            return json.loads(text), tensors
        except KeyError as error:
            raise ModelFileError(f"{self.path} must be a checkpoint, got a file without {error}") from error
        except ValueError as error:
            raise ModelFileError(f"{self.path} must be a whole checkpoint, got: {str(error)[:300]}") from error

    def remove(self) -> None:
        """Remove the file, if there is one."""
        self.path.unlink(missing_ok=True)


def _digest(text: str, tensors: Mapping[str, Tensor]) -> str:
    """Of the facts and of everything about the tensors."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(repr((name, tensor.dtype, tuple(tensor.shape))).encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
