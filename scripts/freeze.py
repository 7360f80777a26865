"""Write the frozen fixtures of tests/contract/frozen: `python scripts/freeze.py FOLDER`.

The committed fixtures come from version 0.1.0.dev0, before its modules moved into packages. They show that files of
that version still load and give the same results, so never replace them with files of a later version. To freeze
another version, run this script on that version and give it another folder.

`python scripts/freeze.py FOLDER --refits tests/contract/frozen/runs` writes what the same fits give in this version.
Run it only where thresholds of new fits change on purpose, and say so in CHANGELOG.md.

The script uses only the public names and the installed command `aimfor`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from safetensors.torch import save_file

import aimfor

AIMS = [
    "recall@precision>=0.9",
    "recall@precision>=0.8; band=2; num_anchors=3",
    "precision@recall>=0.95",
    "tpr@fpr<=0.1",
    "fpr@tpr>=0.9",
    "aucpr; num_anchors=4",
    "aucpr[precision>=0.8]; num_anchors=3",
    "aucpr[recall>=0.5]; num_anchors=3",
    "aucroc; num_anchors=4",
    "aucroc[0.01<=fpr<=0.1]; num_anchors=3; spacing=geometric",
    "f1",
    "f2",
]
OPTIONS: list[tuple[str, dict[str, Any]]] = [
    ("recall@precision>=0.9", {"surrogate": "ramp", "warmup": 5}),
    ("precision@recall>=0.95", {"surrogate": "sigmoid", "warmup": 5}),
    ("aucpr; num_anchors=4", {"surrogate": "log"}),
    ("aucroc; num_anchors=4", {"surrogate": "smooth_hinge", "priors": [0.1, 0.2, 0.3]}),
    ("f1", {"constraint": "exact"}),
    ("tpr@fpr<=0.1", {"constraint": "exact", "dual_rate": 0.05, "threshold_rate": 0.2}),
    ("recall@precision>=0.9", {"multiclass": True}),
]
BATCHES, ROWS, LABELS = 25, 64, 3
COMMANDS = ["", "fit", "score", "evaluate", "compare", "report", "export", "demo", "watch"]
SMALL = ["--steps", "40", "--seed", "3"]
LINEAR = ["fit", "train.csv", "--label", "fraud", "--aim", "recall@precision>=0.7"]
MLP = ["fit", "train.csv", "--label", "late", "--label", "refund", "--aim", "tpr@fpr<=0.2"]
FITS = {
    "linear": [*LINEAR, "--calibrate", "--drop", "late", "--drop", "refund"],
    "mlp": [*MLP, "--drop", "fraud", "--model", "mlp", "--hidden", "6", "--surrogate", "hinge"],
}


def main() -> None:
    """Write all fixtures into a new folder."""
    parser = argparse.ArgumentParser(description="Write the frozen fixtures of the contract tests.")
    parser.add_argument("folder", type=Path, help="a new folder for the fixtures")
    parser.add_argument("--refits", type=Path, help="frozen runs whose fits are repeated; nothing else is written")
    arguments = parser.parse_args()
    folder = arguments.folder
    torch.set_num_threads(1)
    if arguments.refits is not None:
        freeze_refits(folder, arguments.refits)
        return
    (folder / "losses").mkdir(parents=True)
    for index, (aim, options) in enumerate([*((aim, {}) for aim in AIMS), *OPTIONS]):
        freeze_loss(folder / "losses" / f"{index:02}.safetensors", aim, options, seed=index)
    freeze_helps(folder / "help")
    freeze_runs(folder / "runs")
    freeze_forests(folder / "forests")


def freeze_loss(path: Path, aim: str, options: dict[str, Any], seed: int) -> None:
    """Train a loss on generated batches, then store its state, one more batch and the results on that batch."""
    generator = torch.Generator().manual_seed(seed)
    loss = aimfor.Loss(aim, num_labels=LABELS, **options)
    for _ in range(BATCHES):
        scores, labels, weights, mask = batch(generator, loss.multiclass)
        loss(scores, labels, weights=weights, mask=mask)
    tensors = {f"state_dict/{name}": tensor.clone() for name, tensor in loss.state_dict().items()}
    scores, labels, weights, mask = batch(generator, loss.multiclass)
    tensors |= {
        f"batch/{name}": part for name, part in zip(("labels", "weights", "mask"), (labels, weights, mask), strict=True)
    }
    tensors["batch/scores"] = scores.detach().clone()
    loss.eval()
    tensors["result/value_in_eval"] = loss(scores, labels, weights=weights, mask=mask).detach()
    loss.train()
    value = loss(scores, labels, weights=weights, mask=mask)
    value.backward()
    tensors["result/value"], tensors["result/gradient"] = value.detach(), scores.grad
    tensors |= {f"diagnostics/{name}": part for name, part in loss.diagnostics()._asdict().items()}
    said = {"loss": json.dumps({"aim": aim, "num_labels": LABELS, **options})}
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path, metadata=said)


def batch(generator: torch.Generator, multiclass: bool) -> tuple[torch.Tensor, ...]:
    """Scores, labels, weights and mask of one batch; some labels are unknown."""
    scores = torch.randn(ROWS, LABELS, generator=generator)
    weights = torch.rand(ROWS, generator=generator) + 0.5
    if multiclass:
        labels = (scores + torch.randn(ROWS, LABELS, generator=generator)).argmax(1)
        mask = torch.rand(ROWS, generator=generator) < 0.9
    else:
        noise = torch.randn(ROWS, LABELS, generator=generator)
        labels = (scores + noise > torch.tensor([0.5, 1.0, 1.5])).long()
        mask = torch.rand(ROWS, LABELS, generator=generator) < 0.9
    return scores.requires_grad_(), labels, weights, mask


def freeze_helps(folder: Path) -> None:
    """Store the help text of every command."""
    folder.mkdir()
    for command in COMMANDS:
        (folder / f"{command or 'aimfor'}.txt").write_text(run(*command.split(), "--help", where=folder))


def freeze_runs(folder: Path) -> None:
    """Fit two models, and store what every command gives on new rows."""
    folder.mkdir()
    table = rows(700, seed=0)
    table[:500].to_csv(folder / "train.csv", index=False)
    table[500:].to_csv(folder / "new.csv", index=False)
    outputs: dict[str, Any] = {}
    for name, arguments in FITS.items():
        scored = f"{name}-scored.csv"
        outputs |= {
            f"{name}-{command[0]}": {"command": command, "output": json.loads(run(*command, where=folder))}
            for command in (
                [*arguments, *SMALL, "--out", name, "--json"],
                ["score", name, "new.csv", "--out", scored, "--json"],
                ["evaluate", name, "new.csv", "--json"],
            )
        }
        freeze_estimator(folder / name, pd.read_csv(folder / "new.csv"), folder / f"{name}-estimator.csv")
    compared = ["compare", *LINEAR[1:], "--splits", "2", *SMALL, "--json"]
    outputs["compare"] = {"command": compared, "output": json.loads(run(*compared, where=folder))}
    (folder / "outputs.json").write_text(json.dumps(outputs, indent=1) + "\n")


def freeze_refits(folder: Path, runs: Path) -> None:
    """Repeat the fits and the comparison of frozen runs, and store what depends on their thresholds."""
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as place:
        work, frozen, outputs = Path(place), json.loads((runs / "outputs.json").read_text()), {}
        for name in ("train.csv", "new.csv"):
            shutil.copy(runs / name, work / name)
        for name in (*(f"{name}-fit" for name in FITS), "compare"):
            command = frozen[name]["command"]
            linear = [] if "--model" in command else ["--model", "linear"]
            outputs[name] = json.loads(run(*command, *linear, where=work))
        for name in FITS:
            run("score", name, "new.csv", "--out", f"{name}-scored.csv", where=work)
            shutil.copy(work / f"{name}-scored.csv", folder / f"{name}-scored.csv")
            shutil.copy(work / name / "metrics.json", folder / f"{name}-metrics.json")
    (folder / "outputs.json").write_text(json.dumps(outputs, indent=1) + "\n")


def freeze_forests(folder: Path) -> None:
    """Fit trees of the columns of a table and trees of features, and store what they give on new rows.

    These fixtures come from version 0.1.0.
    """
    folder.mkdir()
    table = rows(700, seed=0)
    table[:500].to_csv(folder / "train.csv", index=False)
    table[500:].to_csv(folder / "new.csv", index=False)
    run(*LINEAR, "--drop", "late", "--drop", "refund", *SMALL, "--out", "columns", "--json", where=folder)
    freeze_estimator(folder / "columns", pd.read_csv(folder / "new.csv"), folder / "columns-estimator.csv")
    numbers = pd.read_csv(folder / "new.csv")[["amount", "age"]]
    model = aimfor.Classifier("f1", model="trees", budget=2, random_state=0)
    aimfor.save(folder / "features", model.fit(table[["amount", "age"]][:500], table["fraud"][:500] == "yes"))
    given = {"decision_function 0": model.decision_function(numbers), "predict 0": model.predict(numbers)}
    pd.DataFrame(given).to_csv(folder / "features-estimator.csv", index=False)
    for other in [folder / "train.csv", *(folder / "columns").iterdir()]:
        if not other.name.startswith("model."):
            other.unlink()


def freeze_estimator(model: Path, table: pd.DataFrame, out: Path) -> None:
    """Store what the loaded estimator gives on new rows."""
    estimator: Any = aimfor.load(model)
    given = {"decision_function": estimator.decision_function(table), "predict": estimator.predict(table)}
    if estimator[-1].calibrate:
        given["predict_proba"] = estimator.predict_proba(table)
    columns = {name: np.asarray(values).reshape(len(table), -1) for name, values in given.items()}
    pd.DataFrame(
        {f"{name} {k}": values[:, k] for name, values in columns.items() for k in range(values.shape[1])}
    ).to_csv(out, index=False)


def rows(count: int, seed: int) -> pd.DataFrame:
    """A table of numbers, categories and missing values, with two labels."""
    random = np.random.default_rng(seed)
    amount, age = random.normal(100, 30, count).round(2), random.integers(18, 90, count)
    channel = random.choice(["web", "shop", "phone"], count, p=[0.5, 0.3, 0.2])
    town = random.choice(["Bonn", "Rome", "Ürümqi", 'a "b", c'], count)
    signal = (amount - 100) / 30 + (channel == "web") - 0.02 * (age - 50) + random.normal(0, 0.7, count)
    table = pd.DataFrame(
        {
            "id": [f"t{index}" for index in range(count)],
            "amount": np.where(random.random(count) < 0.1, np.nan, amount),
            "age": age,
            "channel": channel,
            "town": pd.Series(town).mask(random.random(count) < 0.1),
            "fraud": np.where(signal > 1.6, "yes", "no"),
            "late": (signal + random.normal(0, 1, count) > 1.2).astype(int),
            "refund": (random.normal(0, 1, count) - signal > 1).astype(int),
        }
    )
    table.loc[count - 3 :, "channel"] = "new"  # a category that training never saw
    return table


def run(*arguments: str, where: Path) -> str:
    """What the installed command prints."""
    command = shutil.which("aimfor", path=str(Path(sys.executable).parent))
    if command is None:
        raise SystemExit("the command aimfor is not installed beside this Python")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "80"}
    done = subprocess.run([command, *arguments], cwd=where, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"aimfor {' '.join(arguments)} failed: {done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
