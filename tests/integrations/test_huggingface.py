"""The loss in Hugging Face's Trainer: resumed bit for bit, scaled for accumulation and processes, the best model."""

import json
import os
import socket
from pathlib import Path

import pytest
import torch

import aimfor
from two_processes import in_two_processes

pytest.importorskip("transformers", reason="the extra integration is not installed")

from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments

from aimfor.integrations.huggingface import trainer_loss, training_entries

AIM = "recall@precision>=0.7"
ROWS, STEPS = 64, 8


def data(seed: int = 0, rows: int = ROWS) -> list[dict]:
    generator = torch.Generator().manual_seed(seed)
    labels = (torch.rand(rows, generator=generator) < 0.3).long()
    words = torch.randint(2, 30, (rows, 6), generator=generator)
    words[:, 0] = torch.where(labels == 1, torch.randint(2, 12, (rows,), generator=generator), words[:, 0])
    return [{"input_ids": row, "labels": label} for row, label in zip(words, labels, strict=True)]


def bert(**options) -> BertForSequenceClassification:
    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    return BertForSequenceClassification(BertConfig(vocab_size=30, max_position_embeddings=8, **sizes, **options))


def arguments(folder: Path, **options) -> TrainingArguments:
    given = {
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 2,
        "max_steps": STEPS,
        "save_steps": 3,
        "logging_steps": 100,
        "learning_rate": 0.01,
        "report_to": "none",
        "use_cpu": True,
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
        **options,
    }
    return TrainingArguments(output_dir=str(folder), **given)


class Killed(Exception):
    """The end of a run that is cut short."""


class Killer(TrainerCallback):
    """Ends the run after a step that was not saved."""

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 5:
            raise Killed


def trainer(folder: Path, loss, callbacks=(), model=None, **options) -> Trainer:
    return Trainer(
        bert() if model is None else model,
        arguments(folder, **options),
        train_dataset=data(),
        eval_dataset=data(1),
        compute_loss_func=loss,
        compute_metrics=loss.compute_metrics,
        callbacks=[loss, *callbacks],
    )


def new_loss(**options):
    return trainer_loss(aimfor.Loss(AIM, **options))


@pytest.mark.parametrize("restored_by_trainer", [False, True])
def test_killed_and_resumed_equals_uninterrupted(tmp_path, restored_by_trainer):
    options = {"restore_callback_states_from_checkpoint": restored_by_trainer}
    whole = trainer(tmp_path / "whole", new_loss())
    whole.train()
    with pytest.raises(Killed):
        trainer(tmp_path / "cut", new_loss(), [Killer()]).train()
    loss = new_loss()
    resumed = trainer(tmp_path / "cut", loss, **options)
    resumed.train(resume_from_checkpoint=True)
    assert resumed.state.global_step == STEPS
    expected, found = whole.callback_handler.callbacks, loss.loss.state_dict()
    state = next(callback.loss for callback in expected if hasattr(callback, "loss")).state_dict()
    assert state["state.steps"] == 2 * STEPS  # every micro-batch was learned from
    for name, tensor in state.items():
        assert torch.equal(found[name], tensor), name
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(resumed.model.state_dict()[name], tensor), name


def test_a_checkpoint_without_its_state_is_refused(tmp_path):
    with pytest.raises(Killed):
        trainer(tmp_path, new_loss(), [Killer()]).train()
    other = trainer_loss(aimfor.Loss("f1"))
    with pytest.raises(ValueError, match="holds no state of the loss for 'f1'"):
        trainer(tmp_path, other).train(resume_from_checkpoint=True)


