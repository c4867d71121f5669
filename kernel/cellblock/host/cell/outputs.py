"""``Outputs``: passes what a guest shows through the gateway and the quota to the publisher.

Text and displays take one of two ways. Until a cell has used up its quota's head, each piece is
cleaned and published at once. After that, pieces are held, the oldest dropped, and ``_settle``
publishes those that are left when the cell ends, below a line that says how much is missing:

    show ──┬── fits into the head ──► clean ──► publish
           └── beyond ──► quota holds the newest ──► _settle: gap line, clean, publish

``OutputLog`` gathers all of it, so ``%output`` can show what is missing.
"""

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
#: Cells that are remembered because their tasks and threads may still show something.
_MAX_PARENTS: Final = 100
#: Marks a line that is cut.
_ELLIPSIS: Final = "…"
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Shown).decode


class ShownCell(Protocol):
    """The part of a ``CellRun`` that ``Outputs`` needs."""

    request: ExecuteRequest
    #: The cell's number in the audit log.
    number: int
    #: The cell's execution count, which front ends show.
    count: int

    @property
    def failed(self) -> bool:
        """Whether an exception of the cell was shown."""

    def error(self, message: wire.Error) -> None:
        """Publish an exception."""

    def program_failed(self, address: str) -> None:
        """Note that a program of the cell failed, and the address that it was given."""


