"""Where a call may be asked about before it is run: a hook, and what stands there otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.host.tools.provider import Call


class Approval(Protocol):
    """Decides about a call that the policy grants and that nothing of has been run yet.

    Exactly one of ``proceed()`` and ``refuse(why)`` is called, now or later. Neither does anything
    once the call was withdrawn; ``dropped`` says that, so that nobody is asked any more.
    """

    def decide(
        self, call: Call, proceed: Callable[[], None], refuse: Callable[[str], None]
    ) -> None:
        """Decide about ``call``."""

    def dropped(self, number: int) -> None:
        """Take note that nobody waits any more for this call; harmless when it is decided."""


class Unasked:
    """Approves of whatever the policy grants."""

    def decide(
        self,
        call: Call,  # noqa: ARG002 - whatever it is
        proceed: Callable[[], None],
        refuse: Callable[[str], None],  # noqa: ARG002 - as above
    ) -> None:
        """Go ahead."""
        proceed()

    def dropped(self, number: int) -> None:
        """Do nothing: nobody was asked."""


class Nobody:
    """Approves of nothing: the policy has users asked, and whoever runs the cells can't be."""

    def decide(
        self,
        call: Call,  # noqa: ARG002 - whatever it is
        proceed: Callable[[], None],  # noqa: ARG002 - as above
        refuse: Callable[[str], None],
    ) -> None:
        """Refuse it."""
        refuse("nobody can be asked: a program runs the cells")

    def dropped(self, number: int) -> None:
        """Do nothing: nobody was asked."""
