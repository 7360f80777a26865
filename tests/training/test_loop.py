"""Training that is put away and taken up again, or stopped, ends as it should; what decay does in a step."""

import numpy as np
import pytest
import torch
from sklearn.datasets import make_classification

import aimfor
from aimfor.estimator import fit_classifier
from aimfor.training._adam import Adam
from aimfor.training._loop import step_
from aimfor.training._models import Layers, Modules
from aimfor.training._objectives import Objectives
from aimfor.training._observer import Evaluation, Observer, SavedState
from aimfor.training._recipes import Recipe
from aimfor.training._rows import Batch, BatchOrder, Data, FeatureRows, Scaling


class Killed(Exception):
    pass


class Notebook(Observer):
    """Keeps the state every few steps, through bytes as a file would, and dies after a number of batches."""

    def __init__(self, pages: dict[str, SavedState], every: int = 7, last_batch: float = np.inf):
        self.pages, self.every, self.last_batch, self.batches = pages, every, last_batch, 0
        self.evaluations: list[Evaluation] = []

    def on_batch_end(self, stage, step, steps):
        self.batches += 1
        if self.batches >= self.last_batch:
            raise Killed

    def on_evaluation(self, evaluations, best):
        self.evaluations += evaluations

    def should_save(self):
        return self.batches % self.every == 0

    def save(self, stage, kept):
        self.pages[stage] = SavedState(
            dict(kept.facts), {name: tensor.clone() for name, tensor in kept.tensors.items()}
        )

    def saved(self, stage):
        return self.pages.get(stage)


@pytest.fixture(scope="module")
def rows():
    return make_classification(600, 8, weights=[0.85], class_sep=0.5, flip_y=0.1, random_state=0)


OPTIONS = [
    {"model": "linear"},
    {"model": "mlp", "hidden_layer_sizes": (6,)},
    {"surrogate": "hinge"},
    {"surrogate": "log_loss"},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_resumed_fit_equals_one_that_never_stopped(rows, options):
    def model():
        return aimfor.Classifier("recall@precision>=0.7", steps=60, batch_size=64, random_state=0, **options)

    whole = model().fit(*rows)
    pages: dict[str, SavedState] = {}
    for last_batch in (3, 20, 11, 8):
        with pytest.raises(Killed):
            fit_classifier(model(), *rows, None, None, Notebook(pages, last_batch=last_batch))
    resumed = model()
    fit_classifier(resumed, *rows, None, None, Notebook(pages))
    assert resumed.history_ == whole.history_
    assert resumed.operating_point_ == whole.operating_point_
    for name, tensor in whole.model_.heads.state_dict().items():
        assert torch.equal(tensor, resumed.model_.heads.state_dict()[name]), name


def test_every_evaluation_of_every_candidate_is_reported(rows):
    notebook = Notebook({})
    classifier = aimfor.Classifier("recall@precision>=0.7", model="linear", steps=60, random_state=0)
    contest = fit_classifier(classifier, *rows, None, None, notebook).contest
    assert {one.candidate for one in notebook.evaluations} == {one.recipe.name for one in contest.candidates}
    for candidate in contest.candidates:
        own = [one for one in notebook.evaluations if one.candidate == candidate.recipe.name]
        assert max(one.value for one in own) == candidate.value
        aimed = candidate.recipe.aim is not None
        assert np.isfinite([own[-1].violation, own[-1].multiplier, own[-1].threshold, own[-1].exact]).all() == aimed
        assert bool(candidate.loss) == aimed


class Impatient(Observer):
    def __init__(self, batches: int):
        self.left = batches

    def on_batch_end(self, stage, step, steps):
        self.left -= 1

    def should_stop(self):
        return self.left <= 0


@pytest.mark.parametrize("model", ["linear", "mlp"])
@pytest.mark.parametrize("batches", [0, 5])
def test_stopped_fit_gives_a_model_that_decides(rows, model, batches):
    classifier = aimfor.Classifier("f1", model=model, steps=10**9, random_state=0)
    fit_classifier(classifier, *rows, None, None, Impatient(batches))
    assert set(classifier.predict(rows[0])) <= {0, 1}
    assert all(entry["step"] <= batches for entry in classifier.history_)


def test_batches_are_epochs_that_go_on_where_they_were():
    batches = BatchOrder(10, 4, np.random.default_rng(0))
    taken = [next(batches) for _ in range(5)]
    for first in (0, 2):
        assert len(set(np.concatenate(taken[first : first + 2]))) == 8
    kept = batches.kept()
    rest = [next(batches) for _ in range(4)]
    again = BatchOrder(10, 4, np.random.default_rng(5))
    again.restore(kept)
    assert all(np.array_equal(next(again), one) for one in rest)


def test_rows_on_disk_train_the_same_model(rows, tmp_path):
    from aimfor._base.stored_rows import RowWriter, StoredRows

    X, y = rows[0].astype(np.float32), rows[1]
    with RowWriter(tmp_path / "rows", 8) as writer:
        for part in np.array_split(X, 7):
            writer.append(part)
    stored = StoredRows(writer.path, 8)
    assert np.array_equal(stored[10:20], X[10:20])
    assert np.array_equal(stored[np.array([5, 3, 5])], X[[5, 3, 5]])
    held, weights = (X[:200], y[:200]), (np.arange(len(y)) % 5 > 0).astype(float)
    models = [
        aimfor.Classifier("aucpr", model="linear", steps=50, random_state=0).fit(
            features, y, weights, validation_data=held
        )
        for features in (X, stored)
    ]
    assert np.array_equal(models[0].raw_scores(X), models[1].raw_scores(stored))
    with pytest.raises(ValueError, match="features"):
        models[0].raw_scores(StoredRows(writer.path, 4))


def one_step(heads, decays, rate=0.1):
    """One step of log-loss with these decays, all heads from the start of the first; their weights afterwards."""
    for head in range(1, heads.num_heads):
        heads.set_head_(head, heads.head(0))
    X, y = make_classification(64, 3, n_informative=3, n_redundant=0, random_state=0)
    data = Data(FeatureRows(X, Scaling.of(X, None, None)), torch.from_numpy(y)[:, None], None)
    recipes = [Recipe(None, decay=decay) for decay in decays]
    optimiser = Adam(heads.parameters(), rate)
    step_(heads, Objectives(recipes, 1, data, False), optimiser, torch.tensor(decays), Batch(*data.take(slice(None))))
    return [heads.head(head) for head in range(heads.num_heads)]


@pytest.mark.parametrize("kind", ["mlp", "module"])
def test_networks_decay_apart_from_adam(kind):
    """After one step a head with decay has what one without has, less its share; offsets are left alone."""
    if kind == "mlp":
        heads = Layers(2, 3, 1, (4,), torch.Generator().manual_seed(0))
    else:
        heads = Modules(
            2, 1, lambda: torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
        )
    without, with_decay = one_step(heads, [0.0, 0.5])
    for name, tensor in without.items():
        held = "weight" in name
        torch.testing.assert_close(with_decay[name], tensor * (1 - 0.1 * 0.5) if held else tensor)


def test_linear_heads_decay_inside_the_loss():
    """The first step of Adam has the size of the rate whatever the gradient, so a decay can only turn it round."""
    start = Layers(2, 3, 1, (), torch.Generator().manual_seed(0))
    before = start.head(0)["weights.0"]
    without, with_decay = one_step(start, [0.0, 1e6])
    torch.testing.assert_close((without["weights.0"] - before).abs(), torch.full((3, 1), 0.1), rtol=1e-3, atol=0)
    torch.testing.assert_close(with_decay["weights.0"], before - 0.1 * before.sign(), rtol=1e-3, atol=1e-6)


# Modules of the user's own


def drawing():
    return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1))


