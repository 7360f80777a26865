"""Every engine, with the rows of a batch on two ranks, does what it does with all of them on one.

The two ranks are two losses in this process: what both send is added up here.
"""

import pytest
import torch

import aimfor
from aimfor.loss import _loss as loss_module
from aimfor.loss._distributed import ALONE, Ranks
from aimfor.loss.engines import _native_library

ENGINES = ["plain", "fused", *([] if _native_library.problem() else ["native"])]
CASES = [
    ("aucpr; num_anchors=4", {"log_loss": 0.3}),
    ("recall@precision>=0.8", {"log_loss": 0.0}),
    ("recall@precision>=0.8", {"surrogate": "sigmoid", "warmup": 3}),
    ("f1", {"log_loss": 0.0, "constraint": "surrogate"}),
    ("tpr@fpr<=0.1", {"log_loss": 1.0}),
]
STEPS = 40  # beyond the batches on which a loss always counts, and looks


def batch(step: int, labels: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(step)
    scores = torch.randn(48, labels, generator=generator)
    targets = (scores + torch.randn(48, labels, generator=generator) > 0.9).float()
    return scores, targets, torch.rand(48, generator=generator)


def side_by_side(works: list) -> list:
    """The results of works on different ranks, each of which is sent the sum of what all of them send."""
    received, results = [None] * len(works), []
    while not results:
        sent = []
        for work, total in zip(works, received, strict=True):
            try:
                sent.append(work.send(total).tensor.double())
            except StopIteration as done:
                results.append(done.value)
        assert len(sent) in (0, len(works)), "the ranks do not send alike"
        received = [sum(sent)] * len(works)
        received = [total.float() if torch.is_tensor(total) else total for total in received]
    return results


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("aim", "options"), CASES)
@pytest.mark.parametrize("labels", [1, 7, 150])
def test_two_ranks_equal_one(engine, aim, options, labels, monkeypatch):
    monkeypatch.setenv("AIMFOR_ENGINE", engine)
    alone, *pair = (aimfor.Loss(aim, num_labels=labels, **options) for _ in range(3))
    for step in range(STEPS):
        scores, targets, weights = batch(step, labels)
        monkeypatch.setattr(loss_module, "training_ranks", lambda group: ALONE)
        value, _, gradient = alone._evaluate(scores, targets, weights, None, True)
        monkeypatch.setattr(loss_module, "training_ranks", lambda group: Ranks(2))
        parts = slice(None, 20), slice(20, None)
        works = [
            loss._exchange(scores[rows], targets[rows], weights[rows], None, True)
            for loss, rows in zip(pair, parts, strict=True)
        ]
        found = side_by_side(works)
        for result, _, own in found:
            torch.testing.assert_close(result, value, rtol=1e-4, atol=1e-6)
            assert own.dtype == gradient.dtype
        together = torch.cat([own for _, _, own in found]) / 2
        # A score at the kink of a hinge may be on either side of it, by the rounding of a threshold.
        assert (together - gradient).norm() <= 1e-3 * gradient.norm()
    first, second = (loss.state.state_dict() for loss in pair)
    for name, tensor in alone.state.state_dict().items():
        torch.testing.assert_close(first[name], second[name], rtol=0, atol=0, equal_nan=True)
        difference = (first[name].double() - tensor.double()).nan_to_num()
        assert difference.norm() <= 1e-3 * tensor.double().nan_to_num().norm() + 1e-6, name
        assert torch.equal(first[name].isnan(), tensor.isnan())
