"""The log-odds of each exclusive class against all others: log(p_c / (1 - p_c)) under softmax."""

import torch
from torch import Tensor


def log_odds(scores: Tensor) -> Tensor:
    """Softmax log-odds of every class: f_c - logsumexp of the other classes' scores.

    Ranks examples as the softmax probability of the class does, without rounding to 0 or 1, in O(B C).

    Args:
        scores: `[B, C]`, at least two classes.

    Returns:
        `[B, C]`, differentiable.

    Example:
        >>> log_odds(torch.tensor([[0.0, 0.0], [20000.0, -10000.0]]))
        tensor([[     0.,      0.],
                [ 30000., -30000.]])
    """
    if not isinstance(scores, Tensor) or not scores.is_floating_point():
        kind = scores.dtype if isinstance(scores, Tensor) else type(scores).__name__
        raise TypeError(f"scores must be a floating-point tensor, got {kind}")
    if scores.ndim != 2 or scores.shape[1] < 2:
        raise ValueError(f"scores must have shape [B, C] with C >= 2, got {tuple(scores.shape)}")
    top_score, top = scores.max(dim=1, keepdim=True)
    exps = (scores - top_score.detach()).exp()
    # For a class that is not the top one the top class is among the others, so the difference is at least 1 and nothing
    # cancels. For the top class itself it may cancel down to 0: its others are summed on their own instead.
    others = (exps.sum(dim=1, keepdim=True) - exps).scatter(1, top, 1.0)
    log_others = others.log() + top_score.detach()
    log_others_of_top = scores.scatter(1, top, -torch.inf).logsumexp(dim=1, keepdim=True)
    return scores - log_others.scatter(1, top, log_others_of_top)
