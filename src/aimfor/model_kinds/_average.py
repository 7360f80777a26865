"""Models of several kinds as one: the weighted mean of their standardised scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from aimfor.model_kinds._kind import Model, OnnxGraph


class Member(NamedTuple):
    """A model of an average.

    Attributes:
        model: the model.
        share: its weight; the shares of an average add up to 1.
        centres, scales: `[L]`, subtracted from its scores, and what they are divided by then.
    """

    model: Model
    share: float
    centres: np.ndarray
    scales: np.ndarray


class Average(Model):
    """The mean of the standardised scores of several models.

    Args:
        members: at least one.
        multiclass: whether the scores are log-odds of classes.
    """

    kind = "auto"

    def __init__(self, members: Sequence[Member], multiclass: bool):
        self.members, self.multiclass = tuple(members), multiclass
        self.num_outputs = self.members[0].model.num_outputs
        self.exact = all(member.model.exact for member in self.members)

    @classmethod
    def of(
        cls,
        models: Sequence[Model],
        shares: Sequence[float],
        scores: Sequence[np.ndarray],
        weights: np.ndarray | None,
        multiclass: bool,
    ) -> Average:
        """Average models by their mean and spread on some rows.

        Args:
            models: which to average.
            shares: the weight of each.
            scores: of each the scores `[n, L]` of the same rows.
            weights: of the rows, or None.
            multiclass: log-odds of classes stay as they are, as their scale says which class is likelier.
        """
        members = []
        for model, share, own in zip(models, shares, scores, strict=True):
            if multiclass:
                centres, scales = np.zeros(own.shape[1]), np.ones(own.shape[1])
            else:
                own = own.astype(np.float64)
                centres = np.average(own, axis=0, weights=weights)
                spread = np.sqrt(np.average((own - centres) ** 2, axis=0, weights=weights))
                scales = np.where(spread > 0, spread, 1.0)
            members.append(Member(model, share / sum(shares), centres, scales))
        return cls(members, multiclass)

    @classmethod
    def alone(cls, model: Model, multiclass: bool) -> Average:
        """A model by itself, with its own scores."""
        return cls([Member(model, 1.0, np.zeros(model.num_outputs), np.ones(model.num_outputs))], multiclass)

    @property
    def gain(self) -> np.ndarray | None:
        known = [member.model.gain for member in self.members]
        return next((gain for gain in known if gain is not None), None)

    @property
    def coefficients(self) -> tuple[np.ndarray, np.ndarray] | None:
        return self.members[0].model.coefficients if len(self.members) == 1 else None

    def scores(self, features: Any, index: np.ndarray | None = None) -> np.ndarray:
        return self.combine([member.model.scores(features, index) for member in self.members])

    def combine(self, scores: Sequence[np.ndarray]) -> np.ndarray:
        """The average from the members' own scores."""
        total = np.zeros(scores[0].shape)
        for member, own in zip(self.members, scores, strict=True):
            total += member.share * ((own - member.centres) / member.scales)
        return total.astype(np.float32).astype(np.float64)

    def describe(self) -> dict[str, Any]:
        members = [member.model.describe() for member in self.members]
        return {
            "model": self.kind,
            "num_features": members[0]["num_features"],
            "num_labels": self.num_outputs,
            "multiclass": self.multiclass,
            "members": members,
        }

    def to_tensors(self) -> dict[str, Tensor]:
        return {
            "average.shares": torch.tensor([member.share for member in self.members], dtype=torch.float64),
            "average.centres": torch.from_numpy(np.stack([member.centres for member in self.members])),
            "average.scales": torch.from_numpy(np.stack([member.scales for member in self.members])),
            **{
                f"members.{place}.{name}": tensor
                for place, member in enumerate(self.members)
                for name, tensor in member.model.to_tensors().items()
            },
        }

    def to_onnx(self, graph: OnnxGraph, features: str) -> str:
        total = None
        for member in self.members:
            # Every model of the classifier gives scores in single precision.
            fill = member.model.missing_values
            known = features
            if fill is not None:
                known = graph("Where", graph("IsNaN", features), graph.constant(fill[None]), features)
            own = graph("Cast", member.model.to_onnx(graph, known), to=FLOAT)
            own = graph("Sub", graph("Cast", own, to=DOUBLE), graph.constant(member.centres[None]))
            own = graph("Div", own, graph.constant(member.scales[None]))
            own = graph("Mul", own, graph.constant(member.share))
            total = own if total is None else graph("Add", total, own)
        assert total is not None
        return total


# ONNX's numbers of the types.
FLOAT, DOUBLE = 1, 11