def test_best_model_is_chosen_by_the_metric_and_its_state_is_loaded(tmp_path):
    options = {"eval_strategy": "steps", "eval_steps": 2, "save_steps": 2, "load_best_model_at_end": True}
    with pytest.raises(ValueError, match="eval_loss is a Lagrangian"):
        trainer(tmp_path, new_loss(), **options)
    with pytest.raises(ValueError, match=r"greater_is_better must be False for 'fpr@tpr>=0\.9'"):
        trainer(tmp_path, trainer_loss(aimfor.Loss("fpr@tpr>=0.9")), metric_for_best_model="aim", **options)
    loss = new_loss()
    run = trainer(tmp_path, loss, metric_for_best_model="aim", **options)
    run.train()
    values = {entry["step"]: entry["eval_aim"] for entry in run.state.log_history if "eval_aim" in entry}
    best = max(values, key=lambda step: (values[step], -step))
    assert run.state.best_metric == values[best]
    assert len(set(values.values())) > 1
    assert loss.loss.state.batches == 2 * best
    scores, labels = predictions(run)
    assert values[best] == aimfor.metrics.recall_at_precision(labels, scores, 0.7).value


def predictions(run: Trainer) -> tuple[torch.Tensor, torch.Tensor]:
    rows = data(1)
    words, labels = (torch.stack([row[name] for row in rows]) for name in ("input_ids", "labels"))
    with torch.no_grad():
        logits = run.model.eval()(input_ids=words).logits
    return logits[:, 1] - logits[:, 0], labels


def test_metric_of_batches_equals_that_of_the_whole(tmp_path):
    whole, batches = trainer(tmp_path, new_loss()), trainer(tmp_path, new_loss(), batch_eval_metrics=True)
    assert batches.evaluate()["eval_aim"] == batches.evaluate()["eval_aim"] == whole.evaluate()["eval_aim"]


def test_evaluation_leaves_the_state_alone(tmp_path):
    loss = new_loss()
    trainer(tmp_path, loss).evaluate()
    assert loss.loss.state.batches == 0


def test_a_forgotten_callback_is_reported(tmp_path):
    loss = new_loss()
    run = Trainer(bert(), arguments(tmp_path), train_dataset=data(), compute_loss_func=loss)
    with pytest.raises(RuntimeError, match=r"callbacks=\[loss\]"):
        run.train()


def test_only_a_loss_is_taken():
    with pytest.raises(TypeError, match=r"loss must be an aimfor\.Loss, got str"):
        trainer_loss("f1")  # pyright: ignore[reportArgumentType]


def test_logits_of_all_heads():
    one, two = torch.randn(4, 1), torch.randn(4, 2)
    labels = torch.tensor([1, 0, -100, 1])
    single = aimfor.Loss("f1")
    scores, _, mask = training_entries(two, labels, single)
    assert torch.equal(scores, two[:, 1] - two[:, 0])
    assert mask is not None
    assert mask.tolist() == [True, True, False, True]
    scores, flat, mask = training_entries(one, labels.clamp(min=0).unsqueeze(1).float(), single)
    assert scores.shape == flat.shape == (4,)
    assert mask is None
    scores, flat, mask = training_entries(torch.randn(2, 2, 3), labels.view(2, 2), aimfor.Loss("f1", num_labels=3))
    assert scores.shape == (4, 3)
    assert flat.shape == (4,)


