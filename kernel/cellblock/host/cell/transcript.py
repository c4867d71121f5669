"""What cells show: ``Output``, one message, and ``Transcript``, what is seen once each is applied.

The host cleans and bounds outputs and publishes them one by one. Whoever keeps them applies each to
a transcript: a sandbox for the ``Result`` of a cell, ``cellblock run`` for the cell in its notebook
and for each widget that captures what is shown. So these rules are written once: a stream goes on,
a display is updated by its id, and ``clear_output`` clears.

They are nbclient's rules (``NotebookClient.process_message``), and a test compares the two. One
differs: consecutive text of one stream is one output.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from cellblock.render.cards import (
    ARTIFACTS_JSON,
    DENIAL_JSON,
    ENFORCEMENT_JSON,
    OUTCOME_JSON,
    PROBLEM_JSON,
    REFUSAL_JSON,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Kind = Literal[
    "stream",
    "display_data",
    "update_display_data",
    "execute_result",
    "error",
    "clear_output",
    "comm_open",
    "comm_msg",
    "comm_close",
]
#: Types of cellblock's own cards; no cell can send them. Tables that a cell asks for, such as
#: ``%usage``, are the cell's.
_OURS: Final = frozenset(
    {ARTIFACTS_JSON, DENIAL_JSON, ENFORCEMENT_JSON, OUTCOME_JSON, PROBLEM_JSON, REFUSAL_JSON}
)
#: The metadata of a message that the host adds to a cell's: a table, a card. Of a cell's only those
#: of comms have metadata.
BY_HOST: Final = {"cellblock": "host"}
#: Of a line that the host adds. It is a display, since front ends show stderr as they do errors.
NOTICE: Final = {"cellblock": "notice"}
#: Of a line of the host's in a cell's own stream: so much is left out there.
GAP: Final = {"cellblock": "gap"}
#: Of text that a thread of an earlier cell's printed while this one ran.
LATE: Final = {"cellblock": "late"}
#: Of an error of a formatter's: what was to be displayed there is not, or not whole.
OF_DISPLAY: Final = {"cellblock": "display"}
#: What of a message's content a notebook has, as ``nbformat.v4.output_from_msg`` takes it.
_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "stream": ("name", "text"),
    "display_data": ("data", "metadata"),
    "execute_result": ("data", "metadata", "execution_count"),
    "error": ("ename", "evalue", "traceback"),
}
_RICH: Final = frozenset({"display_data", "execute_result", "update_display_data"})


@dataclass(frozen=True, slots=True)
class Output:
    """One output as a front end gets it: the type and content of Jupyter's message.

    In their order these are all that a notebook's outputs are made of: ``clear_output`` and
    ``update_display_data`` are still to be acted on.
    """

    kind: Kind
    content: Mapping[str, Any]
    metadata: Mapping[str, Any] = field(default_factory=dict)
    buffers: tuple[bytes, ...] = ()
    #: Whether it is text that an earlier cell's thread or task printed, as far as that is known.
    late: bool = False

    @property
    def ours(self) -> bool:
        """Whether it is a card of cellblock's, and not the cell's."""
        return not _OURS.isdisjoint(self.content.get("data", ()))

    @property
    def by_host(self) -> bool:
        """Whether the host said it: a notice or a card, also a table that a cell asked for."""
        return self.kind == "display_data" and self.metadata in (BY_HOST, NOTICE)

    @property
    def is_notice(self) -> bool:
        """Whether it is a line that the host adds."""
        return self.kind == "display_data" and self.metadata == NOTICE

    @property
    def is_of_display(self) -> bool:
        """Whether it is the error of what was to be displayed here."""
        return self.kind == "error" and self.metadata == OF_DISPLAY

    @property
    def is_gap(self) -> bool:
        """Whether it is the host's line in a cell's stream that says what is left out there."""
        return self.kind == "stream" and self.metadata == GAP


class Transcript:
    """What a cell, or a widget that captures, shows after the outputs that were applied to it."""

    def __init__(self, outputs: Iterable[dict[str, Any]] = ()) -> None:
        #: In nbformat's form, each display as it was shown first; the text of a stream that went on
        #: is a list of its parts until all is there, as joining each part at once would copy what
        #: came before.
        self._outputs = list(outputs)
        self._clear_due = False
        #: The positions of displays among the outputs, by their ids.
        self.displays: dict[str, list[int]] = {}
        #: The data and metadata that were shown last under each id: what all displays of that id
        #: show from now on, those in earlier cells too.
        self.updates: dict[str, dict[str, Any]] = {}

    def apply(self, output: Output, area: Transcript | None = None) -> None:
        """Apply an output. Comm messages change nothing here.

        ``area`` is the transcript of a widget that captures: the output is added there, or clears
        it. No display can be updated there by its id.
        """
        area = self if area is None else area
        content = output.content
        display_id = (content.get("transient") or {}).get("display_id")
        if display_id and output.kind in _RICH:
            self.updates[display_id] = {key: content[key] for key in ("data", "metadata")}
        if output.kind == "clear_output":
            area.clear(wait=bool(content.get("wait")))
        elif output.kind in _FIELDS:
            made = {key: content[key] for key in _FIELDS[output.kind]}
            area.add({"output_type": output.kind, **made})
            if display_id and area is self:
                self.displays.setdefault(display_id, []).append(len(self._outputs) - 1)

    def outputs(self) -> list[dict[str, Any]]:
        """Return the outputs in nbformat's form, each text in one piece."""
        shown = [
            one | {"text": "".join(one["text"])} if isinstance(one.get("text"), list) else one
            for one in self._outputs
        ]
        # Here and not with each update: a cell may have 20,000 displays of an id, and update it as
        # often.
        for display_id, positions in self.displays.items():
            for position in positions:
                shown[position] = shown[position] | self.updates[display_id]
        return shown

    def add(self, new: dict[str, Any]) -> None:
        """Add an output, or its text to the stream that it continues."""
        if self._clear_due:
            self.clear(wait=False)
        last = self._outputs[-1] if self._outputs else {}
        stream = ("stream", new.get("name"))
        if new["output_type"] == "stream" and (last.get("output_type"), last.get("name")) == stream:
            if isinstance(last["text"], str):
                last["text"] = [last["text"]]
            last["text"].append(new["text"])
        else:
            self._outputs.append(new)

    def clear(self, *, wait: bool) -> None:
        """Clear the outputs; with ``wait``, when the next one comes."""
        self._clear_due = wait
        if not wait:
            self._outputs.clear()
            self.displays.clear()
