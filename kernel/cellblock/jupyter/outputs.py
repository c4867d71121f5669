"""A guest's output on its way to the front ends: through the gateway, within the quota."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cellblock.host.output import gateway
from cellblock.jupyter.messages import json_size
from cellblock.wire import messages as wire

if TYPE_CHECKING:
    from cellblock.host.quota import Kind
    from cellblock.jupyter.cells import CellRun
    from cellblock.jupyter.channels import Channels
    from cellblock.jupyter.comms import CommTraffic
    from cellblock.jupyter.messages import Message
    from cellblock.jupyter.outflow import Brake
    from cellblock.jupyter.views import Views


#: Bytes that the tables of ``%policy`` and ``%usage`` are counted as, before it is made.
POLICY_BYTES = 32 << 10


def _length(value: Any) -> int:
    return len(value) if isinstance(value, str | bytes) else 0


class Outputs:
    """What is shown, under the request that it belongs to.

    Output between cells belongs to the cell, or comm message, that came last.
    """

    def __init__(self, channels: Channels, views: Views, brake: Brake) -> None:
        self._channels, self._views, self._brake = channels, views, brake
        self._parent: Message | None = None
        self._cell: CellRun | None = None
        self._quota = views.quota()
        #: Our own, shown since ``begin``.
        self._cards: list[dict[str, Any]] = []
        self._comms: CommTraffic | None = None
        #: Messages that no front end took in time.
        self._untaken = 0

    @property
    def comms(self) -> CommTraffic:
        """Comms, from the first message about one on: kernels start without them."""
        if self._comms is None:
            from cellblock.jupyter.comms import CommTraffic  # noqa: PLC0415 - as said

            policy = self._views.in_force
            self._comms = CommTraffic(self._channels, policy, self._views.show, self._show_card)
        return self._comms

    def forget_comms(self) -> None:
        """Take note that a new guest serves, in which no comm is open."""
        if self._comms is not None:
            self._comms.reset()

    def begin(self, parent: Message, cell: CellRun | None = None) -> None:
        """Show what comes under ``parent``, with a fresh quota."""
        self._parent, self._cell = parent, cell
        self._quota, self._untaken, self._cards = self._views.quota(), 0, []
        if self._comms is not None:
            self._comms.begin()

    def end(self) -> None:
        """Say what was left out of the cell that ends."""
        self._cell = None
        if self._comms is not None:
            self._comms.end()
        for kind, size, cap in self._quota.dropped():
            self._note(f"{size:,} bytes: {kind}_max_bytes is {cap:,}")
        if self._untaken:
            self._note(f"{self._untaken:,} messages: a front end did not take them in time")

    def _note(self, what: str) -> None:
        text = {"name": "stderr", "text": f"[cellblock left out {what}]\n"}
        self._channels.publish("stream", text, self._parent)

    def shown(self, message: wire.FromGuest) -> None:
        """Pass on one message, if there is still room for it."""
        if self._brake.admits() or isinstance(message, wire.Error):
            self._show(message)
            self._brake.check()
        else:
            self._untaken += 1

    def _show(self, message: wire.FromGuest) -> None:
        match message:
            case wire.Stream(name=name, text=text):
                self._text("stderr" if name == "stderr" else "stdout", text)
            case wire.Display():
                self._display(message)
            case wire.Result() if self._cell is not None:
                self._result(message, self._cell)
            case wire.CommOut():
                self.comms.said(message, self._parent, self._quota)
            case wire.Error():
                self._error(message)
            case wire.ShowPolicy() if self._quota.admits(POLICY_BYTES):
                self._show_card(self._views.policy())
            case wire.ShowUsage(line=line) if self._quota.admits(POLICY_BYTES):
                self._show_card(self._views.usage(line))
            case wire.Clear(wait=wait) if self._quota.admits(sum(map(json_size, self._cards))):
                self._clear(wait=wait)

    def _clear(self, *, wait: bool) -> None:
        """Clear what was shown, but for what we said ourselves: a denial can't be taken back."""
        self._channels.publish("clear_output", {"wait": wait}, self._parent)
        for bundle in self._cards:
            self._show_card(bundle)

    def _error(self, message: wire.Error) -> None:
        """Show an exception: a cell's first whatever it showed before, the next within bounds."""
        first = self._cell is not None and not self._cell.failed
        size = len(message.evalue) + sum(map(len, message.traceback))
        if not self._quota.admits(size) and not first:
            return
        if self._cell is not None:
            self._cell.error(message)
        else:
            error = gateway.clean_error(message.ename, message.evalue, message.traceback)
            self._channels.publish("error", error, self._parent)

    def _text(self, kind: Kind, text: str) -> None:
        if self._quota.spent(kind, len(text)):
            return
        text = self._quota.text(kind, gateway.clean_stream(text))
        if text:
            self._channels.publish("stream", {"name": kind, "text": text}, self._parent)

    def _bundle(self, message: wire.Display | wire.Result) -> dict[str, Any] | None:
        """Return a bundle's content, or None when the cell has shown enough."""
        if self._quota.spent("display", sum(map(_length, message.data.values()))):
            return None
        data = self._clean(message.data)
        metadata = gateway.clean_metadata(message.metadata)
        size = sum(len(v) if isinstance(v, str) else json_size(v) for v in data.values())
        if not self._quota.admits(size + json_size(metadata)):
            return None
        return {"data": data, "metadata": metadata}

    def _result(self, message: wire.Result, cell: CellRun) -> None:
        content = self._bundle(message)
        if content is not None:
            content["execution_count"] = cell.count
            self._channels.publish("execute_result", content, self._parent)

    def _display(self, message: wire.Display) -> None:
        content = self._bundle(message)
        if content is None:
            return
        content["transient"] = {}
        name = gateway.clean_name(message.display_id) if message.display_id is not None else None
        if name is not None:
            content["transient"]["display_id"] = name
        kind = "update_display_data" if message.update else "display_data"
        self._channels.publish(kind, content, self._parent)

    def _clean(self, data: Any) -> dict[str, Any]:
        if self._comms is None:
            return self._views.show(data)
        return self._comms.bundle(data, self._views.show)

    def card(self, bundle: dict[str, Any]) -> None:
        """Show one of our own bundles where the user looks, whatever a cell captures."""
        if self._comms is not None:
            self._comms.release(self._parent)
        self._cards.append(bundle)
        self._show_card(bundle)

    def _show_card(self, bundle: dict[str, Any]) -> None:
        content = {"data": bundle, "metadata": {}, "transient": {}}
        self._channels.publish("display_data", content, self._parent)
