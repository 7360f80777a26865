"""Tell: the commands of the program, `aimfor fit` and the others."""

from __future__ import annotations

import functools
import inspect
import json
import shlex
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer

EXIT_CODES = "Exit codes: 0 done, 1 an error told in one sentence, 2 wrong usage, 3 promise not held (--strict)."
MISSED = 3
MOST_TOLD = 20  # labels, in text; all are in --json

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

# What `aimfor --help` does not need is imported where it is used: torch alone takes seconds.

Data = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="DATA...", help="CSV, TSV (also .gz), Parquet, Feather, LIBSVM or NPZ; files or a folder of them."
    ),
]
Labels = Annotated[
    list[str] | None,
    typer.Option("--label", help="Column to predict; given again for several, or one column of lists."),
]
AimText = Annotated[str, typer.Option("--aim", help='Such as "recall@precision>=0.9", "aucpr", "f1", "tpr@fpr<=0.01".')]
Positive = Annotated[
    str | None, typer.Option(help="Value of the label that counts as positive; the second in order otherwise.")
]
Weight = Annotated[str | None, typer.Option(help="Column of row weights.")]
Group = Annotated[str | None, typer.Option(help="Column of groups that stay together when rows are split.")]
Time = Annotated[str | None, typer.Option(help="Column of times: the latest rows measure, those before them choose.")]
Numeric = Annotated[list[str] | None, typer.Option(help="Column to read as numbers.")]
Categorical = Annotated[list[str] | None, typer.Option(help="Column to read as categories.")]
Drop = Annotated[list[str] | None, typer.Option(help="Column to leave out.")]
Memory = Annotated[int, typer.Option(min=1, help="Megabytes of features held in memory; more go to disk.")]
Validation = Annotated[float, typer.Option(min=0, max=0.9, help="Share of the rows that choose model and threshold.")]
Test = Annotated[float, typer.Option(min=0, max=0.9, help="Share of the rows that only measure.")]
Model = Annotated[str, typer.Option(help='"linear" or "mlp".')]
Hidden = Annotated[
    list[int] | None, typer.Option(min=1, help="Width of a hidden layer of the mlp; given again for more.")
]
Surrogate = Annotated[str, typer.Option(help='"auto" tries several and log-loss; or one of them: "hinge", "log", ...')]
Constraint = Annotated[str, typer.Option(help='"surrogate" or "exact", for a single surrogate.')]
Solver = Annotated[str, typer.Option(help='"sgd"; "lp" or "search" for small linear problems, exactly.')]
Restarts = Annotated[int, typer.Option(min=0, help="Candidates started from scratch, for each recipe.")]
Confidence = Annotated[
    float | None, typer.Option(help="Chance, such as 0.95, that the constraint holds on new data; none unless asked.")
]
Calibrate = Annotated[bool, typer.Option("--calibrate", help="Fit probabilities, for predict_proba.")]
Steps = Annotated[int, typer.Option(min=1, help="Batches that each stage trains for.")]
BatchSize = Annotated[str, typer.Option(help='Rows of a batch, or "auto".')]
LearningRate = Annotated[str, typer.Option(help='Of Adam, at the start; a number, or "auto".')]
WeightDecay = Annotated[str, typer.Option(help='A number, or "auto" to try several.')]
Patience = Annotated[int, typer.Option(min=1, help="Looks at the validation rows without gain that end a stage.")]
Device = Annotated[str, typer.Option(help="Where training runs.")]
Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Of everything random.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="Model folder that `aimfor fit` wrote.")]


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"aimfor {version('aimfor')}")
        raise typer.Exit


