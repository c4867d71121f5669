"""``Output``, one published message, and ``Transcript``, the outputs that messages add up to.

The host publishes a cell's outputs one by one. A front end applies them: text continues a stream,
an update changes earlier displays by their id, ``clear_output`` clears. Fronts that keep outputs
apply them here, so that these rules are written once: a sandbox for a cell's ``Result``, and
``cellblock run`` for the cell in its notebook and for each widget that captures outputs.

The rules are nbclient's (``NotebookClient.process_message``), and a test compares the two. One
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
_OWN_TYPES: Final = frozenset(
    {ARTIFACTS_JSON, DENIAL_JSON, ENFORCEMENT_JSON, OUTCOME_JSON, PROBLEM_JSON, REFUSAL_JSON}
)
# The metadata of published messages. Only the host sets these. A cell's own messages have no
# metadata, except those of comms.
#: Of a message of the host's own among a cell's: a table, a card.
BY_HOST: Final = {"cellblock": "host"}
#: Of a line of the host's own. It is a display, as front ends show stderr as they show errors.
NOTICE: Final = {"cellblock": "notice"}
#: Of a line of the host's in a cell's stream, which says how much is left out there.
GAP: Final = {"cellblock": "gap"}
#: Of text that a thread of an earlier cell printed while this cell ran.
LATE: Final = {"cellblock": "late"}
#: Of a formatter's error: the display in its place is missing or incomplete.
OF_DISPLAY: Final = {"cellblock": "display"}
#: The fields of a message's content that a notebook has (``nbformat.v4.output_from_msg``).
_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "stream": ("name", "text"),
    "display_data": ("data", "metadata"),
    "execute_result": ("data", "metadata", "execution_count"),
    "error": ("ename", "evalue", "traceback"),
}
_RICH_KINDS: Final = frozenset({"display_data", "execute_result", "update_display_data"})


@dataclass(frozen=True, slots=True)
class Output:
    """One output as it was published: the type and content of a Jupyter message.

    ``clear_output`` and ``update_display_data`` are messages too, which a ``Transcript`` applies.
    """

    kind: Kind
    content: Mapping[str, Any]
    metadata: Mapping[str, Any] = field(default_factory=dict)
    buffers: tuple[bytes, ...] = ()
    #: Whether this is text of an earlier cell's thread or task, as far as the host can tell.
    late: bool = False

    @property
    def ours(self) -> bool:
        """Whether this is one of cellblock's own cards. Tables that cells ask for are not."""
        return not _OWN_TYPES.isdisjoint(self.content.get("data", ()))

    @property
    def by_host(self) -> bool:
        """Whether the host made this: a notice or a card, or a table that a cell asked for."""
        return self.kind == "display_data" and self.metadata in (BY_HOST, NOTICE)

    @property
    def is_notice(self) -> bool:
        """Whether this is a line of the host's own."""
        return self.kind == "display_data" and self.metadata == NOTICE

    @property
    def is_of_display(self) -> bool:
        """Whether this is the error of a formatter, in place of a display."""
        return self.kind == "error" and self.metadata == OF_DISPLAY

    @property
    def is_gap(self) -> bool:
        """Whether this is the host's line that says how much of a stream is left out there."""
        return self.kind == "stream" and self.metadata == GAP


class Transcript:
    """The outputs that a cell, or a widget that captures outputs, shows at last."""

    def __init__(self, outputs: Iterable[dict[str, Any]] = ()) -> None:
        #: In nbformat's form. A display is here as it was first shown; ``outputs`` applies the
        #: updates. The text of a stream that was continued is a list of its parts, which
        #: ``outputs`` joins: to join each part at once would copy the text again and again.
        self._outputs = list(outputs)
        self._clear_due = False
        #: The positions of displays among the outputs, by display id.
        self.displays: dict[str, list[int]] = {}
        #: The newest data and metadata of each display id. All displays with that id show these,
        #: also those in earlier cells, which the caller must update.
        self.updates: dict[str, dict[str, Any]] = {}

    def apply(self, output: Output, area: Transcript | None = None) -> None:
        """Apply an output. Comm messages change nothing.

        ``area`` is the transcript of a widget that captures outputs: the output is added to
        ``area``, or clears it. Displays in ``area`` can't be updated by their id.
        """
        area = self if area is None else area
        content = output.content
        display_id = (content.get("transient") or {}).get("display_id")
        if display_id and output.kind in _RICH_KINDS:
            self.updates[display_id] = {key: content[key] for key in ("data", "metadata")}
        if output.kind == "clear_output":
            area.clear(wait=bool(content.get("wait")))
        elif output.kind in _FIELDS:
            entry = {key: content[key] for key in _FIELDS[output.kind]}
            area.add({"output_type": output.kind, **entry})
            if display_id and area is self:
                self.displays.setdefault(display_id, []).append(len(self._outputs) - 1)

    def outputs(self) -> list[dict[str, Any]]:
        """Return the outputs in nbformat's form, each text in one piece."""
        output_dicts = [
            entry | {"text": "".join(entry["text"])}
            if isinstance(entry.get("text"), list)
            else entry
            for entry in self._outputs
        ]
        # Not at each update, since a cell may have 20,000 displays of one id and update them as
        # often.
        for display_id, positions in self.displays.items():
            for position in positions:
                output_dicts[position] = output_dicts[position] | self.updates[display_id]
        return output_dicts

    def add(self, new: dict[str, Any]) -> None:
        """Append an output; text of the stream that came last is appended to that instead."""
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
        """Remove all outputs, at once or, with ``wait``, when the next output is added."""
        self._clear_due = wait
        if not wait:
            self._outputs.clear()
            self.displays.clear()
