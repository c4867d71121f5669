"""The control channel: what control needs is answered, and nothing else. No cell enters here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cellblock.jupyter import info

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.jupyter.channels import Channels
    from cellblock.jupyter.messages import Message


class Control:
    """Answers at once, whatever runs; ``interrupt`` and ``stop`` are the kernel's."""

    def __init__(
        self, channels: Channels, interrupt: Callable[[], None], stop: Callable[[], None]
    ) -> None:
        self._channels, self._interrupt, self._stop = channels, interrupt, stop
        self._handlers = {
            "kernel_info_request": self._kernel_info,
            "interrupt_request": self._on_interrupt,
            "shutdown_request": self._shutdown,
        }

    def take(self) -> None:
        """Answer what has arrived."""
        for message in self._channels.receive("control"):
            # No busy and idle here: front ends keep one status for a kernel, and an idle that
            # answers an interrupt would say that the running cell has ended.
            self._handlers.get(message.kind, self._not_offered)(message)

    def _kernel_info(self, message: Message) -> None:
        content = {"status": "ok"} | info.kernel_info()
        self._channels.reply("control", content, message)

    def _on_interrupt(self, message: Message) -> None:
        self._interrupt()
        self._channels.reply("control", {"status": "ok"}, message)

    def _shutdown(self, message: Message) -> None:
        content = {"status": "ok", "restart": bool(message.content.get("restart"))}
        self._channels.reply("control", content, message)
        self._channels.publish("shutdown_reply", content, message)
        self._stop()

    def _not_offered(self, message: Message) -> None:
        self._channels.not_offered("control", message)
