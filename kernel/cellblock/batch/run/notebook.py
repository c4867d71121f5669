"""A notebook as it is run: read, valid by nbformat's schema, and without what an earlier run left.

Its author is a stranger. `batch.files` reads the bytes; here they become cells that can be run
and written again. Also here: the cell that sets parameters, as papermill adds it, and what is
written of a cell before and after it ran.

`Document` is the notebook that is written: held as bytes, cell by cell, and its file made in
pieces. `Outputs` makes outputs of what cells show, one thing after another, as nbclient does it, so
that a notebook looks the same whoever ran it: outputs are cleared, updates reach displays of
earlier cells, and a stream is continued. `Widgets` merges the state of widgets from their messages,
for pages without a kernel. All of it passed the gateway before.

The file is in the form that nbformat writes: keys sorted, one blank a level, texts as lists of
lines. So a run's file differs from a front end's only in what was run.
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
import json
import keyword
import re
from base64 import b64encode
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import fastjsonschema
import msgspec

from cellblock.batch.files import MAX_VALUES, UnreadableError, read_notebook
from cellblock.batch.verdict import MAX_FILE_BYTES
from cellblock.host.files import upgraded
from cellblock.host.output import gateway
from cellblock.host.output.text import Cleaner, TooLargeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from cellblock.api.result_parts import Output
    from cellblock.api.results import Result

    _JSON = msgspec.Raw | bytes
    _Form = Callable[[_JSON, int], Iterator[bytes]]


#: From this minor version on cells have ids.
WITH_IDS: Final = 5
_ID: Final = re.compile(r"[a-zA-Z0-9-_]{1,64}")
_MAX_DEPTH: Final = 64
_PYTHON: Final = "python"
_SKIP_TAG: Final = "skip-execution"
_RAISES_TAG: Final = "raises-exception"
#: Metadata that belongs to outputs that are not kept, or is Jupyter's to write.
_DROPPED_METADATA: Final = ("widgets", "signature", "orig_nbformat", "orig_nbformat_minor")


class Cell:
    """A cell as it stands in the notebook, with its source in one piece and its outputs apart.

    As with nbclient, a tag can say that it is not run, another that it ``may_fail``.
    """

    def __init__(self, body: dict[str, Any], outputs: list[Any]) -> None:
        self.body, self.outputs = body, outputs
        self.source: str = body["source"]
        self.tags: Sequence[Any] = body["metadata"].get("tags", ())
        self.is_code = body["cell_type"] == "code"
        self.runs = self.is_code and bool(self.source.strip()) and _SKIP_TAG not in self.tags
        self.may_fail = _RAISES_TAG in self.tags


@dataclass(frozen=True, slots=True)
class Notebook:
    """A notebook that is valid, but for the outputs of its cells: those are whatever was there."""

    cells: tuple[Cell, ...]
    metadata: dict[str, Any]
    minor: int

    @property
    def language(self) -> str:
        """The language of its code, as far as it says."""
        spec, info = (self.metadata.get(key, {}) for key in ("kernelspec", "language_info"))
        return str(spec.get("language") or info.get("name") or _PYTHON)

    @property
    def is_python(self) -> bool:
        """Whether a guest can run it."""
        return self.language.lower() in (_PYTHON, "ipython", "python3")


def read(content: bytes) -> Notebook:
    """Return the notebook in a file's content. Raise UnreadableError.

    This may block for seconds: a notebook of an older format is upgraded in another process.
    """
    document = read_notebook(content, upgraded, max_values=MAX_VALUES).document
    outputs = []
    for body in document["cells"]:
        found = body.pop("outputs", []) if body["cell_type"] == "code" else []
        outputs.append(found if type(found) is list else [])
    try:
        # What can be written again: finite numbers, no lone surrogates, not too deep.
        cleaner = Cleaner(nodes=MAX_VALUES, chars=MAX_FILE_BYTES, depth=_MAX_DEPTH)
        document = dict(cleaner.clean(document))
    except TooLargeError:
        raise UnreadableError("is nested too deeply, or holds too much") from None
    for body in document["cells"]:  # what an earlier run has left goes
        if body["cell_type"] == "code":
            body["outputs"], body["execution_count"] = [], None
        if type(body.get("metadata")) is dict:
            body["metadata"].pop("trusted", None)
            body["metadata"].pop(EXECUTION, None)
    minor = document.get("nbformat_minor")
    if type(minor) is not int or not minor >= 0:
        raise UnreadableError("says no number of a minor format (nbformat_minor)")
    if minor >= WITH_IDS:
        _add_ids(document["cells"])
    else:  # some tools write them there, and Jupyter runs the notebook
        for body in document["cells"]:
            body.pop("id", None)
    try:
        _validator(min(minor, WITH_IDS))(document)
    except ValueError as error:  # it is fastjsonschema's
        raise UnreadableError(f"is no valid notebook: {error}") from None
    metadata = {k: v for k, v in document["metadata"].items() if k not in _DROPPED_METADATA}
    return Notebook(tuple(map(Cell, document["cells"], outputs)), metadata, minor)


def _add_ids(bodies: list[dict[str, Any]]) -> None:
    """Give cells without an id of their own one that depends on their place alone."""
    seen = set[str]()
    for number, body in enumerate(bodies, 1):
        name = body.get("id")
        if type(name) is not str or not _ID.fullmatch(name) or name in seen:
            name = body["id"] = _unused(
                f"cell-{number}", (f"-{n}" for n in itertools.count(1)), seen
            )
        seen.add(name)


def _unused(name: str, suffixes: Iterable[str], taken: set[str]) -> str:
    """Return a name that is not taken: this one, or this one with a suffix."""
    names = (name + suffix for suffix in itertools.chain([""], suffixes))
    return next(one for one in names if one not in taken)


@functools.cache
def _validator(minor: int) -> Callable[[Any], Any]:
    """Return a function that raises for what nbformat's schema of this format does not allow.

    nbformat itself is not imported: where jsonschema's formats are installed, which come with
    Jupyter's server, that takes seconds.
    """
    spec = importlib.util.find_spec("nbformat")
    (folder,) = (spec and spec.submodule_search_locations) or ("",)
    schema = json.loads(Path(folder, "v4", f"nbformat.v4.{minor}.schema.json").read_bytes())
    found: Callable[[Any], Any] = fastjsonschema.compile(schema)
    return found


def warm_up() -> None:
    """Compile the schema of most notebooks before the first one is read."""
    _validator(WITH_IDS)


# --- parameters: a cell after the one that is tagged ``parameters``, as papermill adds it ---------
# Source: papermill's ``parameterize_notebook``. Without such a tag cells find parameters in
# ``inputs`` alone, where they are in any case.

_PARAMETERS_TAG: Final = "parameters"
_INJECTED_TAG: Final = "injected-parameters"
#: Characters of a value that is written out; a longer one is taken from ``inputs``.
_MAX_VALUE: Final = 1_000


def with_parameters(notebook: Notebook, parameters: Mapping[str, Any]) -> Notebook:
    """Return a notebook with a cell that sets the parameters whose names Python can use.

    It replaces the one that an earlier run has added.
    """
    lines = [
        f"{name} = {_expression(name, value)}"
        for name, value in parameters.items()
        if name.isidentifier() and not keyword.iskeyword(name)
    ]
    cells, place = notebook.cells, None
    for number, cell in enumerate(cells):
        if cell.is_code and _INJECTED_TAG in cell.tags:
            place = number, number + 1
            break
        if place is None and cell.is_code and _PARAMETERS_TAG in cell.tags:
            place = number + 1, number + 1
    if not lines or place is None:
        return notebook
    body: dict[str, Any] = {
        "cell_type": "code",
        "source": "\n".join(["# Parameters", *lines]),
        "metadata": {"tags": [_INJECTED_TAG]},
        "outputs": [],
        "execution_count": None,
    }
    if notebook.minor >= WITH_IDS:
        taken = {cell.body["id"] for cell in cells}
        body["id"] = _unused(_INJECTED_TAG, ("-" * n for n in itertools.count(1)), taken)
    return replace(notebook, cells=(*cells[: place[0]], Cell(body, []), *cells[place[1] :]))


def _expression(name: str, value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_VALUE else f"inputs[{name!r}]"


# --- what is written of a cell before and after it ran --------------------------------------------

#: The key in a cell's metadata with the times at which it ran.
EXECUTION: Final = "execution"
#: Outputs of one cell that are kept from an earlier run.
_MAX_OLD_OUTPUTS: Final = 1_000
_JSON_TYPES: Final = ("application/json", "+json")


def cell_before_run(cell: Cell, display: str) -> dict[str, Any]:
    """Return a cell as it is written before the notebook runs.

    A cell that will not run keeps its outputs, cleaned as a guest's are under this ``display``.
    """
    if cell.outputs and not cell.runs:
        return cell.body | {"outputs": clean_outputs(cell.outputs, display)}
    return cell.body


def cell_after_run(cell: Cell, result: Result, times: tuple[str, str]) -> dict[str, Any]:
    """Return a cell that ran, without its outputs; its times have nbclient's names."""
    began, ended = times
    execution = {
        "iopub.status.busy": began,
        "iopub.execute_input": began,
        "iopub.status.idle": ended,
        "shell.execute_reply": ended,
    }
    metadata = cell.body["metadata"] | {EXECUTION: execution}
    return cell.body | {"metadata": metadata, "execution_count": result.execution_count}


