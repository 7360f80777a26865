"""Tell: the commands of the program, `aimfor fit` and the others."""

from __future__ import annotations

import functools
import inspect
import shlex
import sys
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer

from aimfor.cli._output import (
    EXIT_CODES,
    MISSED,
    number_or_auto,
    print_comparison,
    print_json,
    progress_of,
    short,
    short_label,
    tell,
    told_in_one_sentence,
)

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
    from aimfor.cli._job import Job

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
        "batch_size": number_or_auto("batch-size", batch_size, int),
        "learning_rate": number_or_auto("learning-rate", learning_rate, float),
        "weight_decay": number_or_auto("weight-decay", weight_decay, float),
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
        from aimfor.cli._job import Job
        from aimfor.cli._work_folder import WORK

        job = Job.read(out / WORK)
    fit_and_tell(_given(job), out, resume, as_json)


def fit_and_tell(job: Any, out: Path, resume: bool = False, as_json: bool = False) -> None:
    """Fit, and print what came of it."""
    from aimfor.cli._fit import fit as fit_job

    with progress_of(job.aim) as shown:
        facts = fit_job(job, out, command=_command(), resume=resume, shown=shown)
    page = out / "report.html"
    if as_json:
        print_json({"out": str(out), "page": str(page), **short(facts)})
        return
    typer.echo(facts["data"]["said"])
    tell(facts["labels"])
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
    from aimfor.cli._score import score as write_scores

    with told_in_one_sentence():
        rows = write_scores(run, data or [], out)
        if as_json:
            print_json({"out": str(out), "rows": rows})
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
    from aimfor.cli._score import evaluate as measure

    with told_in_one_sentence():
        found = measure(run, data or [])
        if as_json:
            print_json({"labels": [short_label(measured) for measured in found]})
        else:
            tell(found)
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
    from aimfor.cli._compare import compare as compare_methods

    job = _given(job)
    with tempfile.TemporaryDirectory(prefix="aimfor-") as folder, progress_of(job.aim) as shown:
        found = compare_methods(job, Path(folder), splits=splits, shown=shown)
    if as_json:
        short = [{"split": one["split"], "method": one["method"], **short_label(one)} for one in found]
        print_json({"aim": job.aim, "measured": short})
    else:
        print_comparison(found)


@app.command(no_args_is_help=True)
def report(run: RunFolder) -> None:
    """Make the page of a model folder again.

    \b
    aimfor report run/
    """
    from aimfor.report import write_page

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
    from aimfor.model_folder import export_onnx, load_model

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

    from aimfor.cli._demo import run

    torch.set_num_threads(1)  # its batches are small: a second thread would cost more than it brings
    with told_in_one_sentence():
        run(out, seed)
        from aimfor.cli._digits import AIM, write_tables
        from aimfor.cli._job import Job

        known, unseen = write_tables(out, seed)
        model = out / "run"
        typer.echo(f"\naimfor fit {known} --label is_8 --aim '{AIM}' --model mlp --out {model}")
        fit_and_tell(Job((str(known),), ("is_8",), AIM, seed=seed, options={"model": "mlp"}), model)
        typer.echo(f"\naimfor evaluate {model} {unseen}")
        evaluate(model, [str(unseen)])


def _given(job: Any) -> Any:
    if job is None:
        raise ValueError("DATA must name at least one file or folder, got none")
    return job


def _command() -> str:
    return shlex.join(["aimfor", *sys.argv[1:]])
