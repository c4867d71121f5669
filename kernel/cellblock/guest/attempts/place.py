"""What the attempts of a trial are made on."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cellblock.wire.messages import Limits, Trial


class Place:
    """What there is to try the locks on, and where this guest may write."""

    def __init__(self, trial: Trial, scratch: str) -> None:
        self.outside, self.inside, self.denied = trial.outside, trial.inside, trial.denied
        self.ports, self.sockets = trial.ports, trial.sockets
        self.process, self.variable = trial.process, trial.variable
        self.limits: Limits = trial.limits
        self.scratch = scratch
