"""The four kinds of fuzzed cases. Each writes hostile files into a folder and gives the command to run there."""

import gzip
import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from unittest import mock

import numpy as np
import pandas as pd
from hostile import TEXTS, as_json, changed, damaged, messy, signed, tensors

from aimfor.cli import _run
from aimfor.training import SavedState

Run = Callable[..., int]
PLAIN = ("--label", "fraud", "--aim", "f1", "--steps", "2", "--restarts", "1")
FIT = (*PLAIN, "--surrogate", "log")
LINEAR = (*FIT, "--model", "linear")
FORMATS = ("csv", "tsv", "csv.gz", "jsonl", "parquet", "feather", "npz", "svm", "xlsx", "db")
TEXT_FORMATS = ("csv", "tsv", "jsonl", "svm")
MOST = {"steps": 3, "patience": 3, "restarts": 2, "batch_size": 64, "budget": 5, "solver": 0}
PRECIOUS = "thesis.txt"


def frame(rows: int = 90) -> pd.DataFrame:
    """A small table with every kind of column."""
    random = np.random.default_rng(0)
    fraud = random.random(rows) < 0.4
    return pd.DataFrame(
        {
            "amount": (random.normal(size=rows) + fraud).round(3),
            "count": random.integers(0, 9, rows),
            "town": random.choice(["Bonn", "Rome", "Oslo"], rows),
            "day": pd.date_range("2024-01-01", periods=rows).strftime("%d.%m.%Y"),
            "fraud": np.where(fraud, "yes", "no"),
        }
    )


class Material:
    """Valid files, made once: tables in all formats, model folders of all kinds, an interrupted run."""

    def __init__(self, folder: Path, run: Run):
        self.folder = folder
        (folder / "tmp").mkdir(parents=True)
        rows = frame()
        rows.to_csv(folder / "rows.csv", index=False)
        rows.to_csv(folder / "rows.tsv", index=False, sep="\t")
        (folder / "rows.csv.gz").write_bytes(gzip.compress((folder / "rows.csv").read_bytes(), mtime=0))
        rows.to_json(folder / "rows.jsonl", orient="records", lines=True)
        rows.to_parquet(folder / "rows.parquet")
        rows.to_feather(folder / "rows.feather")
        rows.to_excel(folder / "rows.xlsx", index=False)
        self._numbers(rows)
        self._database(rows)
        self.data = {kind: (folder / f"rows.{kind}").read_bytes() for kind in FORMATS}
        self.runs = {}
        for name, options in (
            ("linear", (*LINEAR, "--calibrate")),
            ("mlp", (*FIT, "--model", "mlp", "--hidden", "3")),
            ("trees", (*PLAIN, "--model", "trees")),
            ("classes", (*LINEAR, "--label", "town")),
        ):
            options = options if name != "classes" else (*LINEAR[2:], "--label", "town")
            assert run("fit", folder / "rows.csv", *options, "--out", folder / name) == 0, name
            self.runs[name] = {path.name: path.read_bytes() for path in (folder / name).iterdir()}
        self.work = {kind: self._interrupted(run, kind) for kind in ("linear", "trees")}

    def _numbers(self, rows: pd.DataFrame) -> None:
        X, y = rows[["amount", "count"]].to_numpy(), (rows["fraud"] == "yes").to_numpy()
        np.savez(self.folder / "rows.npz", X=X, y=y)
        lines = [f"{int(label)} 1:{one} 2:{two}" for label, (one, two) in zip(y, X, strict=True)]
        (self.folder / "rows.svm").write_text("\n".join(lines))

    def _database(self, rows: pd.DataFrame) -> None:
        import sqlite3

        base = sqlite3.connect(self.folder / "rows.db")
        rows.to_sql("rows", base, index=False)
        base.close()

    def _interrupted(self, run: Run, model: str) -> dict[str, bytes]:
        """The work folder of a run that was killed after it had saved its state."""
        out = self.folder / f"killed {model}"
        saved = _run.Run.save

        def save_and_die(self: _run.Run, stage: str, state: SavedState) -> None:
            saved(self, stage, state)
            if stage != "log-loss":
                raise KeyboardInterrupt

        with mock.patch.object(_run, "SECONDS_BETWEEN", -1.0), mock.patch.object(_run.Run, "save", save_and_die):
            options = (*(LINEAR if model == "linear" else (*PLAIN, "--model", model)), "--out", out)
            assert run("fit", self.folder / "rows.csv", *options) == 130
        return {path.name: path.read_bytes() for path in (out / ".work").iterdir()}