@app.callback(help=f"Train for the number you are judged by.\n\n{EXIT_CODES}")
def aimfor(
    show: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """What every command shares."""


def job_options(
    data: Data = None,
    label: Labels = None,
    aim: AimText = "aucpr",
    positive: Positive = None,
    weight: Weight = None,
    group: Group = None,
    time: Time = None,
    numeric: Numeric = None,
    categorical: Categorical = None,
    drop: Drop = None,
    validation_fraction: Validation = 0.2,
    test_fraction: Test = 0.2,
    model: Model = "linear",
    hidden: Hidden = None,
    surrogate: Surrogate = "auto",
    constraint: Constraint = "surrogate",
    solver: Solver = "sgd",
    restarts: Restarts = 1,
    confidence: Confidence = None,
    calibrate: Calibrate = False,
    steps: Steps = 2000,
    batch_size: BatchSize = "auto",
    learning_rate: LearningRate = "auto",
    weight_decay: WeightDecay = "auto",
    patience: Patience = 4,
    device: Device = "cpu",
    seed: Seed = 0,
    memory: Memory = 256,
) -> Any:
    """The `Job` that the options of `fit` and `compare` ask for; None without data."""
    from aimfor.program.jobs import Job

    if not data:
        return None
    options: dict[str, Any] = {
        "model": model,
        "surrogate": surrogate,
        "constraint": constraint,
        "solver": solver,
        "restarts": restarts,
        "confidence": confidence,
        "calibrate": calibrate,
        "steps": steps,
        "batch_size": _number("batch-size", batch_size, int),
        "learning_rate": _number("learning-rate", learning_rate, float),
        "weight_decay": _number("weight-decay", weight_decay, float),
        "patience": patience,
        "device": device,
    }
    if hidden:
        options["hidden_layer_sizes"] = tuple(hidden)
    return Job(
        paths=tuple(str(Path(path).absolute()) for path in data),
        labels=tuple(label or ()),
        aim=aim,
        positive=positive,
        weight=weight,
        group=group,
        time=time,
        numeric=tuple(numeric or ()),
        categorical=tuple(categorical or ()),
        drop=tuple(drop or ()),
        validation_fraction=validation_fraction,
        test_fraction=test_fraction,
        seed=seed,
        memory=memory * 2**20,
        options=options,
    )


def with_job(command: Callable[..., None]) -> Callable[..., None]:
    """Put the options of a job before those of a command whose first argument is the job."""
    shared = inspect.signature(job_options, eval_str=True)
    own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        with told_in_one_sentence():
            job = job_options(**{name: given.pop(name) for name in shared.parameters})
            command(job, **given)

    parameters = [*shared.parameters.values(), *own]
    run.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportAttributeAccessIssue]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run


@app.command(no_args_is_help=True)
@with_job
def fit(
    job: Any,
    out: Annotated[Path, typer.Option(help="Model folder; an earlier model stays until the new one is whole.")] = Path(
        "run"
    ),
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the interrupted run in --out.")] = False,
    as_json: Json = False,
) -> None:
    """Train a model for an aim, choose its threshold, and write a model folder with a page to look at.

    \b
    aimfor fit transactions.parquet --label is_fraud --aim "recall@precision>=0.9" --out run/
    aimfor fit shards/ --label is_fraud --time booked_at --model mlp --confidence 0.95
    aimfor fit notes.csv --label urgent --label billing --aim f1
    aimfor fit --resume --out run/          # go on after an interruption

    Rows are split three ways: most train, some choose model and threshold, some only measure. Log-loss is always among
    the candidates, and kept unless another is better by more than chance. Ctrl-C stops with the best model so far.
    """
    if job is None and resume:
        from aimfor.program.fitting import WORK
        from aimfor.program.jobs import Job

        job = Job.read(out / WORK)
    fit_and_tell(_given(job), out, resume, as_json)


def fit_and_tell(job: Any, out: Path, resume: bool = False, as_json: bool = False) -> None:
    """Fit, and print what came of it."""
    from aimfor.program import fitting

    with _progress(job.aim) as shown:
        facts = fitting.fit(job, out, command=_command(), resume=resume, shown=shown)
    page = out / "report.html"
    if as_json:
        _print_json({"out": str(out), "page": str(page), **_short(facts)})
        return
    typer.echo(facts["data"]["said"])
    _tell(facts["labels"])
    if facts["stopped"]:
        typer.echo(f"stopped by hand with the best so far; aimfor fit --resume --out {out} goes on", err=True)
    typer.echo(f"{page}: the page to look at")


@app.command(no_args_is_help=True)
def score(
    run: RunFolder,
    data: Data,
    out: Annotated[Path, typer.Option(help="A .csv, .tsv, .parquet or .feather file.")] = Path("scored.csv"),
    as_json: Json = False,
) -> None:
    """Write score and decision of every row, in order.

    \b
    aimfor score run/ new.csv --out scored.csv

    A category that training never saw counts as none of those it saw; a missing value as training treated it; a missing
    column is an error. Without an operating point the decision stays empty.
    """
    from aimfor.program.scoring import score as write_scores

    with told_in_one_sentence():
        rows = write_scores(run, data or [], out)
        if as_json:
            _print_json({"out": str(out), "rows": rows})
        else:
            typer.echo(f"{out}: {rows:,} rows")


