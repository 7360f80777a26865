"""Hugging Face's Trainer: `trainer_loss` makes a loss what `compute_loss_func`, `callbacks` and `compute_metrics` take.

The Trainer leaves three things to such a loss. It must scale its value for gradient accumulation and processes, it must
save its state in checkpoints, and it must give a metric to choose the best model by, as its value is a Lagrangian.
"""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any, ClassVar

import torch
from accelerate.utils import reduce
from torch import Tensor
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState

from aimfor.loss import Loss, Metric

METRIC = "aim"  # the key of the metric: `eval_aim` in the logs
UNKNOWN = -100  # the label that Hugging Face gives to what has none


class TrainerLoss(TrainerCallback, ExportableState):
    """A loss for the Trainer; made by `trainer_loss`.

    Its state lies in `trainer_state.json` of every checkpoint, and `resume_from_checkpoint` loads it. With
    `load_best_model_at_end` the state of the best checkpoint is loaded too, so that thresholds and model belong
    together.
    """

    loss: ClassVar[Loss]
    known_to_trainer: ClassVar[bool] = False

    def __init__(self) -> None:
        loss = self.loss
        self._metric = Metric(
            loss.aim, num_labels=loss.num_labels, multiclass=loss.multiclass, process_group=False
        )  # the Trainer gathers the rows itself

    def __call__(self, outputs: Any, labels: Tensor | None, num_items_in_batch: Tensor | int | None = None) -> Tensor:
        """What the Trainer calls as `compute_loss_func`.

        Args:
            outputs: of the model: logits `[B, L]`, two logits or one for a single label, or `[B, T, ...]` for tokens.
            labels: as the loss takes them, -100 where there is none.
            num_items_in_batch: number of labels in all micro-batches of this optimiser step.
        """
        learning = torch.is_grad_enabled()
        if learning and not self.known_to_trainer:
            raise RuntimeError("the Trainer does not save this loss: give it as a callback too, callbacks=[loss]")
        if labels is None:
            raise ValueError("the batch has no labels: name their column in label_names and call it 'labels'")
        logits = outputs["logits"] if isinstance(outputs, dict) else outputs[0]
        scores, labels, mask = training_entries(logits, labels, self.loss)
        value = self.loss(scores, labels, mask=mask)
        if num_items_in_batch is None:
            return value
        return value * share_of_step(labels, num_items_in_batch, learning)

    def compute_metrics(self, prediction: Any, compute_result: bool = True) -> dict[str, float]:
        """What the Trainer calls as `compute_metrics`, also with `batch_eval_metrics=True`: the exact metric."""
        logits = prediction.predictions
        logits = torch.as_tensor(logits[0] if isinstance(logits, tuple) else logits)
        scores, labels, mask = training_entries(logits, torch.as_tensor(prediction.label_ids), self.loss)
        self._metric.update(scores, labels, mask=mask)
        if not compute_result:
            return {}
        value = self._metric.compute().item()
        self._metric.reset()
        return {METRIC: value}

    def on_init_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Check the arguments, and move the loss to the device of the model."""
        check_arguments(args, self.loss)
        self.loss.to(args.device)
        type(self).known_to_trainer = True

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Load the state of the loss from the checkpoint that training resumes from."""
        if state.global_step > 0:
            self._load(state, "the checkpoint to resume from")

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Load the state that belongs to the best model, where the Trainer has loaded that model."""
        if args.load_best_model_at_end and state.best_model_checkpoint is not None:
            best = Path(state.best_model_checkpoint) / "trainer_state.json"
            self._load(TrainerState.load_from_json(str(best)), str(best))

    def state(self) -> dict[str, dict[str, str]]:
        """The state of the loss as text, for `trainer_state.json`."""
        file = io.BytesIO()
        torch.save(self.loss.state_dict(), file)
        return {"args": {}, "attributes": {"saved": base64.b64encode(file.getvalue()).decode()}}

    def _load(self, state: TrainerState, place: str) -> None:
        callbacks = state.stateful_callbacks
        stored = callbacks.get(type(self).__name__) if isinstance(callbacks, dict) else None
        if not isinstance(stored, dict):
            raise ValueError(
                f"{place} holds no state of the loss for {str(self.loss.aim)!r}: its multipliers would start anew. "
                "Train without resume_from_checkpoint, or resume from a checkpoint that was saved with this loss"
            )
        file = io.BytesIO(base64.b64decode(stored["attributes"]["saved"]))
        self.loss.load_state_dict(torch.load(file, map_location=self.loss.thresholds.device, weights_only=True))


def trainer_loss(loss: Loss) -> TrainerLoss:
    """The loss in the form that the Trainer takes: `compute_loss_func=`, `callbacks=[...]`, `.compute_metrics`.

    Args:
        loss: the loss to train with; its thresholds and multipliers are read from it as ever.

    Example:
        >>> import aimfor
        >>> loss = trainer_loss(aimfor.Loss("recall@precision>=0.9"))
        >>> options = {"compute_loss_func": loss, "compute_metrics": loss.compute_metrics, "callbacks": [loss]}
    """
    if not isinstance(loss, Loss):
        raise TypeError(f"loss must be an aimfor.Loss, got {type(loss).__name__}")
    # The class holds the loss, because the Trainer may make the callback anew from its class alone
    # (restore_callback_states_from_checkpoint). The aim is in the name, under which the Trainer stores the state.
    kind = type(f"aimfor.Loss({loss.extra_repr()})", (TrainerLoss,), {"loss": loss})
    return kind()


def training_entries(logits: Tensor, labels: Tensor, loss: Loss) -> tuple[Tensor, Tensor, Tensor | None]:
    """Scores, labels and mask as the loss takes them; no mask where every label is known.

    Args:
        logits: `[B, ...]` or `[B, T, ...]`, of one logit for each label or class, or of two for a single label.
        labels: 0/1 or class indices, -100 where there is none.
        loss: which says whether the logits are of labels or of classes.
    """
    if logits.ndim == 3:  # tokens are rows
        logits, labels = logits.flatten(0, 1), labels.flatten(0, 1)
    if loss.num_labels == 1 and logits.ndim == 2 and logits.shape[1] <= 2:
        # Of two logits the difference is the log-odds of the second class.
        logits = logits[:, 0] if logits.shape[1] == 1 else logits[:, 1] - logits[:, 0]
        labels = labels.squeeze(1) if labels.ndim == 2 and labels.shape[1] == 1 else labels
    known = labels != UNKNOWN
    return logits, labels, None if bool(known.all()) else known


def share_of_step(labels: Tensor, num_items_in_batch: Tensor | int, learning: bool) -> Tensor:
    """The factor of a micro-batch, so that those of an optimiser step add up to a mean over its labels.

    Where the Trainer counts the items of all processes, it multiplies by the number of processes afterwards. The loss
    is already scaled for the average over processes, so both cases need this one factor.
    """
    total = torch.as_tensor(num_items_in_batch, dtype=torch.float64, device=labels.device).reshape(())
    counts = torch.stack([(labels != UNKNOWN).sum().to(torch.float64), total])
    if learning:  # ranks may hold different numbers of known labels; in evaluation they need not call equally often
        counts = reduce(counts, reduction="mean")
    return (counts[0] / counts[1].clamp(min=1)).float()


def check_arguments(args: TrainingArguments, loss: Loss) -> None:
    """Refuse arguments under which the Trainer would go wrong in silence."""
    if args.n_gpu > 1:
        raise ValueError(
            f"the Trainer would use DataParallel on {args.n_gpu} devices: start one process per device with torchrun"
        )
    chosen_by = (args.metric_for_best_model or "").removeprefix("eval_")
    if chosen_by == "loss":
        raise ValueError(
            "eval_loss is a Lagrangian and says nothing about the best model: set "
            f"metric_for_best_model={METRIC!r} and compute_metrics=loss.compute_metrics"
        )
    better = loss.aim.greater_is_better
    if chosen_by == METRIC and bool(args.greater_is_better) != better:
        raise ValueError(f"greater_is_better must be {better} for {str(loss.aim)!r}, got {args.greater_is_better}")