def data_case(material: Material, root: Path, random: Random) -> list[str]:
    """A data file that was damaged, for fit, score or evaluate, with options that may be absurd."""
    kind = random.choice((*FORMATS, "csv", "csv", "jsonl"))
    path = root / f"rows.{kind}"
    data = material.data[kind]
    spoil = messy if random.random() < 0.5 else damaged
    if kind == "csv.gz" and random.random() < 0.7:
        data = gzip.compress(spoil(gzip.decompress(data), random), mtime=0)
    elif kind in TEXT_FORMATS:
        data = spoil(data, random)
    elif random.random() < 0.95:
        data = damaged(data, random)
    path.write_bytes(data)
    source = [f"sqlite:///{path}", "--sql", random.choice(QUERIES)] if kind == "db" else [str(path)]
    command = random.choice(("fit", "fit", "score", "evaluate"))
    if command == "fit":
        label = ["--label", "fraud"] if kind not in ("npz", "svm") or random.random() < 0.1 else []
        rest = LINEAR[2:]
        return ["fit", *source, *label, *rest, *_options(random), "--out", str(root / "run")]
    model = _folder(material, root / "run", random.choice(list(material.runs)))
    more = ["--out", str(root / f"scored.{random.choice(('csv', 'parquet', 'feather', 'tsv'))}")]
    return [command, str(model), *source, *(more if command == "score" else []), *_scoring_options(command, random)]


QUERIES = ("select * from rows", "select * from rows limit 0", "drop table rows", "select 1; select 2", "", "\0")
OPTIONS = [
    *[("--sep", text) for text in (",", ";", "\t", "||", "", "é", "\n", '"')],
    *[("--encoding", text) for text in ("utf-8", "utf-16", "latin-1", "cp1252", "idna", "zlib", "rot13", "nonsense")],
    *[("--na", text) for text in ("", "Bonn", "0", "nan", "A" * 5000)],
    *[("--positive", text) for text in ("yes", "no", "", "maybe", "1")],
    *[(option, column) for option in ("--time", "--group", "--weight") for column in ("day", "count", "town", "none")],
    *[
        (option, column)
        for option in ("--numeric", "--categorical", "--drop")
        for column in ("day", "town", "amount", "")
    ],
    *[
        ("--aim", text)
        for text in ("recall@precision>=0.9", "tpr@fpr<=0", "f1", "auc", "", "f1" * 999, "recall@alerts<=0.1")
    ],
    *[("--confidence", text) for text in ("0.9", "0", "1", "nan", "-1", "1e999")],
    *[("--validation-fraction", text) for text in ("0", "0.9", "nan", "1e-9")],
    *[("--batch-size", text) for text in ("0", "1", "-5", "1e9", "99999999999999999999", "auto")],
    *[("--learning-rate", text) for text in ("0", "-1", "nan", "inf", "1e30", "x")],
    *[("--weight-decay", text) for text in ("0", "-1", "nan", "inf", "1e30")],
    *[("--seed", text) for text in ("0", "4294967295", "-1", "4294967296")],
    *[("--memory", text) for text in ("1", "0", "99999999999999")],
    *[("--budget", text) for text in ("0", "nan", "inf", "1e-9")],
    ("--device", "nowhere"),
    ("--constraint", "exact"),
    ("--calibrate",),
    ("--json",),
    ("--resume",),
]


def _options(random: Random) -> list[str]:
    count = random.choice((0, 0, 1, 1, 2, 3))
    return [text for option in random.sample(OPTIONS, count) for text in option]


