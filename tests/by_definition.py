"""The value of the loss by its definition, for autograd to differentiate."""

import torch
from torch.nn import functional as F

import aimfor
from aimfor.aims._table import Anchors, Rates
from aimfor.loss._surrogates import SURROGATES as RECORDS


def _table(loss: aimfor.Loss) -> tuple[Anchors, torch.Tensor]:
    """Anchors and multipliers."""
    priors, state = loss.priors.double(), loss.state
    surrogate_rates, exact_rates = (
        Rates(*(rate.double() for rate in rates)) for rates in (state.surrogate_rates, state.exact_rates)
    )
    anchors = loss.aim.anchors(priors, exact_rates if loss.constraint == "exact" else surrogate_rates)
    anchors = loss.aim.counted(anchors, priors, exact_rates)
    return anchors, (loss.multipliers if anchors.multiplier is None else anchors.multiplier).double()


def share_of_aim(loss: aimfor.Loss, log_loss: float) -> torch.Tensor:
    """`[L]`, the part of the aim in the gradient: log-loss gives a positive and a negative row weights of 1."""
    u_total, v_total = (cost.sum(0) for cost in _table(loss)[0].costs(_table(loss)[1]))
    positives, negatives = loss.state.class_weight.double()
    size = (positives + negatives) * (u_total / positives + v_total / negatives) / 2 / (u_total + v_total)
    return (1 - log_loss) / (1 - log_loss + log_loss * size)


def lagrangian(loss: aimfor.Loss, scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The value of a loss that learns nothing, with everything as one [K, B, L] tensor."""
    priors = loss.priors.double()
    anchors, multipliers = _table(loss)
    surrogate, sharpness = loss.surrogate, 1.0
    if surrogate.sharpness is not None:
        warming = bool((loss.state.steps < loss.warmup).all())
        surrogate = RECORDS["hinge"] if warming else surrogate
        sharpness = 1.0 if warming else surrogate.sharpness / loss.state.score_variance.double().sqrt()
    margin = (scores - loss.thresholds.double().unsqueeze(1)) * sharpness
    positive = labels == 1
    u = (surrogate.loss(margin) * positive).sum(1) / (priors * len(scores))
    v = (surrogate.loss(-margin) * ~positive).sum(1) / ((1 - priors) * len(scores))
    rates = Rates(u, v, positive.sum(0) / (priors * len(scores)))
    value = (anchors.width * (anchors.objective(rates) + multipliers * anchors.violation(rates))).sum(0)
    aim = value / sum(anchors.costs(multipliers)).sum(0)
    log_loss = F.binary_cross_entropy_with_logits(scores, labels.to(scores), reduction="none").mean(0)
    return torch.lerp(log_loss.to(aim), aim, share_of_aim(loss, loss.log_loss)).mean()