def now() -> str:
    """Return the time in the form that messages and notebooks use."""
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


def clean_outputs(outputs: Iterable[Any], display: str) -> list[dict[str, Any]]:
    """Return what may be shown of outputs in a file under a policy's ``display``."""
    show = gateway.for_display(display)
    made = (_clean_output(one, show) for one in list(outputs)[:_MAX_OLD_OUTPUTS])
    return [one for one in made if one is not None]


def _clean_output(one: Any, show: gateway.Show) -> dict[str, Any] | None:
    if type(one) is not dict:
        return None
    kind = one.get("output_type")
    match kind:
        case "stream":
            name = "stderr" if one.get("name") == "stderr" else "stdout"
            text = gateway.clean_stream(_in_one_piece(one.get("text")))
            return {"output_type": kind, "name": name, "text": text}
        case "error":
            parts = (one.get("ename"), one.get("evalue"), one.get("traceback"))
            return {"output_type": kind, **gateway.clean_error(*parts)}
        case "display_data" | "execute_result":
            data = one.get("data")
            data = data if type(data) is dict else {}
            bundle = {
                k: v if k.endswith(_JSON_TYPES) else _in_one_piece(v) for k, v in data.items()
            }
            made = {"output_type": kind, "data": show(bundle)}
            made["metadata"] = gateway.clean_metadata(one.get("metadata"))
            if kind == "display_data":
                return made
            count = one.get("execution_count")
            valid = type(count) is int and 0 <= count < 1 << 31
            return made | {"execution_count": count if valid else None}
    return None