class Outputs:
    """The outputs of one shell. Shows each under the request that it belongs to.

    Two requests matter. ``_parent`` is the one that came last, and has the host's own cards and
    notices. ``_sent`` is the one that the guest was sent last, and has what the guest shows. They
    differ while a cell waits for an answer, and after a cell that was refused: such a cell shows
    only what the host says about it.

    A subshell has an object of its own, made by ``beside`` of the ``main`` shell's. They share the
    comms and the table of sent cells. ``%output`` knows only the main shell's cells.
    """

    def __init__(
        self,
        publisher: Publisher,
        views: Views,
        brake: FlowControl,
        log: OutputLog,
        audit: Audit,
        main: Outputs | None = None,
    ) -> None:
        self._publisher = publisher
        self._views = views
        self._brake = brake
        self._audit = audit
        self._main = main
        #: The log that ``%output`` reads.
        self.cells_kept: OutputLog = log if main is None else main.cells_kept
        self._withheld = Withheld(audit)
        self._kept = log
        self._number = 0
        #: The request that came last: a cell, or a comm message.
        self._parent: Parent | None = None
        #: The request that the guest was sent last.
        self._sent: Parent | None = None
        #: Requests of cells by their execution counts, for what their tasks show later. Only cells
        #: that were sent to the guest, or to a guest that it is a copy of: the guest may name any.
        self.sent_cells: dict[int, Parent] = {} if main is None else main.sent_cells
        #: The cell that runs; None between cells and while a comm message is handled.
        self._cell: ShownCell | None = None
        self._comms: CommTraffic | None = None
        # Of the running cell, reset by ``begin``:
        self._quota = views.quota()
        #: The host's own cards, which are shown again if the cell clears its output.
        self._cards: list[dict[str, Any]] = []
        #: The beginning of an escape sequence or the like at which a piece of a stream was cut.
        #: The next piece may complete it.
        self._cut: dict[Stream, str] = {}
        #: Whether any text had colours, which the line about a gap must reset.
        self._coloured = False
        # Of the session:
        #: Ids of comms that are the host's own: no cell opens one.
        self.host_comms: set[str] = set() if main is None else main.host_comms
        #: Ids of widgets that links have named, under a wider policy too.
        self._linked = set[str]()
        #: The libraries that figures share; None until the first figure.
        self._libraries: SharedLibraries | None = None

    def beside(self) -> Outputs:
        """Return the ``Outputs`` of a new subshell."""
        log_beside = self._kept.nothing()
        return Outputs(self._publisher, self._views, self._brake, log_beside, self._audit, self)

    @property
    def comms(self) -> CommTraffic:
        """The comms. Made, and their module imported, at the first use: a start must be short."""
        if self._main is not None:
            return self._main.comms
        if self._comms is None:
            from cellblock.host.cell.comms import CommTraffic  # noqa: PLC0415 - see the docstring

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
        """The comms if there was a message about one, or None."""
        return self._comms if self._main is None else self._main.open_comms

    def publish(self, kind: str, content: Any, metadata: Any = None) -> None:
        """Publish a message that is clean already, under the request that came last."""
        self._publisher.publish(kind, content, self._parent, metadata=metadata)

    def _is_sent(self) -> bool:
        """Whether the guest was sent the last request: not if it was refused, or still waits."""
        return self._sent is self._parent

    def _is_earlier(self, number: int) -> bool:
        """Whether output of the cell with this count belongs to another request than the last."""
        return self.sent_cells.get(number, self._sent) is not self._parent

    def _publish_under(self, number: int, kind: str, content: Any) -> None:
        """Publish a clean message under the cell with this count, or under the request sent last.

        The guest chooses the count: 0 and unknown counts mean the request sent last.
        """
        self._publisher.publish(kind, content, self.sent_cells.get(number, self._sent))

    def narrowed(self, fields: Collection[str]) -> None:
        """Apply a policy that was narrowed in these ``fields``.

        Drops all comms if the policy's fields about comms are among them.
        """
        self._kept.limit(self._views.kept_bytes())
        if not _OF_COMMS.isdisjoint(fields):
            self._comms = None

    def on_new_guest(self) -> None:
        """Forget comms and earlier cells: a new guest has no comms open and runs no earlier cell.

        Called by the front when a guest has reported its locks.
        """
        self.sent_cells.clear()
        if self._comms is not None:
            self._comms.reset()

    def begin(self, parent: Parent, cell: ShownCell | None = None) -> None:
        """Show outputs under the request ``parent`` from now on, with a fresh quota.

        ``cell`` is None for a comm message. First publishes what is still held of the request
        before.
        """
        self._settle()
        self._withheld.enter()
        self._parent = parent
        self._cell = cell
        if cell is None:
            # A comm message is sent to the guest at once: nobody is asked about it.
            self._sent = parent
        self._number = self._number if cell is None else cell.count
        self._quota = self._views.quota()
        self._cards = []
        self._coloured = False
        self._cut = {}
        self._kept.begin(self._number)
        if self._comms is not None:
            self._comms.begin()
        if self._libraries is not None:
            self._begin_libraries()

    def on_sent(self) -> None:
        """Show the guest's outputs under the last request from now on, which was sent to the guest.

        Remembers numbered cells, so that what their tasks show later appears under them.
        """
        self._sent, cell = self._parent, self._cell
        if cell is None or self._parent is None or not cell.request.store_history:
            return  # without history a cell has no count of its own
        self.sent_cells.pop(cell.count, None)
        self.sent_cells[cell.count] = self._parent
        if len(self.sent_cells) > _MAX_PARENTS:
            del self.sent_cells[next(iter(self.sent_cells))]

    def end(self) -> dict[str, int]:
        """Publish the end of the cell's outputs, and put on the audit log what was left out.

        Return the bytes that were left out, by kind ("stdout", "stderr", "display").
        """
        if self._comms is not None:
            self._comms.end()
        self._settle()
        number = 0 if self._cell is None else self._cell.number
        self._cell = None
        if untaken := self._withheld.messages:
            self.notice(f"left out {untaken:,} messages: a front end did not take them in time")
        return self._withheld.enter(number)

    # --- from the guest -----------------------------------------------------------------------

    def show(self, message: wire.FromGuest) -> None:
        """Pass on one message from the guest, as far as quota and front ends have room.

        While front ends do not read, everything but exceptions is dropped and counted.
        """
        if not self._brake.admits() and not isinstance(message, wire.Error):
            self._withheld.messages += 1
            return
        match message:
            case wire.Stream(name=name, text=text, cell=number, late=late):
                self._text("stderr" if name == "stderr" else "stdout", text, number, late=late)
            case wire.Display():
                self._bundle(message)
            case wire.Result() if self._cell is not None and self._is_sent():
                self._bundle(message)
            case wire.CommOut():
                self.comms.from_guest(message, self._sent, self._quota, self._show_card)
            case wire.Error():
                self._error(message)
            case wire.Show() | wire.NotThere():
                self._answer(message)
            case wire.Clear(wait=wait) if self._is_sent():
                if self._quota.clear(sum(map(json_size, self._cards)), wait=wait):
                    self._clear(wait=wait)
        self._brake.check()

    def tell(self, text: wire.Stream) -> None:
        """Show the host's own text under the last request, even if the guest was not sent that yet.

        An example is the output of installing packages, which a first cell waits for.
        """
        sent_before = self._sent
        self._sent = self._parent
        try:
            self.show(text)
        finally:
            self._sent = sent_before

    def _answer(self, message: wire.Show | wire.NotThere) -> None:
        """Show what a magic asks for, or why the policy hides what a cell looked for in vain.

        Nothing is shown if the quota has no room, or if the policy was not behind it. The address
        that a failed program was given goes to the cell, which shows one card for all.
        """
        if isinstance(message, wire.NotThere) and message.kind == "address":
            if self._cell is not None and self._is_sent():
                self._cell.program_failed(message.name)
        elif isinstance(message, wire.NotThere):
            code = "" if self._cell is None else self._cell.request.code
            line = self._views.missing_once(message, code)
            if line and self._quota.admits(len(line)):
                self.notice(line)
        elif (bundle := self._views.answer(message, self.cells_kept, self._quota)) is not None:
            self._show_card(bundle)

    def _clear(self, *, wait: bool) -> None:
        """Have front ends clear the cell's output; then show the host's own cards again.

        A cell must not be able to remove a denial.
        """
        self.publish("clear_output", {"wait": wait})
        if self._libraries is not None:
            self._libraries.forget()
        for bundle in self._cards:
            self._show_card(bundle)

    def _error(self, message: wire.Error) -> None:
        """Show an exception, within the quota.

        A cell's first exception is shown in any case, below all that is held: it says why the cell
        failed.
        """
        cell = self._cell if self._is_sent() else None
        is_first = cell is not None and not cell.failed
        size = len(message.evalue) + sum(map(len, message.traceback))
        if not self._quota.admits(size) and not is_first:
            return
        if is_first:
            self._settle()
        if cell is not None:
            cell.error(message)
        else:
            error = gateway.clean_error(message.ename, message.evalue, message.traceback)
            self._publish_under(0, "error", error)

    def _text(self, kind: Stream, text: str, number: int, *, late: bool) -> None:
        """Show text of a stream under the cell with this count, within the last request's quota.

        Text of an earlier cell's thread (``late``) has no count. It is published under the cell
        that runs, as by ipykernel, with metadata that says so.
        """
        quota = self._quota
        text, self._cut[kind] = split_tail(self._cut.get(kind, "") + text)
        if quota.holds(kind) and self._kept.full(kind):
            # Neither shown now nor kept: not worth cleaning, since most of it will be dropped.
            # What is left is cleaned when it is shown.
            quota.text(kind, text)
            return
        text = gateway.clean_stream(text)
        self._kept.add(kind, text)
        text_shown = quota.text(kind, text)
        if text_shown and self._is_earlier(number):
            self._publish_under(number, "stream", {"name": kind, "text": text_shown})
        elif text_shown:
            self._coloured = self._coloured or "\x1b" in text_shown
            self.publish("stream", {"name": kind, "text": text_shown}, LATE if late else None)
        if text_shown is not text and quota.over(kind):
            self._kept.overflowed(kind)

    def _bundle(self, message: Shown) -> None:
        """Show a display or a result, or hold it if the quota's head has no room for it."""
        quota = self._quota
        name = _id_of(message)
        update = isinstance(message, wire.Display) and message.update
        quota.display_comes()
        # Nothing is cleaned that can't be shown now: cleaning markup takes long.
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
        size = sum(
            len(value) if isinstance(value, str | bytes) else 0 for value in message.data.values()
        )
        # A message that is larger than the tail is only counted.
        encoded = b"" if size > quota.display_room() else _encode(message)
        quota.hold(encoded, max(size, len(encoded)), name, update=update)
        if not self._kept.full("display"):
            plain = gateway.clean_stream(message.data.get("text/plain", ""))
            self._kept.add("display", f"{plain}\n")
            if quota.over("display"):
                self._kept.overflowed("display")

    def _begin_libraries(self) -> SharedLibraries:
        """Tell ``SharedLibraries`` which cell runs, so that it knows which cell has a library."""
        if self._libraries is None:
            self._libraries = gateway.shared_libraries()
        if self._cell is None:
            self._libraries.begin("")
        else:
            self._libraries.begin(self._cell.request.cell, self._cell.request.deleted)
        return self._libraries

    def _with_library(self, content: dict[str, Any], number: int, *, update: bool) -> None:
        """Add the library that a figure needs, unless another output of the notebook has it.

        ``number`` is the execution count that the display names.
        """
        frame = content["data"].get("text/html")
        if not isinstance(frame, Frame):
            return
        libraries = self._libraries or self._begin_libraries()
        # Later figures may rely on this one's library only if it is among the outputs of the cell
        # that runs. A figure that a widget captures, or that a task shows under an earlier cell,
        # is not.
        comms = self.open_comms
        captured = comms is not None and comms.captures
        is_complete_here = not update and not captured and not self._is_earlier(number)
        content["data"]["text/html"] = libraries.complete(frame, here=is_complete_here)

    def _clean(self, message: Shown, name: str | None) -> tuple[dict[str, Any], int]:
        """Return data and metadata of a bundle, cleaned, and the bytes that they count as.

        These are the bytes that are left, or the bytes of markup that came, if those are more:
        sanitising takes as long if nothing is left. The id ``name`` counts too.
        """
        show = self._views.show
        comms = self.open_comms
        data = show(message.data) if comms is None else comms.bundle(message.data, show)
        self._withheld.of_bundle(message.data, data)
        metadata = gateway.clean_metadata(message.metadata)
        size = sum(
            len(value) if isinstance(value, str) else json_size(value) for value in data.values()
        )
        size = max(size, gateway.markup_size(message.data))
        content = {"data": data, "metadata": metadata}
        return content, size + json_size(metadata) + len(name or "")

    def _finished(
        self, message: Shown, content: dict[str, Any], name: str | None, *, update: bool
    ) -> tuple[str, dict[str, Any]]:
        """Return the type and the whole content of the message to publish."""
        if isinstance(message, wire.Result):
            count = self._number if self._cell is None else self._cell.count
            return "execute_result", content | {"execution_count": count}
        content["transient"] = {} if name is None else {"display_id": name}
        return "update_display_data" if update else "display_data", content

    # --- held outputs -------------------------------------------------------------------------

    def _settle(self) -> None:
        """Publish what is held, each kind below a line that says how much of it is left out."""
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
        ready = [
            message
            for held_display in quota.end_of_displays()
            if (message := self._ready(held_display))
        ]
        if left_out := quota.displays_left_out():
            self.notice(self._left_out("display", left_out))
        for name, content in ready:
            self._publish_held(name, content)

    def _ready(self, held_display: Held) -> tuple[str, dict[str, Any]] | None:
        """Return the type and content of a display that was held; None if it does not fit.

        Its size is known only now that it is cleaned.
        """
        message = _decode(held_display.message)
        name = _id_of(message)
        content, size = self._clean(message, name)
        if not self._quota.shows_held(size):
            return None
        self._with_library(content, 0, update=held_display.update)
        return self._finished(message, content, name, update=held_display.update)

    def _publish_held(self, kind: str, content: dict[str, Any]) -> None:
        """Publish one held message, unless front ends are behind."""
        if self._brake.admits():
            self._publish_under(0, kind, content)
        else:
            self._withheld.messages += 1

    def _left_out(self, kind: Kind, size: int) -> str:
        """Count bytes as withheld; return a sentence with how many and how to read them."""
        self._withheld.size(kind, size)
        cap = f"{kind}_max_bytes is {self._quota.cap(kind):,}"
        where = "" if kind == "display" else f" of {kind} here"
        remedy = output_log.remedy(self._kept.state(kind))
        return f"left out {count(size, 'byte')}{where}: {cap}{remedy}"

    def _mark_gap(self, kind: Stream, end: EndOfText) -> None:
        """Say in a stream what is left out there, on a line of its own.

        The line is in the stream itself, so that a reader of only this stream, as in a ``Result``,
        sees where the gap is. Dots mark a line that is cut there. Without them its rest would read
        like a line that the cell printed.
        """
        start = "\x1b[0m" if self._coloured else ""
        before = f"{_ELLIPSIS}\n" if end.cut_before else ""
        behind = _ELLIPSIS if end.cut_behind else ""
        sentence = self._left_out(kind, end.left_out)
        text = f"{start}{before}{Heading.NOTICE} {sentence}]\n{behind}"
        content = {"name": kind, "text": text}
        self._publisher.publish("stream", content, self._parent, metadata=GAP)

    # --- the host's own cards and notices -----------------------------------------------------

    def notice(self, text: str) -> None:
        """Show a line of the host's own words, as a display: front ends show stderr as an error.

        It appears under the request that came last, as cards do.
        """
        bundle = {"text/plain": f"{Heading.NOTICE} {text}]"}
        self._publish_own(bundle, NOTICE)

    def card(self, bundle: dict[str, Any]) -> None:
        """Show one of the host's own bundles below the cell, even if a widget captures outputs.

        Shows what is held first. If the cell clears its output later, the card is shown again.
        """
        self._settle()
        if (comms := self.open_comms) is not None:
            comms.release(self._parent)
        self._cards.append(bundle)
        self._show_card(bundle)

    def _show_card(self, bundle: dict[str, Any]) -> None:
        self._publish_own(bundle, BY_HOST)

    def _publish_own(self, bundle: dict[str, Any], metadata: dict[str, str]) -> None:
        content = {"data": bundle, "metadata": {}, "transient": {}}
        self._publisher.publish("display_data", content, self._parent, metadata=metadata)


def _id_of(message: Shown) -> str | None:
    """Return the cleaned id by which a display can be updated; None if it has none."""
    name = None if isinstance(message, wire.Result) else message.display_id
    return gateway.clean_name(name) if name is not None else None
