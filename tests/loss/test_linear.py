"""The chunked head equals the unchunked one, and never holds the scores of all labels."""

import pytest
import torch

import aimfor
from aimfor import ChunkAdam, ChunkSGD, LinearLoss

ROWS, FEATURES, LABELS = 32, 12, 37


def batch(seed, layout="dense"):
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(ROWS, FEATURES, generator=generator)
    labels = (torch.rand(ROWS, LABELS, generator=generator) < 0.2).float()
    weights = torch.rand(ROWS, generator=generator) + 0.5
    mask = torch.rand(ROWS, LABELS, generator=generator) < 0.9
    if layout == "csr":
        labels = aimfor.sparse_labels([row.nonzero().squeeze(1) for row in labels], LABELS)
    elif layout == "coo":
        labels = labels.to_sparse_coo()
    return features, labels, weights, mask


def pair(aim, chunk, **options):
    torch.manual_seed(0)
    head = LinearLoss(aim, FEATURES, LABELS, chunk=chunk, **options)
    layer, loss = torch.nn.Linear(FEATURES, LABELS), aimfor.Loss(aim, num_labels=LABELS, **options)
    with torch.no_grad():
        layer.weight.copy_(head.weight)
        layer.bias.copy_(head.bias)
    return head, layer, loss


@pytest.mark.parametrize("layout", ["dense", "csr", "coo"])
@pytest.mark.parametrize("chunk", [1, 10, 37, 100])
@pytest.mark.parametrize("aim", ["recall@precision>=0.8", "aucpr", "f1"])
def test_equals_the_unchunked_head(aim, chunk, layout):
    head, layer, loss = pair(aim, chunk)
    optimisers = [torch.optim.SGD(module.parameters(), lr=0.5) for module in (head, layer)]
    for seed in range(5):
        features, labels, weights, mask = batch(seed, layout)
        ours, theirs = features.clone().requires_grad_(), features.clone().requires_grad_()
        options = {"weights": weights, "mask": mask}
        for optimiser in optimisers:
            optimiser.zero_grad()
        value = head(ours, labels, **options)
        expected = loss(layer(theirs), labels, **options)
        (2 * value).backward()
        (2 * expected).backward()
        torch.testing.assert_close(value, expected, rtol=1e-5, atol=1e-6)
        for found, right in ((ours.grad, theirs.grad), (head.weight.grad, layer.weight.grad)):
            torch.testing.assert_close(found, right, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(head.bias.grad, layer.bias.grad, rtol=1e-4, atol=1e-6)
        for optimiser in optimisers:
            optimiser.step()
    torch.testing.assert_close(head.thresholds, loss.thresholds, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(head.multipliers, loss.multipliers, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(head.priors, loss.priors)


def test_targets_and_priors_per_label_are_cut_out():
    targets = tuple(0.5 + 0.4 * label / LABELS for label in range(LABELS))
    priors = [0.1 + 0.5 * label / LABELS for label in range(LABELS)]
    head, layer, loss = pair(aimfor.RecallAtPrecision(targets), 10, priors=priors)
    features, labels, *_ = batch(0)
    torch.testing.assert_close(head(features, labels), loss(layer(features), labels))


def test_eval_and_no_grad_leave_the_state_alone():
    head, *_ = pair("aucpr", 10)
    features, labels, *_ = batch(0)
    head(features, labels)
    before = {name: tensor.clone() for name, tensor in head.state_dict().items()}
    with torch.no_grad():
        head(features, labels)
    head.eval()
    head(features, labels).backward()
    assert all(torch.equal(tensor, before[name]) for name, tensor in head.state_dict().items())


def test_backward_twice_needs_retain_graph():
    head, *_ = pair("aucpr", 10)
    features, labels, *_ = batch(0)
    value = head(features.requires_grad_(), labels)
    value.backward(retain_graph=True)
    first = features.grad.clone()
    value.backward()
    torch.testing.assert_close(features.grad, 2 * first)
    with pytest.raises(RuntimeError, match="retain_graph"):
        value.backward()


def test_sgd_by_chunks_equals_sgd():
    head, layer, loss = pair("recall@precision>=0.8", 10)
    direct = LinearLoss("recall@precision>=0.8", FEATURES, LABELS, chunk=10, updates=ChunkSGD(lr=0.3))
    direct.load_state_dict(head.state_dict())
    optimiser = torch.optim.SGD(layer.parameters(), lr=0.3)
    for seed in range(4):
        features, labels, *_ = batch(seed)
        optimiser.zero_grad()
        loss(layer(features), labels).backward()
        optimiser.step()
        direct(features.requires_grad_(), labels).backward()
        assert direct.weight.grad is None
    torch.testing.assert_close(direct.weight, layer.weight, rtol=1e-4, atol=1e-6)


def test_adam_by_chunks_is_near_adam_and_is_resumed():
    torch.manual_seed(0)
    make = lambda: LinearLoss("aucpr", FEATURES, LABELS, chunk=10, updates=ChunkAdam(lr=0.01))  # noqa: E731
    direct, resumed = make(), make()
    layer, loss = torch.nn.Linear(FEATURES, LABELS), aimfor.Loss("aucpr", num_labels=LABELS)
    with torch.no_grad():
        layer.weight.copy_(direct.weight)
        layer.bias.copy_(direct.bias)
    optimiser = torch.optim.Adam(layer.parameters(), lr=0.01, betas=(0.9, 0.99))
    start = layer.weight.detach().clone()
    for seed in range(20):
        features, labels, *_ = batch(seed)
        optimiser.zero_grad()
        loss(layer(features), labels).backward()
        optimiser.step()
        direct(features, labels)
        if seed == 9:
            resumed.load_state_dict(direct.state_dict())
        elif seed > 9:
            resumed(features, labels)
    moved = (layer.weight - start).norm()
    assert (direct.weight - layer.weight).norm() < 0.05 * moved  # bfloat16 keeps three digits of the moments
    assert torch.equal(resumed.weight, direct.weight)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (("aucpr", 0, 5), {}, "in_features must be at least 1"),
        (("aucpr", 5, 5), {"chunk": 0}, "chunk must be at least 1"),
        (("aucpr", 5, 5), {"multiclass": True}, "multiclass must be False for LinearLoss"),
        ((aimfor.RecallAtPrecision((0.5, 0.6)), 5, 3), {}, "one target per label"),
    ],
)
def test_bad_options(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        LinearLoss(*arguments, **options)


@pytest.mark.parametrize(
    ("features", "labels", "message"),
    [
        (torch.zeros(4, 3), torch.zeros(4, 5), r"features must have shape \[B, 2\]"),
        (torch.zeros(4, 2), torch.zeros(4, 4), r"labels must have shape \(4, 5\)"),
        (torch.zeros(4, 2), torch.zeros(3, 5), r"labels must have shape \(4, 5\)"),
    ],
)
def test_bad_batches(features, labels, message):
    with pytest.raises(ValueError, match=message):
        LinearLoss("aucpr", 2, 5)(features, labels)


def test_an_index_out_of_range_is_refused():
    index = torch.tensor([[0, 1], [0, 7]])
    labels = torch.sparse_coo_tensor(index, torch.ones(2), (4, 5), check_invariants=False)
    with pytest.raises(ValueError, match="indices within their shape"):
        LinearLoss("aucpr", 2, 5)(torch.zeros(4, 2), labels)


@pytest.mark.parametrize("chunk", [10, 37])
def test_a_range_that_asks_nothing_is_named_once_by_the_number_of_the_label(chunk):
    """Labels 12 and 33 are nearly always positive, so that every precision of the range is met."""
    head = LinearLoss("aucpr[precision<=0.5]", FEATURES, LABELS, chunk=chunk)
    features, labels, *_ = batch(0)
    labels[:4, 12], labels[4:, 12] = 0, 1
    labels[:4, 33], labels[4:, 33] = 0, 1
    with pytest.warns(aimfor.VacuousRangeWarning) as caught:
        head(features, labels)
    head(features, labels)  # a second warning would be an error
    assert len(caught) == 1
    assert "asks nothing of 2 of 37 labels (12, 33)" in str(caught[0].message)


def test_labels_that_cannot_be_met_are_named_once_by_their_number():
    """Features without information: of labels 12 and 33, precision 0.99 is out of reach for any model."""
    torch.manual_seed(0)
    targets = tuple(0.99 if label in (12, 33) else 0.02 for label in range(LABELS))
    head = LinearLoss(aimfor.RecallAtPrecision(targets), FEATURES, LABELS, chunk=10)
    features, labels = torch.zeros(200, FEATURES), (torch.rand(200, LABELS) < 0.3).float()
    labels[:, 12] = labels[:, 33] = (torch.arange(200) % 4 == 0).float()

    def train():
        for _ in range(1500):
            head(features, labels)

    with pytest.warns(aimfor.InfeasibleConstraintWarning) as caught:
        train()
    assert len(caught) == 1
    assert "2 of 37 labels (12, 33)" in str(caught[0].message)


@pytest.mark.parametrize("updates", [None, ChunkSGD(lr=0.1), ChunkAdam(lr=0.1)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_takes_the_scores_of_a_layer_under_autocast(dtype, updates):
    head, layer, loss = pair("aucpr", 10)
    features, labels, *_ = batch(0)
    ours, theirs = features.clone().requires_grad_(), features.clone().requires_grad_()
    before = head.weight.detach().clone()
    head.updates = updates
    head.weight.requires_grad_(updates is None)
    head.bias.requires_grad_(updates is None)
    with torch.autocast("cpu", dtype=dtype):
        value, expected = head(ours, labels), loss(layer(theirs).float(), labels)
    value.backward()
    expected.backward()
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=2e-2, atol=1e-4)
    if updates is None:
        torch.testing.assert_close(head.weight.grad, layer.weight.grad, rtol=2e-2, atol=1e-4)
    else:
        assert not torch.equal(head.weight, before)


@pytest.mark.parametrize("updates", [ChunkSGD(lr=0.1), ChunkAdam(lr=0.1)])
def test_updated_weights_leave_nothing_to_backward(updates):
    """Features that come from a table or a frozen model need no gradient."""
    head = LinearLoss("aucpr", FEATURES, LABELS, chunk=10, updates=updates)
    features, labels, *_ = batch(0)
    value = head(features, labels)
    weight = head.weight.clone()
    (value / 2).backward()
    assert torch.equal(head.weight, weight)
    assert head.weight.grad is None
    assert features.grad is None


def test_diagnostics_are_those_of_the_unchunked_loss():
    head, layer, loss = pair("aucpr", 10)
    for seed in range(3):
        features, labels, *_ = batch(seed)
        head(features, labels)
        loss(layer(features), labels)
    found, expected = head.diagnostics(), loss.diagnostics()
    for name, part, right in zip(found._fields, found, expected, strict=True):
        torch.testing.assert_close(part, right, rtol=1e-4, atol=1e-5, equal_nan=True, msg=name)
    assert str(found).splitlines()[0].split() == str(expected).splitlines()[0].split()


@pytest.mark.parametrize("updates", [None, ChunkSGD, ChunkAdam])
@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize(("saved", "own"), [(10, 37), (37, 10), (10, 9)])
def test_a_state_may_be_loaded_into_other_chunks(saved, own, inside, updates):
    def made(chunk):
        aim, priors = aimfor.RecallAtPrecision(tuple(0.5 + label / 100 for label in range(LABELS))), [0.2] * LABELS
        make = None if updates is None else updates(lr=0.1)
        head = LinearLoss(aim, FEATURES, LABELS, chunk=chunk, priors=priors, updates=make)
        return head, torch.nn.Sequential(head) if inside else head

    torch.manual_seed(0)
    (first, model), (second, other) = made(saved), made(own)
    for seed in range(3):
        first(*batch(seed)[:2])
    state = model.state_dict()
    kept = {name: tensor.clone() for name, tensor in state.items()}
    other.load_state_dict(state)
    assert all(torch.equal(tensor, kept[name]) for name, tensor in state.items())
    assert torch.equal(second.thresholds, first.thresholds)
    assert torch.equal(second.multipliers, first.multipliers)
    for head in (first, second):
        for seed in range(3, 6):
            head(*batch(seed)[:2])
    torch.testing.assert_close(second.thresholds, first.thresholds, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(second.weight, first.weight, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("aim", "num_labels"), [("aucroc", LABELS), ("aucpr", 36), (aimfor.RecallAtPrecision((0.5,) * LABELS), LABELS)]
)
def test_a_state_of_another_head_is_refused_in_one_sentence(aim, num_labels):
    first = LinearLoss("aucpr", FEATURES, LABELS, chunk=10)
    second = LinearLoss(aim, FEATURES, num_labels, chunk=9)
    message = f"state for '{aimfor.aim(aim) if isinstance(aim, str) else aim}, num_labels={num_labels}', the saved one"
    with pytest.warns(aimfor.OtherAimWarning) as caught, pytest.raises(RuntimeError, match="saved one") as refused:
        second.load_state_dict(first.state_dict())
    assert len(caught) == 1
    assert f"{message} is for 'aucpr, num_labels=37'" in str(refused.value)
    assert str(refused.value).count("saved one") == 1


def test_a_head_for_another_aim_starts_anew_where_the_load_is_not_strict():
    first, second = LinearLoss("aucpr", FEATURES, LABELS, chunk=10), LinearLoss("aucroc", FEATURES, LABELS, chunk=9)
    features, labels, *_ = batch(0)
    first(features, labels)
    with pytest.warns(aimfor.OtherAimWarning) as caught:
        second.load_state_dict(first.state_dict(), strict=False)
    assert len(caught) == 1
    assert torch.equal(second.weight, first.weight)
    assert not second.thresholds.any()
