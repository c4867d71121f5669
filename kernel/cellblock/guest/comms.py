"""Comms: the `comm` package's manager and channels, over the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import comm
from comm.base_comm import BaseComm, CommManager

from cellblock.guest.output import plain
from cellblock.wire import messages

if TYPE_CHECKING:
    from cellblock.guest.output import Out


class Kernel:
    """What libraries look for in ``get_ipython().kernel``: the comms, and which request runs.

    An Output widget captures the output of a message id. The host puts the real one in place of
    what is named here: a guest knows none.
    """

    def __init__(self, manager: CommManager) -> None:
        self.comm_manager = manager
        self.request = 0

    def get_parent(self, _channel: str | None = None) -> dict[str, Any]:
        """Return a stand-in for the message that is being answered."""
        return {"header": {"msg_id": f"request-{self.request}"}}


_KINDS: dict[str, messages.CommKind] = {
    "comm_open": "comm_open",
    "comm_msg": "comm_msg",
    "comm_close": "comm_close",
}


def install(out: Out) -> Kernel:
    """Make ``comm.create_comm`` use ``out``; return what holds the comms that are open."""
    manager = CommManager()

    class GuestComm(BaseComm):
        def publish_msg(
            self,
            msg_type: str,
            data: Any = None,
            metadata: Any = None,
            buffers: Any = None,
            **keys: Any,
        ) -> None:
            if msg_type not in _KINDS:
                raise ValueError(f"{msg_type!r} is no comm message")
            content = plain({"data": data or {}, "comm_id": self.comm_id, **keys})
            out.send(
                messages.CommOut(
                    kind=_KINDS[msg_type],
                    content=content,
                    metadata=plain(metadata or {}),
                    buffers=[bytes(b) for b in buffers or ()],
                ),
            )

    comm.create_comm = GuestComm
    comm.get_comm_manager = lambda: manager
    return Kernel(manager)


def deliver(manager: CommManager, message: messages.CommIn) -> None:
    """Hand a front end's message to the comm it names; unknown kinds are dropped."""
    handlers = {
        "comm_open": manager.comm_open,
        "comm_msg": manager.comm_msg,
        "comm_close": manager.comm_close,
    }
    handler = handlers.get(message.kind)
    if handler is not None:
        envelope = {
            "content": message.content,
            "metadata": message.metadata,
            "buffers": message.buffers,
        }
        handler(None, "", envelope)  # type: ignore[arg-type]
