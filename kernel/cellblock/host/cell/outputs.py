"""A guest's output on its way to whoever looks: through the gateway, within the quota."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from cellblock.host.cell import output_log
from cellblock.host.cell.quota import STREAMS
from cellblock.host.cell.transcript import BY_HOST, GAP, LATE, NOTICE
from cellblock.host.cell.withheld import Withheld
from cellblock.host.output import gateway
from cellblock.host.output.text import Frame, json_size, split_tail
from cellblock.render.cards import count
from cellblock.render.headings import Heading
from cellblock.wire import messages as wire

if TYPE_CHECKING:
    from collections.abc import Collection

    from cellblock.host.audit.recorder import Audit
    from cellblock.host.cell.comms import CommTraffic
    from cellblock.host.cell.output_log import OutputLog
    from cellblock.host.cell.publishing import FlowControl, Parent, Publisher
    from cellblock.host.cell.quota import EndOfText, Held, Kind, Stream
    from cellblock.host.cell.status import Views
    from cellblock.host.output.frames import SharedLibraries
    from cellblock.host.session.types import ExecuteRequest


#: A display or a result.
Shown = wire.Display | wire.Result
#: Fields of the policy that decide about comms.
_OF_COMMS: Final = frozenset({"comm_targets", "display", "widget_modules"})
#: Cells whose tasks may still show something under them.
_MAX_PARENTS: Final = 100
#: Stands where a line is cut.
_CUT: Final = "…"
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Shown).decode


class ShownCell(Protocol):
    """The cell that shows something."""

    request: ExecuteRequest
    #: Its number in the audit log, and the front's.
    number: int
    count: int

    @property
    def failed(self) -> bool:
        """Whether it raised an exception that was shown."""

    def error(self, message: wire.Error) -> None:
        """Publish an exception."""

    def program_failed(self, address: str) -> None:
        """Note that a program of its own failed, which was to connect to this address."""


class Outputs:
    """Shows outputs under the request that they belong to.

    What a guest shows between cells belongs to the cell, or comm message, that a guest was sent
    last: never to a cell that was refused, which the host says everything of. What is beyond the
    quota is held, and its end shown with the cell's. A subshell has its own, ``beside`` the
    ``main`` shell's: they share the comms, and ``%output`` has the main shell's cells.
    """

    def __init__(
        self,
        publisher: Publisher,
        views: Views,
        brake: FlowControl,
        kept: OutputLog,
        audit: Audit,
        main: Outputs | None = None,
    ) -> None:
        self._publisher, self._views, self._brake = publisher, views, brake
        self._audit, self._main = audit, main
        #: What ``%output`` reads.
        self.cells_kept: OutputLog = kept if main is None else main.cells_kept
        self._withheld = Withheld(audit)
        self._kept, self._number = kept, 0
        self._parent: Parent | None = None
        #: The request of the cell, or the comm message, that a guest was sent last.
        self._sent: Parent | None = None
        #: Requests by the number of their cell, for what their tasks show later. Only cells that
        #: the guest was sent are here, or a guest that it is a copy of: it may name any.
        self.sent_cells: dict[int, Parent] = {} if main is None else main.sent_cells
        self._cell: ShownCell | None = None
        self._comms: CommTraffic | None = None
        # Of the running cell, since ``begin``:
        self._quota = views.quota()
        #: Our own cards.
        self._cards: list[dict[str, Any]] = []
        #: What the last piece of a stream began and the next one may complete.
        self._cut: dict[Stream, str] = {}
        #: Whether text that was shown had colours.
        self._coloured = False
        #: Ids of comms that are the host's own: no cell opens one.
        self.host_comms: set[str] = set() if main is None else main.host_comms
        #: Ids of widgets that links have named, under a wider policy too.
        self._linked = set[str]()
        #: Libraries of figures, from the first one on.
        self._libraries: SharedLibraries | None = None

    def beside(self) -> Outputs:
        """Return what shows the outputs of a subshell."""
        kept = self._kept.nothing()
        return Outputs(self._publisher, self._views, self._brake, kept, self._audit, self)

    @property
    def comms(self) -> CommTraffic:
        """Comms, from the first message about one on: kernels start without them."""
        if self._main is not None:
            return self._main.comms
        if self._comms is None:
            from cellblock.host.cell.comms import CommTraffic  # noqa: PLC0415 - as said

            policy = self._views.in_force
            self._comms = CommTraffic(
                self._publisher,
                policy,
                self._views.show,
                self._show_card,
                withheld=self._withheld,
                host_comms=self.host_comms,
                linked=self._linked,
                file=self._views.file,
            )
        return self._comms

    @property
    def open_comms(self) -> CommTraffic | None:
        """Comms, if there was a message about one."""
        return self._comms if self._main is None else self._main.open_comms

    def publish(self, kind: str, content: Any, metadata: Any = None) -> None:
        """Show what is clean already, under the request that it belongs to."""
        self._publisher.publish(kind, content, self._parent, metadata=metadata)

    def _runs(self) -> bool:
        """Whether what came last is with a guest: not if it is refused, or waits for an answer."""
        return self._sent is self._parent

    def _is_earlier(self, number: int) -> bool:
        """Whether this is the number of another cell than came last."""
        return self.sent_cells.get(number, self._sent) is not self._parent

    def _publish_under(self, number: int, kind: str, content: Any) -> None:
        """Show what is clean already under the cell with this ``number``, if it is known."""
        self._publisher.publish(kind, content, self.sent_cells.get(number, self._sent))

    def narrowed(self, fields: Collection[str]) -> None:
        """Show and keep what a narrower policy lets through; close comms that it decides about."""
        self._kept.limit(self._views.kept_bytes())
        if not _OF_COMMS.isdisjoint(fields):
            self._comms = None

    def on_new_guest(self) -> None:
        """Close all comms, and show nothing under earlier cells: a new guest knows of none."""
        self.sent_cells.clear()
        if self._comms is not None:
            self._comms.reset()

    def begin(self, parent: Parent, cell: ShownCell | None = None) -> None:
        """Show what comes under ``parent``, with a fresh quota."""
        self._settle()
        self._withheld.enter()
        self._parent, self._cell = parent, cell
        if cell is None:  # nobody judges a comm message
            self._sent = parent
        self._number = self._number if cell is None else cell.count
        self._quota, self._cards = self._views.quota(), []
        self._coloured, self._cut = False, {}
        self._kept.begin(self._number)
        if self._comms is not None:
            self._comms.begin()
        if self._libraries is not None:
            self._begin_libraries()

    def on_sent(self) -> None:
        """Show what comes from now on under the cell that came last: a guest was sent it."""
        self._sent, cell = self._parent, self._cell
        if cell is None or self._parent is None or not cell.request.store_history:
            return  # it has no number of its own
        self.sent_cells.pop(cell.count, None)
        self.sent_cells[cell.count] = self._parent
        if len(self.sent_cells) > _MAX_PARENTS:
            del self.sent_cells[next(iter(self.sent_cells))]

    def end(self) -> dict[str, int]:
        """Show the end of what the cell said, and what was left out of it.

        Return the bytes that were left out, by their kind.
        """
        if self._comms is not None:
            self._comms.end()
        self._settle()
        number = 0 if self._cell is None else self._cell.number
        self._cell = None
        if untaken := self._withheld.messages:
            self.notice(f"left out {untaken:,} messages: a front end did not take them in time")
        return self._withheld.enter(number)

    # --- what comes ---------------------------------------------------------------------------

    def show(self, message: wire.FromGuest) -> None:
        """Pass on one message, if there is still room for it."""
        if not self._brake.admits() and not isinstance(message, wire.Error):
            self._withheld.messages += 1
            return
        match message:
            case wire.Stream(name=name, text=text, cell=number, late=late):
                self._text("stderr" if name == "stderr" else "stdout", text, number, late=late)
            case wire.Display():
                self._bundle(message)
            case wire.Result() if self._cell is not None and self._runs():
                self._bundle(message)
            case wire.CommOut():
                self.comms.from_guest(message, self._sent, self._quota, self._show_card)
            case wire.Error():
                self._error(message)
            case wire.Show() | wire.NotThere():
                self._answer(message)
            case wire.Clear(wait=wait) if self._runs():
                if self._quota.clear(sum(map(json_size, self._cards)), wait=wait):
                    self._clear(wait=wait)
        self._brake.check()

    def tell(self, text: wire.Stream) -> None:
        """Show text of the host's own under what came last, whether a guest was sent that or not.

        As of packages that are installed before a first cell can be sent.
        """
        sent, self._sent = self._sent, self._parent
        try:
            self.show(text)
        finally:
            self._sent = sent

    def _answer(self, asked: wire.Show | wire.NotThere) -> None:
        """Show a table or a page of ours, or why something was not there, where there is room."""
        if isinstance(asked, wire.NotThere) and asked.kind == "address":
            if self._cell is not None and self._runs():
                self._cell.program_failed(asked.name)
        elif isinstance(asked, wire.NotThere):
            code = "" if self._cell is None else self._cell.request.code
            line = self._views.missing_once(asked, code)
            if line and self._quota.admits(len(line)):
                self.notice(line)
        elif (bundle := self._views.answer(asked, self.cells_kept, self._quota)) is not None:
            self._show_card(bundle)

    def _clear(self, *, wait: bool) -> None:
        """Clear what was shown, but for our own cards: a denial can't be taken back."""
        self.publish("clear_output", {"wait": wait})
        if self._libraries is not None:
            self._libraries.forget()
        for bundle in self._cards:
            self._show_card(bundle)

    def _error(self, message: wire.Error) -> None:
        """Show an exception: a cell's first whatever it showed before, the next within bounds."""
        cell = self._cell if self._runs() else None
        first = cell is not None and not cell.failed
        size = len(message.evalue) + sum(map(len, message.traceback))
        if not self._quota.admits(size) and not first:
            return
        if first:
            self._settle()
        if cell is not None:
            cell.error(message)
        else:
            error = gateway.clean_error(message.ename, message.evalue, message.traceback)
            self._publish_under(0, "error", error)

    def _text(self, kind: Stream, text: str, number: int, *, late: bool) -> None:
        """Show text under the cell with this ``number``, within the quota of what runs now.

        What is ``late`` stands under the cell that runs, as under ipykernel, and says so.
        """
        quota = self._quota
        text, self._cut[kind] = split_tail(self._cut.get(kind, "") + text)
        if quota.holds(kind) and self._kept.full(kind):
            quota.text(kind, text)  # cleaned when it is shown: of most of it nothing is
            return
        text = gateway.clean_stream(text)
        self._kept.add(kind, text)
        shown = quota.text(kind, text)
        if shown and self._is_earlier(number):
            self._publish_under(number, "stream", {"name": kind, "text": shown})
        elif shown:
            self._coloured = self._coloured or "\x1b" in shown
            self.publish("stream", {"name": kind, "text": shown}, LATE if late else None)
        if shown is not text and quota.over(kind):
            self._kept.overflowed(kind)

    def _bundle(self, message: Shown) -> None:
        """Show a display or a result, or hold it when the cell has shown enough."""
        quota, name = self._quota, _id_of(message)
        update = isinstance(message, wire.Display) and message.update
        quota.display_comes()
        if not quota.holds("display") and not quota.full():
            content, size = self._clean(message, name)
            if quota.fits(size):
                self._kept.add("display", content["data"].get("text/plain", ""))
                self._kept.add("display", "\n")
                number = 0 if isinstance(message, wire.Result) else message.cell
                self._with_library(content, number, update=update)
                published = self._finished(message, content, name, update=update)
                self._publish_under(number, *published)
                return
        size = sum(len(v) if isinstance(v, str | bytes) else 0 for v in message.data.values())
        encoded = b"" if size > quota.display_room() else _encode(message)
        quota.hold(encoded, max(size, len(encoded)), name, update=update)
        if not self._kept.full("display"):
            plain = gateway.clean_stream(message.data.get("text/plain", ""))
            self._kept.add("display", f"{plain}\n")
            if quota.over("display"):
                self._kept.overflowed("display")

    def _begin_libraries(self) -> SharedLibraries:
        if self._libraries is None:
            self._libraries = gateway.shared_libraries()
        if self._cell is None:
            self._libraries.begin("")
        else:
            self._libraries.begin(self._cell.request.cell, self._cell.request.deleted)
        return self._libraries

    def _with_library(self, content: dict[str, Any], number: int, *, update: bool) -> None:
        """Add the library that a figure needs, unless another output of the notebook has it."""
        frame = content["data"].get("text/html")
        if not isinstance(frame, Frame):
            return
        libraries = self._libraries or self._begin_libraries()
        # What a widget captures, or a task shows under an earlier cell, is in no output of this.
        comms = self.open_comms
        captured = comms is not None and comms.captures
        here = not update and not captured and not self._is_earlier(number)
        content["data"]["text/html"] = libraries.complete(frame, here=here)

    def _clean(self, message: Shown, name: str | None) -> tuple[dict[str, Any], int]:
        """Return data and metadata of a bundle, cleaned, and what they count as.

        That is their size with the id ``name``, or what was to be sanitised, which takes as long
        whatever is left of it.
        """
        show, comms = self._views.show, self.open_comms
        data = show(message.data) if comms is None else comms.bundle(message.data, show)
        self._withheld.of_bundle(message.data, data)
        metadata = gateway.clean_metadata(message.metadata)
        size = sum(len(v) if isinstance(v, str) else json_size(v) for v in data.values())
        size = max(size, gateway.markup_size(message.data))
        content = {"data": data, "metadata": metadata}
        return content, size + json_size(metadata) + len(name or "")

    def _finished(
        self, message: Shown, content: dict[str, Any], name: str | None, *, update: bool
    ) -> tuple[str, dict[str, Any]]:
        """Return what is published: a message's type and its whole content."""
        if isinstance(message, wire.Result):
            count = self._number if self._cell is None else self._cell.count
            return "execute_result", content | {"execution_count": count}
        content["transient"] = {} if name is None else {"display_id": name}
        return "update_display_data" if update else "display_data", content

    # --- what is held -------------------------------------------------------------------------

    def _settle(self) -> None:
        """Show what is held, each kind below a line that says how much of it is left out."""
        quota = self._quota
        if quota.calm():
            return
        self._kept.settle()
        if quota.clear_owed:
            quota.clear_owed = False
            self._clear(wait=False)
        for kind in STREAMS:
            end = quota.end_of_text(kind, gateway.clean_stream)
            if end.left_out:
                self._mark_gap(kind, end)
            if end.text:
                self._publish_held("stream", {"name": kind, "text": end.text})
        ready = [message for held in quota.end_of_displays() if (message := self._ready(held))]
        if left_out := quota.displays_left_out():
            self.notice(self._left_out("display", left_out))
        for name, content in ready:
            self._publish_held(name, content)

    def _ready(self, held: Held) -> tuple[str, dict[str, Any]] | None:
        """Return a display that was held as it is published, or None if there is no room."""
        message = _decode(held.message)
        name = _id_of(message)
        content, size = self._clean(message, name)
        if not self._quota.shows_held(size):
            return None
        self._with_library(content, 0, update=held.update)
        return self._finished(message, content, name, update=held.update)

    def _publish_held(self, name: str, content: dict[str, Any]) -> None:
        if self._brake.admits():
            self._publish_under(0, name, content)
        else:
            self._withheld.messages += 1

    def _left_out(self, kind: Kind, size: int) -> str:
        """Count what is left out; return how much that is, and how to read it."""
        self._withheld.size(kind, size)
        cap = f"{kind}_max_bytes is {self._quota.cap(kind):,}"
        where = "" if kind == "display" else f" of {kind} here"
        remedy = output_log.remedy(self._kept.state(kind))
        return f"left out {count(size, 'byte')}{where}: {cap}{remedy}"

    def _mark_gap(self, kind: Stream, end: EndOfText) -> None:
        """Say in a stream what is left out of it there, on a line of its own.

        Whoever reads that stream alone, as a result has it, sees where the gap is. Dots mark a line
        that is cut there: what is left of it would read as a line that was printed.
        """
        start = "\x1b[0m" if self._coloured else ""
        before = f"{_CUT}\n" if end.cut_before else ""
        behind = _CUT if end.cut_behind else ""
        said = self._left_out(kind, end.left_out)
        text = f"{start}{before}{Heading.NOTICE} {said}]\n{behind}"
        content = {"name": kind, "text": text}
        self._publisher.publish("stream", content, self._parent, metadata=GAP)

    # --- what we say --------------------------------------------------------------------------

    def notice(self, what: str) -> None:
        """Say something of our own, in a line that no front end shows as an error."""
        bundle = {"text/plain": f"{Heading.NOTICE} {what}]"}
        self._publisher.publish("display_data", _shown(bundle), self._parent, metadata=NOTICE)

    def card(self, bundle: dict[str, Any]) -> None:
        """Show one of our own bundles where the user looks, whatever a cell captures."""
        self._settle()
        if (comms := self.open_comms) is not None:
            comms.release(self._parent)
        self._cards.append(bundle)
        self._show_card(bundle)

    def _show_card(self, bundle: dict[str, Any]) -> None:
        self._publisher.publish("display_data", _shown(bundle), self._parent, metadata=BY_HOST)


def _shown(bundle: dict[str, Any]) -> dict[str, Any]:
    return {"data": bundle, "metadata": {}, "transient": {}}


def _id_of(message: Shown) -> str | None:
    """Return the id, cleaned, under which a display is updated."""
    name = None if isinstance(message, wire.Result) else message.display_id
    return gateway.clean_name(name) if name is not None else None
