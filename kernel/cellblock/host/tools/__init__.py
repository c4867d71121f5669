"""Host tools: the operator's functions, which cells call.

``broker`` judges calls and keeps account of them; ``approval`` is where one may be asked about;
whoever runs them is a ``provider``. The operator's functions run in ``workshop``'s worker, a
process of its own (``worker``, ``registry``, ``runs``), which may hang, crash and be killed without
the host; those of a program that has cells run, in that program itself (``functions``). Operations
of the host's own (``host.ops``) and calls of language models (``host.llm``) come by the same way,
and run in workers of their own: ``crew`` knows who runs what.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cellblock.host.llm.ledger import Ledger
    from cellblock.host.ops.provider import Offer
    from cellblock.host.tools.approval import Approval
    from cellblock.host.tools.provider import Source
    from cellblock.host.tools.record import Record
    from cellblock.host.tools.settings import Settings
    from cellblock.policy.sections import Llm


def _unobserved(_record: Record) -> None: ...
def _uncounted(_calls: int) -> None: ...
def _open() -> None: ...


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Calls at once, in one cell and in a second (None: any number), bytes of one's arguments.

    And seconds that one may take (None: any number), of all tools and of some by name.
    """

    in_flight: int
    calls: int | None
    rate: int | None = None
    max_bytes: int
    timeout: float | None = None
    timeouts: Mapping[str, float] = {}


class Models(msgspec.Struct, frozen=True, kw_only=True):
    """Language models that cells may ask, and the account of what that costs."""

    section: Llm
    ledger: Ledger


class Tooling(msgspec.Struct, frozen=True, kw_only=True):
    """What a session is told: what cells may call of whom, and within what limits.

    None stands for what there is nothing of.
    """

    settings: Settings | None = None
    #: Makes what has functions of the program that has cells run.
    given: Callable[[], Source] | None = None
    operations: Offer | None = None
    models: Models | None = None
    limits: Limits
    #: Gets the record of every call that ended: for the audit log.
    observe: Callable[[Record], None] = _unobserved
    #: Gets how many calls were refused that no record is made of.
    unlisted: Callable[[int], None] = _uncounted
    #: Says why no call may begin now, if so.
    barred: Callable[[], object] = _open
    #: Decides about calls; None asks nobody.
    approval: Approval | None = None