def _in_one_piece(text: Any) -> Any:
    """Return a text that is written as a list of lines as one string."""
    if type(text) is list and all(type(line) is str for line in text):
        return "".join(text)
    return text


_FORMAT: Final = 4
#: Where a notebook's metadata has widgets, and of which kind.
_WIDGETS: Final = "widgets"
_STATES: Final = "application/vnd.jupyter.widget-state+json"
_VERSION: Final = {"version_major": 2, "version_minor": 0}
#: Bytes of all cells in the file, which is what Jupyter still opens; and of all that is written,
#: as updates write cells again.
MAX_BYTES: Final = 128 << 20
MAX_WRITTEN: Final = 2 * MAX_BYTES


def _plain_text(value: Any) -> str:
    """Return a string of a subclass as one of ``str``. Raise TypeError for anything else."""
    if not isinstance(value, str):
        raise TypeError(type(value).__name__)
    return str(value)


#: To JSON in one line.
encode: Final = msgspec.json.Encoder(order="sorted", enc_hook=_plain_text).encode
#: From JSON, one level deep: what is in the values stays JSON.
_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_items: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode
_text: Final = msgspec.json.Decoder(str).decode


def compact(value: Any) -> bytes:
    """Return a value as JSON to be held: an encoder's own result has half as much room again."""
    return bytes(memoryview(encode(value)))