class Head(torch.nn.Module):
    """A linear model with the default two-logit head."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(4, 2)

    def forward(self, inputs, labels=None):
        return {"logits": self.layer(inputs)}


def numbers(rows: int) -> list[dict]:
    generator = torch.Generator().manual_seed(3)
    inputs = torch.randn(rows, 4, generator=generator)
    labels = (inputs[:, 0] + torch.randn(rows, generator=generator) > 0.7).long()
    labels[5] = -100  # ranks and micro-batches hold different numbers of known labels
    return [{"inputs": row, "labels": label} for row, label in zip(inputs, labels, strict=True)]


class Gradients(TrainerCallback):
    """Keeps the gradient of every optimiser step."""

    def __init__(self):
        self.kept: list[torch.Tensor] = []

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        assert model is not None
        self.kept.append(model.layer.weight.grad.clone())


class InOrder(Trainer):
    def _get_train_sampler(self, train_dataset=None):
        return torch.utils.data.SequentialSampler(self.train_dataset)


def gradients(folder: str, batch: int, accumulation: int, rows: int, frozen: bool, **options):
    model, kept, loss = Head(), Gradients(), trainer_loss(aimfor.Loss(AIM))
    if frozen:
        learn_a_state(loss.loss)
    settings = arguments(
        Path(folder) / "run",
        per_device_train_batch_size=batch,
        gradient_accumulation_steps=accumulation,
        max_grad_norm=0,
        max_steps=-1,
        num_train_epochs=1,
        save_strategy="no",
        **options,
    )
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    constant = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: 1.0)
    run = InOrder(
        model,
        settings,
        train_dataset=numbers(rows),
        compute_loss_func=loss,
        callbacks=[loss, kept],
        optimizers=(optimiser, constant),
    )
    run.train()
    return kept.kept, loss.loss.state_dict()


def learn_a_state(loss: aimfor.Loss) -> None:
    rows = numbers(32)
    for _ in range(3):
        inputs, labels = (torch.stack([row[name] for row in rows]) for name in ("inputs", "labels"))
        loss(inputs[:, 0].requires_grad_(), labels, mask=labels >= 0)
    loss.eval()


def plain_loop(rows: int, batch: int, accumulation: int):
    """The same micro-batches in a loop of one's own."""
    model, loss, found = Head(), aimfor.Loss(AIM), []
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    table = numbers(rows)
    inputs, labels = (torch.stack([row[name] for row in table]) for name in ("inputs", "labels"))
    step = batch * accumulation
    for start in range(0, rows, step):
        known = (labels[start : start + step] >= 0).sum()
        for first in range(start, min(start + step, rows), batch):
            part = slice(first, first + batch)
            logits, mask = model(inputs[part])["logits"], labels[part] >= 0
            value = loss(logits[:, 1] - logits[:, 0], labels[part], mask=mask)
            (value * mask.sum() / known).backward()
        found.append(model.layer.weight.grad.clone())
        optimiser.step()
        optimiser.zero_grad()
    return found, loss.state_dict()


def test_accumulation_gives_the_gradients_of_a_plain_loop(tmp_path):
    # The last optimiser step has two micro-batches, the last of them half the rows.
    found, expected = gradients(str(tmp_path), 4, 4, 38, frozen=False), plain_loop(38, 4, 4)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-7)


def test_accumulation_gives_the_gradients_of_one_batch_while_the_state_stands_still(tmp_path):
    found, _ = gradients(str(tmp_path / "4"), 4, 4, 38, frozen=True)
    expected, _ = gradients(str(tmp_path / "1"), 16, 1, 38, frozen=True)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-7)


def one_of_two(rank: int, folder: str, port: int, across_devices: bool) -> None:
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="localhost")
    os.environ.update(MASTER_PORT=str(port), ACCELERATE_USE_CPU="true")
    found = gradients(folder, 4, 4, 64, frozen=False, average_tokens_across_devices=across_devices, ddp_backend="gloo")
    torch.save(found, Path(folder) / f"{rank}.pt")
    torch.distributed.destroy_process_group()


@pytest.mark.slow  # each process imports transformers
@pytest.mark.parametrize("across_devices", [True, False])
def test_two_processes_and_accumulation_give_the_gradients_of_one(across_devices):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    expected = plain_loop(64, 8, 4)
    for found in in_two_processes(one_of_two, port, across_devices):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_state_is_stored_in_the_checkpoint(tmp_path):
    loss = new_loss()
    trainer(tmp_path, loss, max_steps=1, save_steps=1).train()
    stored = json.loads((tmp_path / "checkpoint-1" / "trainer_state.json").read_text())["stateful_callbacks"]
    assert sum("aimfor.Loss" in name for name in stored) == 1
