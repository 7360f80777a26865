"""The commands: `aimfor fit` and the others."""

from __future__ import annotations

import dataclasses
import shlex
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer

from aimfor.cli._options import By, Data, Encoding, Json, Missing, RunFolder, Separator, Sql, with_job
from aimfor.cli._output import (
    DRIFTED,
    EXIT_CODES,
    INTERRUPTED,
    MISSED,
    cost_of,
    echo,
    print_comparison,
    print_json,
    progress_of,
    say,
    short,
    short_label,
    tell,
    tell_model,
    tell_watched,
    told_in_one_sentence,
    warn_of,
)
from aimfor.tables import as_path

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

# What `aimfor --help` does not need is imported where it is used: torch alone takes seconds.


def _show_version(asked: bool) -> None:
    if asked:
        echo(f"aimfor {version('aimfor')}")
        raise typer.Exit


@app.callback(help=f"Train for the number you are judged by.\n\n{EXIT_CODES}")
def aimfor(
    show: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """What every command shares."""


@app.command(no_args_is_help=True)
@with_job
def fit(
    job: Any,
    asked: list[str],
    out: Annotated[
        Path,
        typer.Option(
            metavar="PATH", parser=as_path, help="Model folder; an earlier model stays until the new one is whole."
        ),
    ] = Path("run"),
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the interrupted run in --out.")] = False,
    as_json: Json = False,
    by: By = None,
) -> None:
    """Train a model for an aim, choose its threshold, and write a model folder with a page to look at.

    \b
    aimfor fit transactions.parquet --label is_fraud --aim "recall@precision>=0.9" --out run/
    aimfor fit shards/ --label is_fraud --time booked_at --model mlp --confidence 0.95
    aimfor fit notes.csv --label urgent --label billing --aim f1
    aimfor fit --resume --out run/          # go on after an interruption
    torchrun --nproc-per-node=4 -m aimfor fit s3://bucket/rows/ --label is_fraud

    Rows are split three ways: most train, some choose model and threshold, some only measure. Log-loss is always among
    the candidates, and kept unless another is better by more than chance. Ctrl-C stops with the best model so far.
    """
    job = dataclasses.replace(job, by=by)
    if resume and not job.paths:
        from aimfor.cli._work_folder import WORK

        job = job.resumed(out / WORK, asked)
    _check_data(job)
    fit_and_tell(job, out, resume, as_json)


def fit_and_tell(job: Any, out: Path, resume: bool = False, as_json: bool = False) -> None:
    """Fit, and print what came of it."""
    from aimfor.cli._fit import fit as fit_job
    from aimfor.cli._ranks import restarted, torchrun_ranks
    from aimfor.cli._work_folder import has_checkpoint
    from aimfor.report import condition_of

    ranks_of_run = torchrun_ranks(lambda: has_checkpoint(out))
    with ranks_of_run as ranks, progress_of(job.aim, quiet=ranks.number > 0) as shown:
        resume = resume or restarted()
        facts = fit_job(job, out, command=_command(), resume=resume, shown=shown, ranks=ranks)
    if not facts:
        return
    page, data = out / "report.html", facts["data"]
    warn_of(data["warnings"])
    if as_json:
        warnings = {"warnings": data["warnings"], "choice": data["choice"], "without_label": data["without_label"]}
        print_json({"out": str(out), "page": str(page), **short(facts), **warnings})
    else:
        for line in (data["choice"], _without_label(data["without_label"]), data["said"]):
            if line:
                say(line)
        tell(facts["labels"])
        if facts["confidence"] is not None:
            say(f"The confidence: {condition_of(facts)}")
        tell_model(facts)
    if facts["budget_over"]:
        say("the budget was over before training was done: this is the best so far", err=True)
    if facts["stopped"]:
        more = f"; aimfor fit --resume --out {out} goes on" if has_checkpoint(out) else ""
        say(f"stopped by hand with the best so far{more}", err=True)
    if not as_json:
        say(f"{page}: the page to look at")
    if facts["stopped"]:
        raise typer.Exit(INTERRUPTED)


def _without_label(count: int) -> str:
    return f"{count:,} rows without a label were left out" if count else ""


@app.command(no_args_is_help=True)
def score(
    run: RunFolder,
    data: Data,
    out: Annotated[
        Path, typer.Option(metavar="PATH", parser=as_path, help="A .csv, .tsv, .parquet or .feather file.")
    ] = Path("scored.csv"),
    as_json: Json = False,
    ids: Annotated[list[str] | None, typer.Option("--id", help="Column to write beside the scores.")] = None,
    threshold: Annotated[float | None, typer.Option(help="Score to decide by, instead of the model's.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 4 where the rows drifted from training.")] = False,
    shard: Annotated[
        str | None, typer.Option(help="Such as 3/16: every 16th file from the 3rd on, each to a file in --out.")
    ] = None,
    sql: Sql = None,
    separator: Separator = None,
    encoding: Encoding = None,
    missing: Missing = None,
) -> None:
    """Write score and decision of every row, in order; and the probability, for a model fitted with --calibrate.

    \b
    aimfor score run/ new.csv --out scored.csv --id customer
    aimfor score run/ s3://bucket/in/ --out s3://bucket/out/ --shard 3/16

    A category that training never saw counts as a rare one; a missing value as training treated it; a missing column is
    an error. Without an operating point the decision stays empty.
    """
    from aimfor.cli._score import score as write_scores

    with told_in_one_sentence():
        source = _rows(data, sql, separator, encoding, missing)
        more: dict[str, Any] = {}
        if shard is None:
            found = write_scores(run, source, out, ids=ids or (), threshold=threshold)
        else:
            from aimfor.cli._shards import score_shard, shard_of

            files = score_shard(run, source, out, shard_of(shard), ids=ids or (), threshold=threshold)
            found, more = files.scored, {"files": files.files, "there": files.there}
        warn_of(found.remarks)
        if as_json:
            facts = {"out": str(out), "rows": found.rows, "columns": found.columns, "warnings": found.remarks}
            print_json({**facts, **more})
        else:
            made = f" in {len(more['files'])} files, {more['there']} of them were there already" if more else ""
            say(f"{out}: {found.rows:,} rows{made}")
            for name, text in found.columns.items():
                say(f"  {name}: {text}")
    if strict and _drifted(found.remarks):
        raise typer.Exit(DRIFTED)


@app.command(no_args_is_help=True)
def evaluate(
    run: RunFolder,
    data: Data,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 3 where the promise was not held, with 4 for drift.")
    ] = False,
    as_json: Json = False,
    by: By = None,
    cost_fp: Annotated[float | None, typer.Option(min=0, help="Cost of a false alarm.")] = None,
    cost_fn: Annotated[float | None, typer.Option(min=0, help="Cost of a missed positive.")] = None,
    sql: Sql = None,
    separator: Separator = None,
    encoding: Encoding = None,
    missing: Missing = None,
) -> None:
    """Measure a model on labelled rows it has not seen: exact metrics with intervals, and whether the promise held.

    \b
    aimfor evaluate run/ holdout.csv
    aimfor evaluate run/ holdout.csv --by country --cost-fp 1 --cost-fn 20
    aimfor evaluate run/ holdout.csv --strict --json
    """
    from aimfor.cli._score import evaluate as measure

    with told_in_one_sentence():
        costs = None if cost_fp is None and cost_fn is None else (cost_fp or 0.0, cost_fn or 0.0)
        found, remarks = measure(run, _rows(data, sql, separator, encoding, missing), by=by)
        warn_of(remarks)
        if as_json:
            labels = [short_label(measured) for measured in found]
            for entry, measured in zip(labels, found, strict=True):
                if costs is not None:
                    entry["cost_per_1000"] = cost_of(measured["operating"], costs)
            print_json({"labels": labels, "warnings": remarks})
        else:
            tell(found, costs)
    if strict and any(measured["verdict"] not in ("met", "no constraint") for measured in found):
        raise typer.Exit(MISSED)
    if strict and _drifted(remarks):
        raise typer.Exit(DRIFTED)