def raw(values: dict[str, Any]) -> dict[str, msgspec.Raw]:
    """Return values as JSON, by name."""
    return {name: msgspec.Raw(encode(value)) for name, value in values.items()}


class TooMuchOutputError(ValueError):
    """The notebook's cells show more than is written of one notebook."""

    def __init__(self) -> None:
        super().__init__(f"its outputs take more than {MAX_BYTES >> 20} MiB")


class _Stored(msgspec.Struct):
    cells: list[msgspec.Raw]
    metadata: dict[str, msgspec.Raw]
    nbformat_minor: int


class Document:
    """A notebook's cells as they are so far, and its metadata."""

    def __init__(
        self, cells: Iterable[dict[str, Any]], metadata: dict[str, Any], minor: int
    ) -> None:
        #: Each as JSON, with texts in one piece.
        self.cells: list[bytes] = []
        self.minor, self.metadata = minor, metadata
        #: Bytes of the file, and of all that was written.
        self._size = self._total = 0
        self._widgets: dict[str, Any] = {}
        self._widget_sizes: dict[str, int] = {}
        for cell in cells:
            self.add(compact(cell))

    def add(self, cell: bytes) -> None:
        """Add a cell, however large."""
        size = written_size(cell)
        self._size += size
        self._total += size
        self.cells.append(cell)

    def put(self, index: int, body: dict[str, Any]) -> None:
        """Replace a cell. Raise TooMuchOutputError, and replace nothing."""
        cell = compact(body)
        self._count(written_size(cell), written_size(self.cells[index]))
        self.cells[index] = cell

    def update(self, index: int, changes: dict[int, dict[str, Any]]) -> None:
        """Change outputs of a cell, by their positions. Raise as `put`."""
        cell: dict[str, Any] = _fields(self.cells[index])
        outputs = _items(cell["outputs"])
        for position, new in changes.items():
            outputs[position] = msgspec.Raw(encode(_fields(outputs[position]) | new))
        self.put(index, cell | {"outputs": outputs})

    def take_widgets(self, widgets: dict[str, Any]) -> None:
        """Add or replace widgets, by their ids. Raise TooMuchOutputError."""
        for name, widget in widgets.items():
            new = sum(map(len, _value(widget, 5)))
            self._count(new, self._widget_sizes.get(name, 0))
            self._widgets[name], self._widget_sizes[name] = widget, new

    def _count(self, new: int, old: int) -> None:
        """Count bytes that replace others. Raise TooMuchOutputError."""
        size = self._size + new - old
        self._total += new
        if size > MAX_BYTES or self._total > MAX_WRITTEN:
            raise TooMuchOutputError
        self._size = size

    def to_bytes(self) -> bytes:
        """Return the whole document as JSON."""
        metadata = self.metadata
        if self._widgets:
            metadata = metadata | {_WIDGETS: {_STATES: {"state": self._widgets, **_VERSION}}}
        return encode(_Stored(list(map(msgspec.Raw, self.cells)), raw(metadata), self.minor))

    @classmethod
    def from_bytes(cls, content: bytes) -> Document:
        """Return the document that `to_bytes` was called on. Raise msgspec.DecodeError."""
        stored = msgspec.json.decode(content, type=_Stored)
        made = cls((), stored.metadata, stored.nbformat_minor)
        for cell in stored.cells:
            made.add(bytes(cell))
        return made

    def file_content(self) -> Iterator[bytes]:
        """Yield the content of the file in pieces, none of which is larger than a value."""
        metadata = {name: _value(value, 2) for name, value in self.metadata.items()}
        if self._widgets:
            rows = {name: _value(row, 5) for name, row in self._widgets.items()}
            version = {name: _value(value, 4) for name, value in _VERSION.items()}
            states = _object({"state": _object(rows, 4), **version}, 3)
            metadata[_WIDGETS] = _object({_STATES: states}, 2)
        yield b'{\n "cells": '
        yield from _group(b"[]", (_cell(cell, 2) for cell in self.cells), 1)
        yield b',\n "metadata": '
        yield from _object(metadata, 1)
        yield b',\n "nbformat": %d,\n "nbformat_minor": %d\n}\n' % (_FORMAT, self.minor)


