"""How what was stopped is shown: a cell, a guest between cells, a handler of a comm's messages.

``policy`` is the one in force, whose limit it may have been.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cellblock.host.cells import restored
from cellblock.render import stopped as cards
from cellblock.render.problem import problem
from cellblock.render.text import visible
from cellblock.render.values import asked

if TYPE_CHECKING:
    from cellblock.host.cells.views import Shown
    from cellblock.host.outcome import Stopped
    from cellblock.policy.model import Policy
    from cellblock.render.bundle import Bundle

#: What ends a cell at a limit, and the field that sets it.
LIMITS: Final = {
    "timeout": "timeout",
    "cpu": "cpu_seconds",
    "memory": "memory_max_bytes",
    "scratch": "scratch_max_bytes",
}


def shown(stopped: Stopped, policy: Policy | None) -> Shown:
    """Return what is shown of a cell that was ended from outside."""
    why, limit = reason(stopped, policy)
    state = cards.State.kept if stopped.kept else cards.State.gone
    lost: tuple[str, ...] = ()
    if stopped.restored is not None:
        state, lost = cards.State.restored, restored.lacking(stopped.restored)
    own = stopped.seconds is not None
    failure = cards.stopped_failure(why, limit, state=state, lost=lost, own=own)
    return cards.stopped(why, limit, state=state, lost=lost, own=own), failure


def undone(stopped: Stopped, policy: Policy | None) -> Bundle:
    """Return the card for cells that were stepped back over."""
    if stopped.restored is None:  # every copy to go back to had ended
        return shown(stopped, policy)[0]
    return cards.undone(stopped.undone, lost=restored.lacking(stopped.restored))


def unheard(ended: Stopped | str, policy: Policy | None) -> Bundle:
    """Return the card for a comm message whose handler did not come to its end."""
    if not isinstance(ended, str):
        return shown(ended, policy)[0]
    return problem("A message from the page did not reach the cell", ended)


def reason(stopped: Stopped, policy: Policy | None) -> tuple[str, str]:
    """Return why a cell was stopped, and the limit or cause in words.

    A guest may have had a say in those: what would act on a terminal is spelled out.
    """
    detail = visible(stopped.detail)
    match stopped.why:
        case "timeout" | "cpu" | "memory" | "scratch":
            return stopped.why, _limit(stopped.why, policy, stopped.seconds)
        case "interrupt":
            return "interrupted", ""
        case "violation":
            return "protocol", detail
        case "breach":
            return "breach", cards.operation(detail)
        case "crash":
            return "crashed", detail
        case _:
            return "lost", detail


def _limit(why: str, policy: Policy | None, own: float | None) -> str:
    """Return the limit behind a stop in words: the policy's, or the cell's own."""
    field = LIMITS[why]
    return asked(field, getattr(policy, field, None) if own is None else own)
