"""The metric object gives the exact metric of all rows, however they were cut into batches and processes."""

import copy
import itertools
import os
import pickle
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import aimfor
from two_processes import in_two_processes, join_group

WITHOUT = "TESTED_WITHOUT_TORCHMETRICS"
AIMS = ["recall@precision>=0.6", "fpr@tpr>=0.7", "aucpr", "f1"]


def rows(seed: int, count: int = 200, labels: int = 1):
    generator = torch.Generator().manual_seed(seed)
    truth = (torch.rand(count, labels, generator=generator) < 0.3).long()
    # Rounded, so that there are ties.
    scores = (truth + 1.5 * torch.randn(count, labels, generator=generator)).mul(8).round().div(8)
    return scores, truth, torch.rand(count, generator=generator)


@pytest.mark.parametrize("aim", AIMS)
@given(cuts=st.lists(st.integers(0, 200), max_size=4), seed=st.integers(0, 5), weighted=st.booleans())
def test_batches_give_the_value_of_the_whole(aim, cuts, seed, weighted):
    scores, labels, weights = rows(seed)
    metric = aimfor.Metric(aim)
    edges = sorted({0, *cuts, 200})
    for start, end in itertools.pairwise(edges):
        part = slice(start, end)
        metric.update(scores[part, 0], labels[part, 0], weights=weights[part] if weighted else None)
    whole = aimfor.aim(aim).metric(labels[:, 0], scores[:, 0], sample_weight=weights if weighted else None)
    assert metric.compute().item() == pytest.approx(whole, abs=1e-12)


def test_labels_are_averaged_or_given_one_by_one():
    scores, labels, _ = rows(1, labels=3)
    labels[:, 2] = 0  # no positive: this label has no value
    expected = [aimfor.metrics.f_beta(labels[:, j], scores[:, j]).value for j in range(2)]
    mean, each = aimfor.Metric("f1", num_labels=3), aimfor.Metric("f1", num_labels=3, per_label=True)
    for metric in (mean, each):
        metric.update(scores, labels)
    assert mean.compute().item() == pytest.approx(np.mean(expected), abs=1e-15)
    torch.testing.assert_close(each.compute(), torch.tensor([*expected, np.nan], dtype=torch.float64), equal_nan=True)


def test_masked_and_weightless_entries_are_absent():
    scores, labels, _ = rows(2, labels=2)
    mask = torch.rand(200, 2) < 0.6
    mask[:3] = False  # whole rows too
    spoilt = scores.masked_fill(~mask, torch.nan)
    unknown = labels.masked_fill(~mask, -100)
    masked, weighted = (aimfor.Metric("aucpr", num_labels=2, per_label=True) for _ in range(2))
    masked.update(spoilt, unknown, mask=mask)
    weighted.update(spoilt, unknown, weights=mask.float())
    expected = [aimfor.aim("aucpr").metric(labels[mask[:, j], j], scores[mask[:, j], j]) for j in range(2)]
    for metric in (masked, weighted):
        torch.testing.assert_close(metric.compute(), torch.tensor(expected, dtype=torch.float64))


def test_weights_may_come_in_some_batches_only():
    scores, labels, weights = rows(3)
    metric = aimfor.Metric("f1")
    metric.update(scores[:100, 0], labels[:100, 0], weights=weights[:100])
    metric.update(scores[100:], labels[100:])
    weights = torch.cat([weights[:100], torch.ones(100)])
    expected = aimfor.metrics.f_beta(labels[:, 0], scores[:, 0], sample_weight=weights).value
    assert metric.compute().item() == pytest.approx(expected, abs=1e-12)


def test_classes_sparse_labels_and_numpy_arrays():
    logits, classes = torch.randn(60, 3), torch.randint(3, (60,))
    odds, one_hot = aimfor.log_odds(logits), torch.nn.functional.one_hot(classes, 3)
    expected = np.mean(aimfor.aim("aucpr").metric(one_hot, odds))
    exclusive, sparse, arrays = aimfor.Metric("aucpr", num_labels=3, multiclass=True), *several(2)
    exclusive.update(logits, classes)
    sparse.update(odds, aimfor.sparse_labels(classes.unsqueeze(1), num_labels=3))
    arrays.update(odds.numpy(), one_hot.numpy())
    for metric in (exclusive, sparse, arrays):
        assert metric.compute().item() == expected


def several(count: int) -> list[aimfor.Metric]:
    return [aimfor.Metric("aucpr", num_labels=3) for _ in range(count)]


def test_calling_it_gives_the_value_of_the_batch_and_keeps_the_rows():
    scores, labels, _ = (part[:, 0] if part.ndim == 2 else part for part in rows(4))
    metric = aimfor.Metric("f1")
    assert metric(scores[:80], labels[:80]).item() == aimfor.metrics.f_beta(labels[:80], scores[:80]).value
    assert metric(scores[80:], labels[80:]).item() == aimfor.metrics.f_beta(labels[80:], scores[80:]).value
    assert metric.compute().item() == aimfor.metrics.f_beta(labels, scores).value
    assert metric.update_count == 2
    metric.reset()
    assert metric.update_count == 0
    metric.update(scores[:80], labels[:80])
    assert metric.compute().item() == aimfor.metrics.f_beta(labels[:80], scores[:80]).value


def test_a_refused_batch_changes_nothing():
    scores, labels, _ = rows(5)
    metric = aimfor.Metric("f1")
    metric.update(scores, labels)
    before = metric.compute().item()
    for bad_scores, bad_labels, message in (
        (scores / 0, labels, "scores must be finite"),
        (scores, labels + 1, "labels must be 0 or 1"),
        (scores[:5], labels, "labels must have the shape of scores"),
    ):
        with pytest.raises(ValueError, match=message):
            metric.update(bad_scores, bad_labels)
        assert metric.compute().item() == before