# --- the form of the file: each function takes JSON, and yields its form at this depth ------------

#: Texts in a bundle that are written as lines, besides ``text/*`` (``nbformat.v4.rwbase``).
_TEXTS: Final = frozenset({"application/javascript", "image/svg+xml"})
#: Characters of a text that are split into lines at once, as each line takes many times more as an
#: object; and where a line ends (``str.splitlines``).
_PART: Final = 1 << 16
_LINE_END: Final = re.compile("\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")


def written_size(cell: bytes) -> int:
    """Return the bytes that a cell takes in the file, or more than `MAX_BYTES`.

    Nested values take many times more there than on the wire: a line and its blanks for each.
    """
    size = 0
    for piece in _cell(cell, 2):
        size += len(piece)
        if size > MAX_BYTES:
            break
    return size


def _value(value: Any, depth: int) -> Iterator[bytes]:
    """Yield a Python value. It is encoded when the first piece is asked for."""
    yield from _plain(encode(value), depth)


def _plain(value: _JSON, depth: int) -> Iterator[bytes]:
    """Yield JSON with a line for each value in it."""
    made = msgspec.json.format(value, indent=1)
    yield made.replace(b"\n", b"\n" + b" " * depth)  # strings have no line breaks


def _lines(value: _JSON, depth: int) -> Iterator[bytes]:
    """Yield a text as a list of its lines."""
    if bytes(memoryview(value)[:1]) != b'"':
        yield from _plain(value, depth)
        return
    text, start, blanks = _text(value), 0, b"\n" + b" " * depth
    yield b"["
    while start < len(text):
        found = _LINE_END.search(text, start + _PART)
        end = found.end() if found else len(text)
        lines = encode(text[start:end].splitlines(keepends=True))
        made = msgspec.json.format(lines, indent=1)[1:-2]
        yield (b"," if start else b"") + made.replace(b"\n", blanks)
        start = end
    yield blanks + b"]" if text else b"]"


def _members(value: _JSON, depth: int, form_of: Callable[[str], _Form | None]) -> Iterator[bytes]:
    """Yield an object, with each member in the form for its name, or plain if it has none."""
    members = _fields(value).items()
    yield from _object(
        {name: (form_of(name) or _plain)(one, depth + 1) for name, one in members}, depth
    )


def _object(members: dict[str, Iterator[bytes]], depth: int) -> Iterator[bytes]:
    made = (chain((encode(name), b": "), one) for name, one in sorted(members.items()))
    yield from _group(b"{}", made, depth)


def _group(ends: bytes, parts: Iterable[Iterable[bytes]], depth: int) -> Iterator[bytes]:
    """Yield parts between a pair of brackets, each on lines of its own."""
    between, blanks = ends[:1], b"\n" + b" " * depth
    for part in parts:
        yield between + blanks + b" "
        yield from part
        between = b","
    yield ends if between == ends[:1] else blanks + ends[1:]


