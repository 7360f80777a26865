"""What to fit, as plain data that can be saved and read again."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from aimfor._base.errors import DataError, ModelFileError
from aimfor._base.files import write_text
from aimfor._base.json import read_json
from aimfor._base.ranks import ALONE, Ranks
from aimfor.cli._source import open_source
from aimfor.cli._work_folder import JOB
from aimfor.estimator import Classifier, check_parameters
from aimfor.tables import Dataset, Matrix, ReadOptions, Table, check_name, prepare, shared, without_password

# Of fields of a job, where the command calls them otherwise.
OPTION_NAMES = {"paths": "DATA", "labels": "--label", "separator": "--sep", "missing": "--na"}
OPTION_NAMES |= {"hidden_layer_sizes": "--hidden"}


@dataclass(frozen=True)
class Job:
    """What is to be fitted: data, aim, split and options.

    Attributes:
        paths: files or folders of the data.
        labels: names of the label columns.
        aim: its text.
        positive: the value of a single label that counts as positive; None for the second in order.
        weight, group, time: names of columns, or None.
        numeric, categorical, drop: columns that are told what they are.
        validation_fraction, test_fraction: shares of the rows that choose and that measure.
        seed: of everything random.
        memory: bytes of features that may be held in memory.
        options: of `Classifier`.
        sql: a query, where `paths` is the address of a database.
        separator, encoding, missing: how files are read, as `ReadOptions` has them.
        by: name of a column whose values are measured one by one, or None.
    """

    paths: tuple[str, ...]
    labels: tuple[str, ...]
    aim: str
    positive: str | None = None
    weight: str | None = None
    group: str | None = None
    time: str | None = None
    numeric: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    validation_fraction: float = 0.2
    test_fraction: float = 0.2
    seed: int = 0
    memory: int = 256 * 2**20
    options: dict[str, Any] = field(default_factory=dict)
    sql: str | None = None
    separator: str | None = None
    encoding: str | None = None
    missing: tuple[str, ...] = ()
    by: str | None = None

    def classifier(self) -> Classifier:
        """Unfitted, its options checked before any row is read."""
        # Rows are held back here, by group or time if so asked; without any, choices are made on the training rows.
        try:
            model = Classifier(self.aim, random_state=self.seed, validation_fraction=0, **self.options)
            check_parameters(model)
        except TypeError as error:  # of a written job, whose values may be anything
            raise ValueError(str(error)) from error
        return model

    def dataset(self, folder: Path, ranks: Ranks = ALONE) -> Dataset:
        """Its rows, or those of this rank, prepared and split; what memory does not hold goes to the folder."""
        source = self._source(folder)
        if ranks.size > 1:
            if isinstance(source, Matrix):
                raise DataError(f"several ranks cannot share {source.name}: use files with named columns")
            source = shared(source, ranks)
        return prepare(
            source,
            labels=self.labels,
            positive=self.positive,
            weight=self.weight,
            group=self.group,
            time=self.time,
            validation=self.validation_fraction,
            test=self.test_fraction,
            seed=self.seed,
            numeric=self.numeric,
            categorical=self.categorical,
            drop=self.drop,
            folder=folder,
            memory=self.memory,
        )

    def segments(self, folder: Path, rows: np.ndarray) -> pa.Array | None:
        """The cells of the column `by` in some rows, bool `[n]`; None where no column is named.

        Raises:
            DataError: where there is no such column.
        """
        if self.by is None:
            return None
        source, start, found = self._source(folder), 0, []
        check_name("by", self.by, [] if isinstance(source, Matrix) else source.schema.names)
        assert isinstance(source, Table)
        for batch in source.batches([self.by], texts=[self.by]):
            end = start + batch.num_rows
            found.append(batch.column(0).filter(pa.array(rows[start:end])))
            start = end
        return pa.chunked_array(found).combine_chunks()

    def _source(self, folder: Path) -> Table | Matrix:
        reading = ReadOptions(self.separator, self.encoding, self.missing, self.numeric, self.categorical)
        return open_source(self.paths, reading, self.sql, folder)

    def write(self, folder: Path, fingerprint: str, command: str) -> str:
        """Write it down, with the fingerprint of its data; where it is written already, it must be the same.

        Returns:
            The command that first asked for it.
        """
        path = folder / JOB
        # Passwords are written nowhere. What a query gave is kept in the folder, so that going on needs none.
        stored = dataclasses.replace(self, paths=tuple(map(without_password, self.paths)))
        facts = {"job": dataclasses.asdict(stored), "fingerprint": fingerprint, "command": command}
        facts = json.loads(json.dumps(facts))
        if path.exists():
            before = read_json(path)
            if before.get("job") != facts["job"]:
                named = ", ".join(_differences(before.get("job"), facts["job"]))
                raise ModelFileError(
                    f"the run in {folder.parent} had other options ({named}): repeat them, or leave out --resume"
                )
            if before.get("fingerprint") != fingerprint:
                raise DataError(f"the data changed since the run in {folder.parent} began: fit again without --resume")
            return str(before.get("command", command))
        write_text(path, json.dumps(facts, indent=1))
        return command

    @classmethod
    def read(cls, folder: Path) -> Job:
        """The job written down in a folder."""
        path = folder / JOB
        if not path.exists():
            raise ModelFileError(f"no interrupted run in {folder.parent}: start one without --resume")
        entries = read_json(path).get("job")
        if not isinstance(entries, dict) or not _is_job(entries):
            raise ModelFileError(f"{path} does not hold a job of this version of aimfor")
        # JSON knows no tuples.
        given: dict[str, Any] = {
            name: tuple(entry) if isinstance(entry, list) else entry for name, entry in entries.items()
        }
        return cls(**given)

    def resumed(self, folder: Path, asked: Sequence[str]) -> Job:
        """The job written down in a folder, where this one, without data, asks for nothing else.

        Args:
            folder: of the run.
            asked: the options that were given, such as "--aim"; others are not compared.
        """
        before = self.read(folder)
        facts = (json.loads(json.dumps(dataclasses.asdict(one))) for one in (before, self))
        other = [name for name in _differences(*facts) if name in asked]
        if other:
            raise ModelFileError(
                f"the run in {folder.parent} had other options ({', '.join(other)}): leave them out to go on with its "
                "own, or name the data and leave out --resume"
            )
        return before


def _differences(before: Any, after: dict[str, Any]) -> list[str]:
    """The options in which two jobs differ, each as plain data."""
    known: dict[str, Any] = before if isinstance(before, dict) else {}
    inner = known.get("options")
    one, other = (entry | (own or {}) for entry, own in ((known, inner), (after, after["options"])))
    names = [name for name in {**other, **one} if name != "options" and one.get(name) != other.get(name)]
    return [OPTION_NAMES.get(name, f"--{name.replace('_', '-')}") for name in names]


def _is_job(entries: dict[str, Any]) -> bool:
    """Whether these are the fields of a job, each of its kind."""
    kinds: dict[str, Any] = {
        "paths": list,
        "labels": list,
        "aim": str,
        **dict.fromkeys(
            ("positive", "weight", "group", "time", "sql", "separator", "encoding", "by"), (str, type(None))
        ),
        **dict.fromkeys(("numeric", "categorical", "drop", "missing"), list),
        **dict.fromkeys(("validation_fraction", "test_fraction"), (int, float)),
        **dict.fromkeys(("seed", "memory"), int),
        "options": dict,
    }
    if set(entries) != set(kinds) or not all(isinstance(entries[name], kind) for name, kind in kinds.items()):
        return False
    texts = all(isinstance(text, str) for entry in entries.values() if isinstance(entry, list) for text in entry)
    return texts and set(entries["options"]) <= set(Classifier().get_params())