@app.command(no_args_is_help=True)
def evaluate(
    run: RunFolder,
    data: Data,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 3 where the promise was not held.")] = False,
    as_json: Json = False,
) -> None:
    """Measure a model on labelled rows it has not seen: exact metrics with intervals, and whether the promise held.

    \b
    aimfor evaluate run/ holdout.csv
    aimfor evaluate run/ holdout.csv --strict --json
    """
    from aimfor.program.scoring import evaluate as measure

    with told_in_one_sentence():
        found = measure(run, data or [])
        if as_json:
            _print_json({"labels": [_short_label(measured) for measured in found]})
        else:
            _tell(found)
    if strict and any(measured["verdict"] not in ("met", "no constraint") for measured in found):
        raise typer.Exit(MISSED)


@app.command(no_args_is_help=True)
@with_job
def compare(
    job: Any,
    splits: Annotated[int, typer.Option(min=1, help="How many times the rows are split anew.")] = 3,
    as_json: Json = False,
) -> None:
    """Log-loss, balanced log-loss and aimfor: same model, same rows, same budget, measured on rows none of them saw.

    \b
    aimfor compare transactions.parquet --label is_fraud --aim "recall@precision>=0.9"
    """
    from aimfor.program import fitting

    job = _given(job)
    with tempfile.TemporaryDirectory(prefix="aimfor-") as folder, _progress(job.aim) as shown:
        found = fitting.compare(job, Path(folder), splits=splits, shown=shown)
    if as_json:
        short = [{"split": one["split"], "method": one["method"], **_short_label(one)} for one in found]
        _print_json({"aim": job.aim, "measured": short})
    else:
        _print_comparison(found)


@app.command(no_args_is_help=True)
def report(run: RunFolder) -> None:
    """Make the page of a model folder again.

    \b
    aimfor report run/
    """
    from aimfor.program.stories import write_page

    with told_in_one_sentence():
        typer.echo(f"{write_page(run)}: the page to look at")


@app.command(no_args_is_help=True)
def export(
    run: RunFolder,
    out: Annotated[Path, typer.Option(help="The .onnx file.")] = Path("model.onnx"),
) -> None:
    """Write preparation, network and threshold as one ONNX file.

    \b
    aimfor export run/ --out model.onnx
    """
    from aimfor.program.model_files import load_model
    from aimfor.program.onnx_export import export_onnx

    with told_in_one_sentence():
        if out.suffix != ".onnx":
            raise ValueError(f"out must end in .onnx, got {out}")
        model = load_model(run)
        export_onnx(model.classifier, model.preparation, out)
        typer.echo(f"{out}: written")


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for picture, tables and model; made when absent.")] = Path("demo"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of the data, the splits and the models.")] = 0,
) -> None:
    """Log-loss beside aimfor on two small problems, then fit and evaluate on a table; in about a minute."""
    import torch

    from aimfor.demo import run

    torch.set_num_threads(1)  # its batches are small: a second thread would cost more than it brings
    with told_in_one_sentence():
        run(out, seed)
        from aimfor.program.digits import AIM, write_tables
        from aimfor.program.jobs import Job

        known, unseen = write_tables(out, seed)
        model = out / "run"
        typer.echo(f"\naimfor fit {known} --label is_8 --aim '{AIM}' --model mlp --out {model}")
        fit_and_tell(Job((str(known),), ("is_8",), AIM, seed=seed, options={"model": "mlp"}), model)
        typer.echo(f"\naimfor evaluate {model} {unseen}")
        evaluate(model, [str(unseen)])


# What comes in and goes out


