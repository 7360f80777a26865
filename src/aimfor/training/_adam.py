"""Adam, as `torch.optim.Adam` steps, on the parameters of heads."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.optim.adam import adam

BETAS, EPSILON = (0.9, 0.999), 1e-8


class Adam:
    """Torch's own step without its optimiser, which first imports torch's compiler: two seconds of every process.

    Args:
        parameters: that it moves.
        rate: of its steps, which may be changed between them.

    Attributes:
        state: of each parameter that had a gradient, by its number: `step`, `exp_avg` and `exp_avg_sq`.
    """

    def __init__(self, parameters: Iterable[Tensor], rate: float):
        self.parameters, self.rate = list(parameters), rate
        self.state: dict[int, dict[str, Tensor]] = {}

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Move the parameters along their gradients."""
        moved = [(number, one, one.grad) for number, one in enumerate(self.parameters) if one.grad is not None]
        for number, one, _ in moved:
            if number not in self.state:
                moments = {name: torch.zeros_like(one) for name in ("exp_avg", "exp_avg_sq")}
                self.state[number] = {"step": torch.zeros((), device="cpu"), **moments}
        states = [self.state[number] for number, *_ in moved]
        adam(
            [one for _, one, _ in moved],
            [gradient for *_, gradient in moved],
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            [state["step"] for state in states],
            amsgrad=False,
            beta1=BETAS[0],
            beta2=BETAS[1],
            lr=self.rate,
            weight_decay=0.0,
            eps=EPSILON,
            maximize=False,
        )
