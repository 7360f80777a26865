"""The options of the commands, and those that several share."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from aimfor.cli._output import number_or_auto, told_in_one_sentence
from aimfor.tables import as_path

# What `aimfor --help` does not need is imported where it is used: torch alone takes seconds.

Data = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="DATA...",
        help="Files, a folder or s3://...: CSV, TSV, JSON Lines, Parquet, Feather, Excel, LIBSVM, NPZ; or a database.",
    ),
]
Labels = Annotated[
    list[str] | None,
    typer.Option("--label", help="Column to predict. Repeat it for several, or name one column of lists."),
]
AimText = Annotated[str, typer.Option("--aim", help='Such as "recall@precision>=0.9", "aucpr", "f1", "tpr@fpr<=0.01".')]
Positive = Annotated[
    str | None, typer.Option(help="Value of the label that counts as positive; otherwise 1, true, or the rarer of two.")
]
Weight = Annotated[str | None, typer.Option(help="Column of row weights.")]
Group = Annotated[str | None, typer.Option(help="Column of groups that stay together when rows are split.")]
Time = Annotated[str | None, typer.Option(help="Column of times: the latest rows measure, those before them choose.")]
Numeric = Annotated[list[str] | None, typer.Option(help="Column to read as numbers. Other cells count as missing.")]
Categorical = Annotated[list[str] | None, typer.Option(help="Column to read as categories.")]
Drop = Annotated[list[str] | None, typer.Option(help="Column to leave out.")]
Memory = Annotated[int, typer.Option(min=1, help="Megabytes of features held in memory; more go to disk.")]
Validation = Annotated[float, typer.Option(min=0, max=0.9, help="Share of the rows that choose model and threshold.")]
Test = Annotated[float, typer.Option(min=0, max=0.9, help="Share of the rows that only measure.")]
Model = Annotated[str, typer.Option(help='"auto" for the best kind or an average, "trees", "linear" or "mlp".')]
Budget = Annotated[float | None, typer.Option(min=0, help="Seconds after which training stops with the best so far.")]
Hidden = Annotated[
    list[int] | None,
    typer.Option(min=1, help="Width of a hidden layer of the mlp. Repeat it for more layers."),
]
Surrogate = Annotated[
    str,
    typer.Option(
        help='"auto" tries several and log-loss. Or one of them: "hinge", "log", "log_loss", ... '
        "With one, --model auto means linear, and trees refuse it."
    ),
]
Constraint = Annotated[
    str,
    typer.Option(
        help='"surrogate" or "exact" rates, for a single surrogate. '
        "By default `aimfor.Loss` takes exact ones, except over areas."
    ),
]
Solver = Annotated[str, typer.Option(help='"sgd", or "lp" or "search" for the exact optimum of small linear problems.')]
Restarts = Annotated[int, typer.Option(min=0, help="Candidates that start from scratch, for each recipe.")]
Confidence = Annotated[
    float | None, typer.Option(help="Probability, such as 0.95, that the constraint holds on new data.")
]
Calibrate = Annotated[bool, typer.Option("--calibrate", help="Fit probabilities, for predict_proba.")]
Steps = Annotated[int, typer.Option(min=1, help="Batches that each stage trains for.")]
BatchSize = Annotated[str, typer.Option(help='Rows of a batch, or "auto".')]
LearningRate = Annotated[str, typer.Option(help='First learning rate of Adam; a number or "auto".')]
WeightDecay = Annotated[str, typer.Option(help='A number, or "auto" to try several.')]
Patience = Annotated[int, typer.Option(min=1, help="Stop a stage after this many evaluations without improvement.")]
Device = Annotated[str, typer.Option(help="Where training runs.")]
Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Random seed.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")]
Sql = Annotated[
    str | None,
    typer.Option("--sql", help="Query whose rows are the data. DATA is then a database, such as sqlite:///rows.db."),
]
Separator = Annotated[str | None, typer.Option("--sep", help="Separator of cells; detected by default.")]
Encoding = Annotated[str | None, typer.Option(help="Encoding of text files; detected by default.")]
Missing = Annotated[list[str] | None, typer.Option("--na", help="Text that means a missing value, such as -999.")]
By = Annotated[str | None, typer.Option(help="Column whose values are also measured one by one.")]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", parser=as_path, help="Model folder that `aimfor fit` wrote.")]


# long: every option of the command is an argument of its own.
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
    model: Model = "auto",
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
    budget: Budget = None,
    seed: Seed = 0,
    memory: Memory = 256,
    sql: Sql = None,
    separator: Separator = None,
    encoding: Encoding = None,
    missing: Missing = None,
) -> Any:
    """The `Job` that the options of `fit` and `compare` ask for."""
    from aimfor.cli._job import Job
    from aimfor.tables import is_database, is_remote

    for name, value, most in (("restarts", restarts, 1000), *(("hidden", width, 100_000) for width in hidden or ())):
        if value > most:
            raise ValueError(f"--{name} must be at most {most:,}, got {value:,}")
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
        "budget": budget,
    }
    if hidden:
        _check_has_layers(model, surrogate, solver)
        options["hidden_layer_sizes"] = tuple(hidden)
    return Job(
        paths=tuple(
            path if is_database(path) or is_remote(path) else str(Path(path).absolute()) for path in data or ()
        ),
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
        sql=sql,
        separator=separator,
        encoding=encoding,
        missing=tuple(missing or ()),
    )


def _check_has_layers(model: str, surrogate: str, solver: str) -> None:
    """Refuse hidden layers for a model that has none."""
    if model in ("linear", "trees"):
        raise ValueError(f"--hidden is for --model mlp or auto, got {model!r}")
    if model == "auto" and solver != "sgd":
        raise ValueError(f"--hidden is for --model mlp, and --solver {solver} fits a linear one: leave it out")
    if model == "auto" and surrogate != "auto":
        raise ValueError(f"--hidden with --surrogate {surrogate} needs --model mlp: auto means linear there")


def with_job(command: Callable[..., None]) -> Callable[..., None]:
    """Put the options of a job before those of a command whose first arguments are the job and the names asked for.

    These are the options that the user wrote, such as "--aim".
    """
    shared = inspect.signature(job_options, eval_str=True)
    own = list(inspect.signature(command, eval_str=True).parameters.values())[2:]

    @functools.wraps(command)
    def run(context: typer.Context, **given: Any) -> None:
        with told_in_one_sentence():
            job = job_options(**{name: given.pop(name) for name in shared.parameters})
            command(job, _asked(context), **given)

    first = inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    parameters = [first, *shared.parameters.values(), *own]
    run.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportAttributeAccessIssue]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run


def _asked(context: typer.Context) -> list[str]:
    sources = {one: context.get_parameter_source(one.name or "") for one in context.command.params}
    return [one.opts[0] for one, source in sources.items() if source is not None and source.name == "COMMANDLINE"]