def test_without_both_classes_the_value_is_nan_with_a_warning():
    metric = aimfor.Metric("recall@precision>=0.9")
    metric.update(torch.randn(4), torch.zeros(4))
    with pytest.warns(aimfor.UndefinedMetricWarning, match="no label has both classes"):
        assert metric.compute().isnan()
    metric.update(torch.tensor([9.0]), torch.ones(1))
    assert metric.compute().item() == 1


def test_the_caller_may_write_over_what_was_given():
    scores, labels = torch.tensor([2.0, 1.0]), torch.tensor([1, 0])
    metric = aimfor.Metric("f1")
    metric.update(scores, labels)
    scores.mul_(-1)
    labels.zero_()
    assert metric.compute().item() == 1


def test_state_dict_holds_the_rows_only_where_asked():
    scores, labels, weights = rows(6)
    plain, kept = aimfor.Metric("f1"), aimfor.Metric("f1", persistent=True)
    for metric in (plain, kept):
        metric.update(scores, labels, weights=weights)
    assert not plain.state_dict()
    saved = kept.state_dict()
    other = aimfor.Metric("f1", persistent=True)
    other.load_state_dict(saved)
    assert other.compute() == kept.compute()
    other.update(scores, labels)
    other.reset()
    assert len(saved["scores"]) == 1  # the checkpoint is not shared
    plain.persistent(True)
    assert set(plain.state_dict()) == {"scores", "labels", "weights"}


def test_copies_have_rows_of_their_own():
    metric = aimfor.Metric("f1")
    metric.update(torch.tensor([2.0, 1.0]), torch.tensor([1, 0]))
    for other in (copy.deepcopy(metric), metric.clone(), pickle.loads(pickle.dumps(metric))):
        other.update(torch.tensor([3.0]), torch.tensor([0]))
        assert other.compute().item() < 1
    assert metric.compute().item() == 1


def test_half_precision_of_the_model_does_not_round_the_rows():
    metric = aimfor.Metric("f1")
    metric.update(torch.tensor([1.0001, 1.0]), torch.tensor([1, 0]))
    metric.half()
    metric.to(torch.bfloat16)
    assert metric.compute().item() == 1


def test_which_direction_is_better():
    assert aimfor.Metric("f1").higher_is_better
    assert not aimfor.Metric("fpr@tpr>=0.9").higher_is_better


def test_bad_options():
    for options, message in (
        ({"num_labels": 0}, "num_labels must be at least 1"),
        ({"num_labels": 1, "multiclass": True}, "num_labels must be at least 2"),
        ({"aim": "recall@precision>=(0.9, 0.8)", "num_labels": 3}, "one target per label"),
    ):
        with pytest.raises(ValueError, match=message):
            aimfor.Metric(options.pop("aim", "f1"), **options)
    with pytest.raises(TypeError, match="per_label must be True or False"):
        aimfor.Metric("f1", per_label="yes")  # pyright: ignore[reportArgumentType]


def on_each_rank(rank: int, folder: str) -> None:
    join_group(rank, folder)
    scores, labels, weights = rows(7)
    part = slice(0, 60) if rank == 0 else slice(60, None)
    shared, alone, empty = (
        aimfor.Metric("recall@precision>=0.6", process_group=group) for group in (None, False, None)
    )
    shared.update(scores[part], labels[part], weights=weights[:60] if rank == 0 else None)
    alone.update(scores[part], labels[part])
    if rank == 0:
        empty.update(scores[part], labels[part])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torchmetrics warns on the rank without an update
        value_with_empty_rank = empty.compute().item()
    values = shared.compute().item(), alone.compute().item(), value_with_empty_rank
    shared.update(scores[:0].new_tensor([[50.0]]), labels[:0].new_tensor([[1]]))  # after a gathering it goes on alone
    torch.save((values, len(shared.scores)), Path(folder) / f"{rank}.pt")
    torch.distributed.destroy_process_group()


def check_ranks(results: list) -> None:
    scores, labels, weights = (part[:, 0] if part.ndim == 2 else part for part in rows(7))
    weights = torch.cat([weights[:60], torch.ones(140)])
    whole = aimfor.metrics.recall_at_precision(labels, scores, 0.6, sample_weight=weights).value
    halves = [aimfor.metrics.recall_at_precision(labels[p], scores[p], 0.6).value for p in (slice(60), slice(60, None))]
    assert abs(whole - np.mean(halves)) > 0.01  # a mean over ranks would be something else
    for rank, (values, batches) in enumerate(results):
        assert values == pytest.approx((whole, halves[rank], halves[0]), abs=1e-12)
        assert batches == 2


def test_ranks_give_the_value_of_all_rows():
    check_ranks(in_two_processes(on_each_rank))


def test_it_is_a_torchmetrics_metric_where_that_is_installed():
    if WITHOUT not in os.environ:
        pytest.importorskip("torchmetrics")
    base = aimfor.Metric.__mro__[1].__module__.split(".")[0]
    assert base == ("aimfor" if WITHOUT in os.environ else "torchmetrics")


def test_all_of_this_without_torchmetrics(tmp_path):
    """The same file once more, where torchmetrics cannot be found."""
    pytest.importorskip("torchmetrics", reason="without torchmetrics the tests above were these")
    hidden = tmp_path / "sitecustomize.py"
    hidden.write_text(
        "import importlib.util as u\nfind = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name == 'torchmetrics' else find(name, *rest)\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider", __file__]
    command += ["-k", "not all_of_this"]
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, WITHOUT: "1", "PYTHONPATH": path}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
