"""The rules of whatever runs now: a policy's, and with a cell those of what was approved for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cellblock.analysis import Rules
    from cellblock.wire.messages import Granted


class Permits:
    """Held by the import guard and by whoever runs cells; the host says what was approved."""

    def __init__(self, rules: Rules) -> None:
        self._policys = self.rules = rules

    def give(self, granted: Granted | None) -> Rules:
        """Have what is ``granted``, and nothing else, be allowed besides; return the rules."""
        if granted is None:
            self.rules = self._policys
        else:
            self.rules = self._policys.granting(granted.modules, granted.packages)
        return self.rules