def _scoring_options(command: str, random: Random) -> list[str]:
    own = [("--sep", ";"), ("--encoding", "utf-16"), ("--na", "Bonn"), ("--json",), ("--strict",)]
    if command == "score":
        own += [("--threshold", text) for text in ("0", "nan", "inf", "-1e999", "x")]
        own += [("--id", name) for name in ("town", "score", "none", "fraud")]
    else:
        own += [("--by", name) for name in ("town", "amount", "none", "day")]
        own += [("--cost-fp", text) for text in ("1", "nan", "1e999", "-1")] + [("--cost-fn", "5")]
    return [text for option in random.sample(own, random.choice((0, 1, 2))) for text in option]


def folder_case(material: Material, root: Path, random: Random) -> list[str]:
    """A model folder with changed files, links, pipes and foreign files, for every command that takes one."""
    name = random.choice(list(material.runs))
    folder = _folder(material, root / "run", name)
    for _ in range(random.randint(1, 3)):
        random.choice((_spoil_facts, _spoil_facts, _spoil_tensors, _spoil_other, _put_in_the_way))(folder, root, random)
    (root / "rows.csv").write_bytes(material.data["csv"])
    rows, run = str(root / "rows.csv"), str(folder)
    return random.choice(
        (
            ["score", run, rows, "--out", str(root / "scored.csv")],
            ["score", run, rows, "--out", str(folder / random.choice(("model.json", "scored.csv", "x.parquet")))],
            ["evaluate", run, rows, "--by", "town", "--json"],
            ["evaluate", run, rows, "--strict"],
            ["report", run],
            ["report", run],
            ["export", run, "--out", str(root / "model.onnx")],
            ["fit", rows, *LINEAR, "--out", run],
        )
    )


def _folder(material: Material, folder: Path, name: str) -> Path:
    folder.mkdir(exist_ok=True)
    for file, data in material.runs[name].items():
        if file != "report.html":
            (folder / file).write_bytes(data)
    return folder


def _spoil_facts(folder: Path, root: Path, random: Random) -> None:
    """Change model.json as data and sign it, so that the reader has to look at every entry."""
    path = folder / random.choice(("model.json", "model.json", "metrics.json"))
    if not _plain(path):
        return
    try:
        facts = json.loads(path.read_bytes())
    except ValueError:
        return
    facts = changed(facts, random, random.randint(1, 4))
    path.write_bytes(as_json(signed(facts) if path.name == "model.json" else facts, random))


def _spoil_tensors(folder: Path, root: Path, random: Random) -> None:
    """Change the tensors, and often name them by their new hash."""
    path, facts = folder / "model.safetensors", folder / "model.json"
    if not (_plain(path) and _plain(facts)):
        return
    data = path.read_bytes()
    data = tensors(data, random) if len(data) > 8 else damaged(data, random)
    path.write_bytes(data)
    if random.random() < 0.7:
        try:
            entries = json.loads(facts.read_bytes())
        except ValueError:
            return
        if isinstance(entries, dict):
            entries["sha256"] = hashlib.sha256(data).hexdigest()
            facts.write_bytes(json.dumps(signed(entries)).encode())


def _spoil_other(folder: Path, root: Path, random: Random) -> None:
    path = folder / random.choice(("model.json", "model.safetensors", "metrics.json", "history.csv"))
    if _plain(path):
        path.write_bytes(damaged(path.read_bytes(), random))


def _put_in_the_way(folder: Path, root: Path, random: Random) -> None:
    """A link, a pipe, a folder, nothing or someone's file where the program expects one of its own, or nothing."""
    names = ["model.json", "model.safetensors", "metrics.json", "history.csv", "report.html", ".work", "notes.txt"]
    names += [".work/lock", ".work/job.json", ".work/train.rows", ".work/log-loss.safetensors", ".work/notes.txt"]
    names += [".model.json.part", ".metrics.json.new", ".report.html.part", f"model-{'0' * 64}.safetensors"]
    _block(folder / random.choice(names), root, random)


