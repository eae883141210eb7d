"""Steps of an optimizer, none of them along what is no number.

Such a step would make every weight NaN. It is not taken, but counted, and too many in a row are an error with the cause.
Whether a step is one is decided where the gradient is, so that nobody waits for a GPU, and counted when somebody looks.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from distrl.errors import DistrlError, RoleCrashed

MOST_IN_A_ROW = 20
"""Steps left out after which something is wrong for good."""


class FiniteSteps:
    """Goes downhill with a fused `optimizer`; the gradient of each of `parts` is cut to `clip` on its own.

    `what` is what people call the steps, `fix` what they can do where these are no numbers for good.
    """

    def __init__(
        self, optimizer: torch.optim.AdamW, parts: Iterable[Iterable[nn.Parameter]], *, clip: float, what: str, fix: str
    ) -> None:
        self.optimizer, self._clip, self._what, self._fix = optimizer, clip, what, fix
        self._parts = [list(part) for part in parts]
        self._bad: list[Tensor] = []
        self.left_out = 0
        """Steps that were not taken, as of the last look."""
        self._taken = self._in_a_row = 0

    def take(self, loss: Tensor) -> Tensor:
        """Go down `loss` once if it and its gradient are numbers; the norm of the first part's gradient, uncut."""
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        norms = [torch.nn.utils.clip_grad_norm_(part, self._clip) for part in self._parts]
        bad = (~sum(norms, loss.detach()).isfinite()).float()
        # What torch's own gradient scaler tells a fused optimizer: leave everything as it is.
        self.optimizer.found_inf = bad  # type: ignore[attr-defined]
        self.optimizer.step()
        # Flags are stacked, so they have to be in one place; where nothing has a gradient, its norm is on the CPU.
        here = self.optimizer.param_groups[0]["params"][0].device
        self._bad.append(bad.to(here, non_blocking=True))
        return norms[0].detach()

    def leave_out(self, why: DistrlError) -> None:
        """Count a step that ended half-way; `why` is raised after too many in a row."""
        for remembered in self.optimizer.state.values():
            # Filled in at the first step, one after the other, and taken as whole at the next.
            if "exp_avg_sq" not in remembered:
                remembered.clear()
        self.left_out, self._in_a_row = self.left_out + 1, self._in_a_row + 1
        if self._in_a_row >= MOST_IN_A_ROW:
            raise why

    def look(self) -> None:
        """Count the steps that were not taken since the last look; `RoleCrashed` after too many in a row."""
        seen, self._bad = self._bad, []
        for bad in torch.stack(seen).tolist() if seen else []:
            self._in_a_row = self._in_a_row + 1 if bad else 0
            self.left_out, self._taken = self.left_out + bool(bad), self._taken + (not bad)
            if self._in_a_row >= MOST_IN_A_ROW:
                raise self._gone_wrong()

    def end(self) -> None:
        """Look for the last time; `RoleCrashed` also where no step was ever taken, however few there were."""
        self.look()
        if self.left_out and not self._taken:
            raise self._gone_wrong()

    def _gone_wrong(self) -> RoleCrashed:
        return RoleCrashed(
            f"the loss or the gradient of the last {self._in_a_row} {self._what} is no number",
            expected="numbers",
            fix=self._fix,
        )