def test_frozen_parameters_stay(rows):
    module = drawing()
    module[0].requires_grad_(False)
    model = aimfor.Classifier(model=module, steps=40, random_state=0).fit(*rows).partial_fit(*rows)
    assert torch.equal(model.model_.heads.modules_[0][0].weight, module[0].weight)
    assert not torch.equal(model.model_.heads.modules_[0][3].weight, module[3].weight)


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_what_a_module_draws_is_of_the_seed(rows, method):
    module, found = drawing(), []
    for state in (1, 2):
        torch.manual_seed(state)
        before = torch.get_rng_state()
        model = aimfor.Classifier(model=module, steps=20, random_state=0)
        found.append(getattr(model, method)(*rows).raw_scores(rows[0]))
        assert torch.equal(torch.get_rng_state(), before)
    np.testing.assert_array_equal(*found)


@pytest.fixture
def double_by_default():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


MODELS = ["linear", "mlp", drawing, lambda: drawing().double()]


@pytest.mark.parametrize("model", MODELS, ids=["linear", "mlp", "module", "double module"])
@pytest.mark.usefixtures("double_by_default")
def test_training_is_in_single_precision_whatever_the_default(rows, model):
    fitted = aimfor.Classifier(model=model, steps=20, random_state=0).fit(*rows).partial_fit(*rows)
    assert fitted.predict(rows[0]).shape == (600,)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("model", MODELS[:3], ids=["linear", "mlp", "module"])
def test_training_in_a_mode_without_gradients(rows, model, mode):
    def fitted():
        return aimfor.Classifier(model=model, steps=20, random_state=0).fit(*rows).partial_fit(*rows)

    with mode():
        inside = fitted()
        scores = inside.raw_scores(rows[0])
    np.testing.assert_array_equal(scores, fitted().raw_scores(rows[0]))
    inside.partial_fit(*rows)


def test_partial_fit_leaves_no_row_to_a_batch_of_its_own(rows):
    def module():
        return torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))

    X, y = (part[:129] for part in rows)
    model = aimfor.Classifier(model=module, batch_size=64, random_state=0).partial_fit(X, y)
    assert model.model_.heads.modules_[0][1].num_batches_tracked == 3