def _cell(value: _JSON, depth: int) -> Iterator[bytes]:
    def attachments(value: _JSON, depth: int) -> Iterator[bytes]:
        yield from _members(value, depth, lambda _: _bundle)

    forms = {"source": _lines, "outputs": _outputs, "attachments": attachments}
    yield from _members(value, depth, forms.get)


def _outputs(value: _JSON, depth: int) -> Iterator[bytes]:
    forms = {"text": _lines, "data": _bundle}
    outputs = (_members(one, depth + 1, forms.get) for one in _items(value))
    yield from _group(b"[]", outputs, depth)


def _bundle(value: _JSON, depth: int) -> Iterator[bytes]:
    def form_of(mime: str) -> _Form | None:
        return _lines if mime.startswith("text/") or mime in _TEXTS else None

    yield from _members(value, depth, form_of)


# --- from what cells show to their outputs --------------------------------------------------------

_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "stream": ("name", "text"),
    "display_data": ("data", "metadata"),
    "execute_result": ("data", "metadata", "execution_count"),
    "error": ("ename", "evalue", "traceback"),
}
_RICH: Final = frozenset({"display_data", "execute_result", "update_display_data"})


def _append(outputs: list[dict[str, Any]], new: dict[str, Any]) -> None:
    """Append an output, or its text to the stream that it continues.

    The text of a stream is kept in parts until all is there: joining each part at once would copy
    what came before.
    """
    if new["output_type"] != "stream":
        outputs.append(new)
        return
    last = outputs[-1] if outputs else {}
    if last.get("output_type") != "stream" or last["name"] != new["name"]:
        outputs.append(new | {"text": [new["text"]]})
        return
    if isinstance(last["text"], str):
        last["text"] = [last["text"]]
    last["text"].append(new["text"])