def _rows(
    data: list[str] | None, sql: str | None, separator: str | None, encoding: str | None, missing: list[str] | None
) -> Any:
    from aimfor.cli._score import RowSource
    from aimfor.tables import ReadOptions

    return RowSource(data or [], sql, ReadOptions(separator, encoding, tuple(missing or ())))


def _drifted(remarks: list[dict[str, Any]]) -> bool:
    return any(remark["kind"] == "drift" for remark in remarks)


@app.command(no_args_is_help=True)
def watch(
    run: RunFolder,
    data: Data,
    time: Annotated[str | None, typer.Option(help="Column of times that orders the rows; else as they come.")] = None,
    out: Annotated[Path, typer.Option(help="The page, an .html file.")] = Path("watch.html"),
    state: Annotated[Path | None, typer.Option(help="File that keeps the evidence for the next call.")] = None,
    late: Annotated[bool, typer.Option("--late", help="The rows were counted before; only labels are new.")] = False,
    level: Annotated[float, typer.Option(help="Most that false alarms may amount to, over any length.")] = 0.05,
    as_json: Json = False,
    sql: Sql = None,
    separator: Separator = None,
    encoding: Encoding = None,
    missing: Missing = None,
) -> None:
    """Watch whether a model keeps its promise on the rows that come; exit with 3 or 4 where it raises an alarm.

    \b
    aimfor watch run/ labelled.csv --time booked_at
    aimfor watch run/ monday.csv --state watch.json          # every day, new rows
    aimfor watch run/ monday.csv --state watch.json --late   # when their labels have come

    Rows without a label count for the share of alerts and the distribution of the scores.
    """
    from aimfor.cli._watch import watch as count_rows

    with told_in_one_sentence():
        source = _rows(data, sql, separator, encoding, missing)
        found = count_rows(run, source, out, time=time, state=state, late=late, level=level)
        warn_of(found.remarks)
        if as_json:
            labels = [{name: entry for name, entry in one.items() if name != "trace"} for one in found.labels]
            print_json({"out": str(out), "labels": labels, "warnings": found.remarks})
        else:
            tell_watched(found.labels)
            say(f"{out}: the page to look at")
    if found.broken or found.drifted:
        raise typer.Exit(MISSED if found.broken else DRIFTED)