def _block(path: Path, root: Path, random: Random) -> None:
    if not path.parent.is_dir():
        path.parent.mkdir(exist_ok=True) if not os.path.lexists(path.parent) else None
    if path.parent.is_symlink() or not path.parent.is_dir():
        return
    if os.path.lexists(path):
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    target = root.parent / "precious"
    way = random.randrange(7)
    if way == 0:
        path.symlink_to(target / PRECIOUS)
    elif way == 1:
        path.symlink_to(target, target_is_directory=True)
    elif way == 2:
        path.symlink_to(target / "absent")
    elif way == 3:
        os.mkfifo(path)
    elif way == 4:
        path.mkdir()
    elif way == 5:
        path.write_bytes(random.choice(TEXTS).encode(errors="replace"))


def _plain(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def job_case(material: Material, root: Path, random: Random) -> list[str]:
    """An interrupted run whose job was changed."""
    found = material.work[random.choice(("linear", "trees"))]
    work, job = _work(found, root), json.loads(found["job.json"])
    job["job"]["paths"] = [str(root / "rows.csv")]
    if random.random() < 0.8:
        job = changed(job, random, random.randint(1, 3))
        (work / "job.json").write_bytes(as_json(_short(job), random))
    else:
        data = damaged(json.dumps(job, indent=1).encode(), random)
        (work / "job.json").write_bytes(data if _is_short(data) else b"{}")
    (root / "rows.csv").write_bytes(material.data["csv"])
    return ["fit", "--resume", "--out", str(root / "run")]


def _short(job: object) -> object:
    """The job with numbers that end soon: to train for long because someone asked for it is no fault."""
    options = job.get("job") if isinstance(job, dict) else None
    options = options.get("options") if isinstance(options, dict) else None
    if isinstance(options, dict):
        for name, most in MOST.items():
            if isinstance(options.get(name), (int, float)) and not options[name] <= most:
                options[name] = most
    return job


def _is_short(data: bytes) -> bool:
    try:
        job = json.loads(data)
    except (ValueError, RecursionError):
        return True
    return _short(json.loads(data)) == job


def checkpoint_case(material: Material, root: Path, random: Random) -> list[str]:
    """An interrupted run whose checkpoints were changed, often with the digest that they should have."""
    found = material.work[random.choice(("linear", "trees"))]
    work, job = _work(found, root), json.loads(found["job.json"])
    job["job"]["paths"] = [str(root / "rows.csv")]
    (work / "job.json").write_text(json.dumps(job))
    (root / "rows.csv").write_bytes(material.data["csv"])
    names = [name for name in found if name.endswith(".safetensors")]
    for name in random.sample(names, random.randint(1, len(names))):
        data = found[name]
        (work / name).write_bytes(_resigned(data, random) if random.random() < 0.7 else tensors(data, random))
    if random.random() < 0.2:
        _block(work / random.choice([*names, "lock", "job.json", "train.rows"]), root, random)
    return ["fit", "--resume", "--out", str(root / "run")]


def _resigned(data: bytes, random: Random) -> bytes:
    """Facts or numbers of a checkpoint changed, with a digest that fits them."""
    import torch
    from safetensors.torch import load, save

    from aimfor.cli._checkpoint import _digest

    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    facts, found = json.loads(header["__metadata__"]["facts"]), load(data)
    if random.random() < 0.7:
        facts = changed(facts, random, random.randint(1, 3))
    else:
        name = random.choice(list(found))
        tensor = found[name]
        found[name] = random.choice(
            (
                tensor[:0],
                tensor.double(),
                tensor * float("nan"),
                torch.zeros(3),
                tensor.repeat(2, *[1] * (tensor.dim() - 1)),
            )
            if tensor.dim()
            else (torch.zeros(3), tensor * float("nan"), tensor.double() * 1e300)
        ).contiguous()
        if random.random() < 0.2:
            del found[name]
    text = json.dumps(facts)
    return save(found, {"facts": text, "sha256": _digest(text, found)})


def _work(found: dict[str, bytes], root: Path) -> Path:
    work = root / "run" / ".work"
    work.mkdir(parents=True)
    for name, data in found.items():
        (work / name).write_bytes(data)
    return work


CASES = {"data": data_case, "folders": folder_case, "jobs": job_case, "checkpoints": checkpoint_case}