@contextmanager
def told_in_one_sentence() -> Iterator[None]:
    """Inside, what the user can mend is told in one sentence, warnings too, and ends the program with 1."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        typer.echo(f"warning: {message}", err=True)

    with warnings.catch_warnings():
        warnings.showwarning = show
        warnings.filterwarnings("default", category=UserWarning)
        try:
            yield
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            typer.echo(f"error: {where}{error.strerror or error}", err=True)
            raise typer.Exit(1) from error
        except (ValueError, ModuleNotFoundError) as error:
            typer.echo(f"error: {' '.join(str(error).split())}", err=True)
            raise typer.Exit(1) from error


def _given(job: Any) -> Any:
    if job is None:
        raise ValueError("DATA must name at least one file or folder, got none")
    return job


def _number(name: str, text: str, kind: type[int] | type[float]) -> float | str:
    if text == "auto":
        return text
    try:
        return kind(text)
    except ValueError:
        what = "whole number" if kind is int else "number"
        raise ValueError(f'{name} must be a {what} or "auto", got {text!r}') from None


@contextmanager
def _progress(name: str) -> Iterator[Any]:
    """Progress on a terminal, quiet in a pipe."""
    from aimfor.progress import Progress
    from aimfor.supervision import Supervision

    if not sys.stderr.isatty():
        yield Supervision()
        return
    with Progress(name) as shown:
        yield shown


def _command() -> str:
    return shlex.join(["aimfor", *sys.argv[1:]])


def _print_json(facts: dict[str, Any]) -> None:
    typer.echo(json.dumps(facts, indent=1, allow_nan=False))


def _short(facts: dict[str, Any]) -> dict[str, Any]:
    labels = [_short_label(measured) for measured in facts["labels"]]
    return {**{name: facts[name] for name in ("aim", "confidence", "stopped", "candidates")}, "labels": labels}


def _short_label(measured: dict[str, Any]) -> dict[str, Any]:
    names = (
        "name",
        "positive",
        "on",
        "rows",
        "positives",
        "verdict",
        "sentence",
        "metric",
        "operating",
        "constraint",
        "level",
    )
    return {name: measured[name] for name in names}


def _tell(labels: list[dict[str, Any]]) -> None:
    """What was measured: all of one label or a few, of many how they ended."""
    if len(labels) > MOST_TOLD:
        for verdict, count in Counter(measured["verdict"] for measured in labels).most_common():
            typer.echo(f"{verdict}: {count} of {len(labels)} labels")
        return
    for measured in labels:
        metric = measured["metric"]
        typer.echo((f"{measured['name']}: " if len(labels) > 1 else "") + measured["sentence"])
        counted = f"{measured['rows']:,}, {measured['positives']:,} of them positive"
        typer.echo(f"Measured on {measured['on']}: {counted} ({measured['name']} = {measured['positive']}).")
        if metric["ours"] is not None:
            beside = "" if metric["baseline"] is None else f", log-loss {metric['baseline']:.4f}"
            typer.echo(f"At the best threshold of these very rows: {metric['name']} {metric['ours']:.4f}{beside}.")


def _print_comparison(found: list[dict[str, Any]]) -> None:
    """One row per method: means over labels, then mean and standard error over splits."""
    import numpy as np
    from rich.console import Console
    from rich.table import Table

    splits = sorted({one["split"] for one in found})
    rates = ("precision", "recall", "fpr")
    table = Table("method", "metric", *(f"{rate} at threshold" for rate in rates), "constraint held")
    table.title = f"{found[0]['metric']['name']}, on {found[0]['on']}, {found[0]['rows']:,} a split"
    for method in dict.fromkeys(one["method"] for one in found):
        own = [[one for one in found if (one["method"], one["split"]) == (method, split)] for split in splits]

        def shown(values: list[list[float | None]]) -> str:
            means = [np.mean(known) for one in values if (known := [value for value in one if value is not None])]
            if not means:
                return "-"
            error = f" +- {np.std(means, ddof=1) / np.sqrt(len(means)):.4f}" if len(means) > 1 else ""
            return f"{np.mean(means):.4f}{error}"

        held = [one["constraint"] and one["constraint"]["held"] for group in own for one in group]
        known = [one for one in held if one is not None]
        table.add_row(
            method,
            shown([[one["metric"]["ours"] for one in group] for group in own]),
            *(shown([[one["operating"][rate] for one in group] for group in own]) for rate in rates),
            f"{sum(known)} of {len(known)}" if known else "-",
        )
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(table)
    if len(splits) > 1:
        console.print(f"{len(splits)} splits; +- is the standard error over splits.")