def _joined(outputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return outputs with the text of each in one piece."""
    return [
        one | {"text": "".join(one["text"])} if isinstance(one.get("text"), list) else one
        for one in outputs
    ]


class Outputs:
    """The outputs of a notebook's cells. Those of cells that have ended are in ``document``."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self.widgets = Widgets()
        #: Where displays of an id stand: cells, and positions in each.
        self._displays: dict[str, dict[int, list[int]]] = {}
        self._index = 0
        self._current: list[dict[str, Any]] = []
        self._clear_on_next = False
        #: What displays of earlier cells are to show, once this cell has ended.
        self._updates: dict[str, dict[str, Any]] = {}

    def end_cell(self, index: int, cell: dict[str, Any], shown: Iterable[Output]) -> None:
        """Write a cell that has ended, with what it has shown and what it updated of earlier ones.

        Raise TooMuchOutputError.
        """
        cell["outputs"] = self._of_cell(index, shown)
        changes = dict[int, dict[int, dict[str, Any]]]()
        for display_id, new in self._updates.items():
            for at, positions in self._displays[display_id].items():
                if at != index:
                    changes.setdefault(at, {}).update(dict.fromkeys(positions, new))
        for at, outputs in changes.items():
            self._document.update(at, outputs)
        self._document.put(index, cell)
        self._document.take_widgets(self.widgets.changes())

    def _of_cell(self, index: int, shown: Iterable[Output]) -> list[dict[str, Any]]:
        """Return the outputs of a cell that has ended."""
        self._index, self._current, self._clear_on_next, self._updates = index, [], False, {}
        for one in shown:
            self._add(one)
        current, self._current = self._current, []
        return _joined(current)

    def _add(self, one: Output) -> None:
        display_id = (one.content.get("transient") or {}).get("display_id")
        if display_id in self._displays and one.kind in _RICH:
            new = {key: one.content[key] for key in ("data", "metadata")}
            self._updates[display_id] = new
            for position in self._displays[display_id].get(self._index, ()):
                self._current[position].update(new)
        if one.kind.startswith("comm_"):
            self.widgets.take(one)
        elif one.kind == "clear_output":
            self._clear(wait=bool(one.content.get("wait")))
        elif one.kind in _FIELDS:
            made = {key: one.content[key] for key in _FIELDS[one.kind]}
            self._show({"output_type": one.kind, **made}, display_id)

    def _show(self, output: dict[str, Any], display_id: str | None) -> None:
        captured = self.widgets.captured
        if captured is not None:
            _append(captured, output)
            return
        if self._clear_on_next:
            self._clear(wait=False)
        _append(self._current, output)
        if display_id:
            positions = self._displays.setdefault(display_id, {}).setdefault(self._index, [])
            positions.append(len(self._current) - 1)

    def _clear(self, *, wait: bool) -> None:
        captured = self.widgets.captured
        if captured is not None:
            captured.clear()  # with ``wait``, too: what is to come replaces it
            return
        self._clear_on_next = wait
        if not wait:
            self._current.clear()
            for cells in self._displays.values():
                cells.pop(self._index, None)


class Widgets:
    """The state of a notebook's widgets, as its metadata carries it."""

    def __init__(self) -> None:
        #: Lists and objects are held as JSON, as numbers in Python take many times more; only the
        #: outputs of widgets that capture now are not.
        self._states: dict[str, dict[str, Any]] = {}
        self._buffers: dict[str, dict[tuple[Any, ...], dict[str, Any]]] = {}
        #: Output widgets that capture; the last one gets what is shown.
        self._capturing: list[str] = []
        self._changed: dict[str, None] = {}

    def take(self, output: Output) -> None:
        """Merge a comm message into the state."""
        name, data = output.content["comm_id"], output.content.get("data", {})
        state = data.get("state")
        if not isinstance(state, dict):
            return
        self._changed[name] = None
        self._states.setdefault(name, {}).update({key: _as_json(state[key]) for key in state})
        paths = data.get("buffer_paths") or ()
        for path, buffer in zip(paths, output.buffers, strict=False):
            encoded = b64encode(bytes(buffer)).decode()
            entry = {"data": encoded, "encoding": "base64", "path": list(path)}
            self._buffers.setdefault(name, {})[tuple(path)] = entry
        if output.kind != "comm_msg" or "msg_id" not in state:
            return
        if state["msg_id"]:  # an output widget captures from here on
            self._outputs_of(name)
            self._capturing.append(name)
        elif name in self._capturing:
            self._capturing.remove(name)
            if name not in self._capturing:
                self._states[name]["outputs"] = _as_json(_joined(self._outputs_of(name)))

    def _outputs_of(self, name: str) -> list[dict[str, Any]]:
        """Return a widget's outputs as objects, and hold them as such from now on."""
        state = self._states[name]
        outputs = state.get("outputs")
        if isinstance(outputs, msgspec.Raw):
            known = msgspec.json.decode(outputs)
            outputs = [one for one in known if isinstance(one, dict)] if known else []
        state["outputs"] = outputs = outputs or []
        return outputs

    @property
    def captured(self) -> list[dict[str, Any]] | None:
        """The outputs of the widget that captures, to be added to; None where none does."""
        if not self._capturing:
            return None
        name = self._capturing[-1]
        self._changed[name] = None
        return self._outputs_of(name)  # its model may have set them meanwhile

    def changes(self) -> dict[str, Any]:
        """Return the widgets that changed since the last call, as the metadata has them."""
        changed, self._changed = self._changed, {}
        return {name: self._entry(name) for name in changed if "_model_name" in self._states[name]}

    def _entry(self, name: str) -> dict[str, Any]:
        state, buffers = dict(self._states[name]), self._buffers.get(name, {})
        if isinstance(state.get("outputs"), list):
            state["outputs"] = _joined(state["outputs"])
        entry = {
            "model_name": state.get("_model_name"),
            "model_module": state.get("_model_module"),
            "model_module_version": state.get("_model_module_version"),
            "state": state,
        }
        return entry | ({"buffers": list(buffers.values())} if buffers else {})


def _as_json(value: Any) -> Any:
    return msgspec.Raw(compact(value)) if isinstance(value, list | dict) else value