@app.command(no_args_is_help=True)
@with_job
def compare(
    job: Any,
    _: list[str],
    splits: Annotated[int, typer.Option(min=1, help="How many times the rows are split anew.")] = 3,
    as_json: Json = False,
) -> None:
    """Log-loss, balanced log-loss, log-loss forests and aimfor: same rows, same budget, measured on rows none saw.

    \b
    aimfor compare transactions.parquet --label is_fraud --aim "recall@precision>=0.9"
    """
    from aimfor.cli._compare import compare as compare_methods

    _check_data(job)
    with tempfile.TemporaryDirectory(prefix="aimfor-") as folder, progress_of(job.aim) as shown:
        found = compare_methods(job, Path(folder), splits=splits, shown=shown)
    if as_json:
        facts: dict[str, Any] = {"aim": job.aim, "measured": [], "beside": []}
        for one in found:
            entry = {"split": one["split"], "method": one["method"], **short_label(one)}
            facts["beside" if one["beside"] else "measured"].append(entry)
        print_json(facts)
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
        echo(f"{write_page(run)}: the page to look at")


@app.command(no_args_is_help=True)
def export(
    run: RunFolder,
    out: Annotated[Path, typer.Option(help="The .onnx file.")] = Path("model.onnx"),
) -> None:
    """Write preparation, model and threshold as one ONNX file.

    \b
    aimfor export run/ --out model.onnx
    """
    from aimfor.model_folder import export_onnx, load_model

    with told_in_one_sentence():
        if out.suffix != ".onnx":
            raise ValueError(f"--out {out}: the name must end in .onnx")
        model = load_model(run)
        export_onnx(model.classifier, model.preparation, out)
        echo(f"{out}: written")


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
        echo(f"\naimfor fit {known} --label is_8 --aim '{AIM}' --model mlp --out {model}")
        fit_and_tell(Job((str(known),), ("is_8",), AIM, seed=seed, options={"model": "mlp"}), model)
        echo(f"\naimfor evaluate {model} {unseen}")
        evaluate(model, [str(unseen)])


def _check_data(job: Any) -> None:
    if not job.paths:
        raise ValueError("no data: name at least one file or folder")


def _command() -> str:
    from aimfor.tables import without_password

    return shlex.join(["aimfor", *map(without_password, sys.argv[1:])])
