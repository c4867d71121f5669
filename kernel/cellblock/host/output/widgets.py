"""``Comms``: which comms may be open, and what messages on them may say.

A guest's comm message goes through two steps. ``clean`` returns the message as it may pass, or why
it may not, and changes nothing. ``commit`` records the message once it has been published: there
may be no room for it (``host.cell.comms``).

Invariant: before the front end hears of a comm, it is recorded here with its target and, for a
widget, with the model that it was admitted as. Later messages on it are judged by that, not by what
they say themselves. Front ends open comms only to targets that the policy names.

Some keys of a widget are judged together with what passed before: bytes that passed as an image
must not become an address, and a text that passed as plain text must not become HTML. So a little
of each widget is remembered (``WidgetMemory``). Keys that were judged together are sent in one
message: a Jupyter server drops messages that come too fast, though never a ``comm_open``, so of two
messages the second could arrive alone. An id that a link has named can be opened only once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from cellblock.host.output import gateway, markup
from cellblock.host.output import widget_models as k
from cellblock.host.output.text import RefusedError
from cellblock.host.output.widget_models import MODELS, VERSIONS, Model, Scope

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cellblock.wire import messages


WIDGET: Final = gateway.WIDGET
CONTROL: Final = "jupyter.widget.control"
VIEW: Final = gateway.VIEW
#: Comms that may be open at once. A page of controls has some hundreds.
MOST: Final = 20_000
#: Ids of widgets that links may name.
MOST_LINKED: Final = 100_000
_ID: Final = re.compile(r"[A-Za-z0-9_.:-]{1,200}")
_VERSION_OF_PACKAGE: Final = re.compile(r"[\w.^~*+-]{1,40}")
_PROTOCOL: Final = {"version": "2.1.0"}
_FOCUS_MESSAGES: Final = ({"do": "focus"}, {"do": "blur"})


@dataclass(frozen=True, slots=True)
class Refused:
    """A comm that was refused: its target and, for a widget, its module and model."""

    target: str
    module: str = ""
    model: str = ""


@dataclass(frozen=True, slots=True)
class WidgetMemory:
    """The part of a widget's state by which its next message is judged."""

    #: The format of its image, sound or film.
    format: str = ""
    #: Its description.
    label: str = ""
    #: Whether the description is HTML.
    is_html: bool = False
    #: A link's source and target, each a widget's id and a key.
    ends: tuple[tuple[str, str] | None, tuple[str, str] | None] = (None, None)


@dataclass(slots=True)
class Comm:
    """A comm that the front end knows of."""

    id: str
    target: str
    #: The model that the comm was admitted as; None if it is not a widget's.
    model: Model | None = None
    memory: WidgetMemory = field(default_factory=WidgetMemory)


@dataclass(slots=True)
class Passed:
    """A clean message, which may be published. ``Comms.commit`` it then."""

    kind: str
    comm: Comm
    data: dict[str, Any]
    buffers: list[bytes] = field(default_factory=list)
    #: The keys that were left out, each with the reason.
    left: list[tuple[str, str]] = field(default_factory=list)
    #: What ``Comms.commit`` will remember of each widget in the message.
    memories: list[tuple[Comm, WidgetMemory]] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)

    def content(self) -> dict[str, Any]:
        """Return the message's content."""
        content = {"comm_id": self.comm.id, "data": self.data}
        return content | {"target_name": self.comm.target} if self.kind == "comm_open" else content


class Comms:
    """All open comms of one session.

    ``modules`` are the widget modules that the policy allows, ``targets`` its comm targets. Without
    modules there are no widgets. ``show`` cleans the bundles in widgets. ``linked`` has the ids
    that links have named; it outlives this object.
    """

    def __init__(
        self,
        *,
        modules: tuple[str, ...] = (),
        targets: tuple[str, ...] = (),
        show: Callable[[Any], dict[str, Any]] = gateway.clean_bundle,
        linked: set[str] | None = None,
    ) -> None:
        self._modules = frozenset(modules)
        self._show = show
        #: Ids of the widgets that links have named as an end.
        self._linked = set[str]() if linked is None else linked
        self._targets = frozenset((*targets, *((WIDGET, CONTROL) if modules else ())))
        self._open: dict[str, Comm] = {}
        #: Ids of Output widgets that capture outputs.
        self._capturing: set[str] = set()
        #: Id of the request under which a widget took the focus last.
        self._focused = ""

    # --- from the front end -------------------------------------------------------------------

    def knows(self, name: Any) -> bool:
        """Return whether a comm with this id is open."""
        return name in self._open if isinstance(name, str) else False

    def listing(self, target: str | None) -> dict[str, dict[str, str]]:
        """Return the open comms, of one ``target`` if given, as ``comm_info_reply`` has them."""
        return {
            comm.id: {"target_name": comm.target}
            for comm in self._open.values()
            if target is None or comm.target == target
        }

    def opened_by_front(self, content: dict[str, Any]) -> bool:
        """Record a comm that a front end opens; return False, and record nothing, if it may not."""
        name = content.get("comm_id")
        target = content.get("target_name")
        if not isinstance(name, str) or not _ID.fullmatch(name) or len(self._open) >= MOST:
            return False
        if not isinstance(target, str) or target not in self._targets:
            return False
        model = None
        if target == WIDGET:
            data = content.get("data")
            state = data.get("state") if isinstance(data, dict) else None
            model = MODELS.get(_model_named(state)) if type(state) is dict else None
            if model is None:
                return False
        self._open.setdefault(name, Comm(name, target, model))
        return True

    # --- from the guest -----------------------------------------------------------------------

    def clean(self, message: messages.CommOut, parent: str) -> Passed | Refused | None:
        """Return a guest's message as it may pass, or a refusal to show, or None to drop it.

        ``parent`` is the id of the request under which the message is shown. Changes nothing, but
        remembers under which request a widget took the focus.
        """
        name = message.content.get("comm_id")
        data = message.content.get("data")
        if not isinstance(name, str) or not _ID.fullmatch(name):
            return None
        data = data if type(data) is dict else {}
        if message.kind == "comm_open":
            return self._clean_open(name, data, message, parent)
        comm = self._open.get(name)
        if comm is None:
            return None
        if message.kind == "comm_close":
            return Passed("comm_close", comm, {})
        return self._clean_msg(comm, data, message, parent) if message.kind == "comm_msg" else None

    def commit(self, passed: Passed) -> None:
        """Record a message that was published."""
        comm = passed.comm
        if passed.kind == "comm_close":
            self.forget(comm.id)
            return
        if passed.kind == "comm_open":
            self._open[comm.id] = comm
        for widget, memory in passed.memories:
            widget.memory = memory
            self._linked.update(end[0] for end in memory.ends if end)
        state = passed.data.get("state")
        if isinstance(state, dict) and "msg_id" in state:
            (self._capturing.add if state["msg_id"] else self._capturing.discard)(comm.id)

    @property
    def captures(self) -> bool:
        """Whether an Output widget captures what the running cell shows."""
        return bool(self._capturing)

    def release(self) -> Iterator[Passed]:
        """Yield the messages that end each Output widget's capture, and forget the captures.

        For the host's cards: a cell must not decide where these appear.
        """
        for name in sorted(self._capturing):
            data = {"method": "update", "state": {"msg_id": ""}, "buffer_paths": []}
            yield Passed("comm_msg", self._open[name], data)
        self._capturing.clear()

    def reset(self) -> None:
        """Forget all comms: the guest that had their other ends is gone."""
        self._open.clear()
        self._capturing.clear()

    def view(self, value: Any) -> dict[str, Any] | None:
        """Return the view of an open widget, as a bundle may have it; None for any other value."""
        name = value.get("model_id") if isinstance(value, dict) else None
        comm = self._open.get(name) if isinstance(name, str) else None
        if comm is None or comm.target != WIDGET:
            return None
        return {"version_major": 2, "version_minor": 0, "model_id": name}

    def _clean_open(
        self, name: str, data: dict[Any, Any], message: messages.CommOut, parent: str
    ) -> Passed | Refused | None:
        """Judge a ``comm_open``: by the target, and for a widget by its module and model.

        A module that the operator added to the policy and that has no table here is not judged.
        """
        target = gateway.clean_name(message.content.get("target_name")) or ""
        full = len(self._open) >= MOST or len(self._linked) >= MOST_LINKED
        if name in self._open or name in self._linked or full:
            return None
        if target not in (WIDGET, CONTROL):
            if target not in self._targets:
                return Refused(target)
            return _passed_unchecked("comm_open", Comm(name, target), data, message)
        if target == CONTROL:
            return Refused(target)  # only front ends open this one
        state = data.get("state")
        state = state if type(state) is dict else {}
        module, model = _model_named(state)
        known_model = MODELS.get((module, model))
        if module not in self._modules or (known_model is None and module in VERSIONS):
            return Refused(WIDGET, module, model)
        if known_model is None:
            comm = Comm(name, WIDGET, Model(module, model, module, None, {}))
            passed = _passed_unchecked("comm_open", comm, data, message)
        else:
            comm = Comm(name, WIDGET, known_model)
            state = {**state, "_model_name": model}
            update = self._update(comm, state, data.get("buffer_paths"), message.buffers, parent)
            passed = update.passed("comm_open")
        return replace(passed, metadata=dict(_PROTOCOL))

    def _clean_msg(
        self, comm: Comm, data: dict[Any, Any], message: messages.CommOut, parent: str
    ) -> Passed | None:
        """Judge a ``comm_msg`` by the comm that it is sent on; None drops it."""
        method = data.get("method")
        state = data.get("state")
        if comm.target == CONTROL:
            is_answer = method == "update_states"
            return self._all_states(comm, data, message.buffers, parent) if is_answer else None
        if comm.model is None or not comm.model.keys:
            return _passed_unchecked("comm_msg", comm, data, message)
        if method == "custom":
            return self._focus(comm, data.get("content"), parent)
        if method not in {"update", "echo_update"} or type(state) is not dict:
            return None
        if method == "echo_update" and "outputs" in state:
            # The front end knows these outputs from an earlier message, cleaned. Cleaned a second
            # time they would not be quite the same.
            state = {key: value for key, value in state.items() if key != "outputs"}
        update = self._update(comm, state, data.get("buffer_paths"), message.buffers, parent)
        passed = update.passed("comm_msg")
        return replace(passed, data={"method": method, **passed.data})

    def _focus(self, comm: Comm, content: Any, parent: str) -> Passed | None:
        """Let a widget take or give up the focus, once in a request.

        More often is refused, since a widget with the focus receives what the user types.
        """
        if content not in _FOCUS_MESSAGES or self._focused == parent:
            return None
        self._focused = parent
        return Passed("comm_msg", comm, {"method": "custom", "content": dict(content)})

    def _all_states(
        self, comm: Comm, data: dict[Any, Any], buffers: list[bytes], parent: str
    ) -> Passed:
        """Return the states of all widgets, for which a page asks when it is loaded anew."""
        passed = Passed("comm_msg", comm, {})
        states = data.get("states")
        paths = dict[str, list[tuple[list[Any], bytes]]]()
        for path, buffer in _pairs(data.get("buffer_paths"), buffers):
            match path:
                case [str(name), "state", *rest]:
                    paths.setdefault(name, []).append((rest, buffer))
        states_by_name = dict[str, Any]()
        shown_paths = list[list[Any]]()
        for name, row in states.items() if type(states) is dict else ():
            widget = self._open.get(name) if type(name) is str else None
            state = row.get("state") if type(row) is dict else None
            if widget is None or widget.model is None or type(state) is not dict:
                continue
            pairs = paths.get(name, [])
            update = self._state_of(
                widget,
                state,
                [shown_path for shown_path, _ in pairs],
                [shown_buffer for _, shown_buffer in pairs],
                parent,
            )
            version = row.get("model_module_version")
            is_version = isinstance(version, str) and _VERSION_OF_PACKAGE.fullmatch(version)
            states_by_name[name] = {
                "model_name": widget.model.name,
                "model_module": widget.model.module,
                "model_module_version": VERSIONS.get(
                    widget.model.module, version if is_version else ""
                ),
                "state": update.state,
            }
            shown_paths += [[name, "state", *path] for path in update.paths]
            passed.buffers += update.buffers
            passed.memories.append((widget, update.memory))
        passed.data = {
            "method": "update_states",
            "states": states_by_name,
            "buffer_paths": shown_paths,
        }
        return passed

    def _state_of(
        self,
        comm: Comm,
        state: dict[Any, Any],
        paths: list[list[Any]],
        buffers: list[bytes],
        parent: str,
    ) -> _Update:
        """Judge one widget's whole state in an ``update_states``."""
        if comm.model is not None and comm.model.keys:
            state = {**state, "_model_name": comm.model.name}
            return self._update(comm, state, paths, buffers, parent)
        update = _Update(comm, self._model_of)
        update.state = gateway.clean_comm(state)
        update.paths, update.buffers = _plain_paths(paths, buffers)
        return update

    def _update(
        self, comm: Comm, state: dict[Any, Any], paths: Any, buffers: list[bytes], parent: str
    ) -> _Update:
        """Judge a widget's state, or a part of it, with the buffers that belong to it."""
        update = _Update(comm, self._model_of)
        scope = Scope(model_of=self._model_of, show=self._show, parent=parent)
        update.take(_with_buffers(state, paths, buffers), scope)
        return update

    def _model_of(self, name: str) -> Model | None:
        comm = self._open.get(name)
        return comm.model if comm is not None else None

    def forget(self, name: str) -> None:
        """Forget a comm that was closed."""
        self._open.pop(name, None)
        self._capturing.discard(name)


def _model_named(state: dict[Any, Any]) -> tuple[str, str]:
    """Return the module and the model that a widget's state names, as clean names."""
    module = state.get("_model_module")
    name = state.get("_model_name")
    return gateway.clean_name(module) or "", gateway.clean_name(name) or ""


# --- buffers, by their paths --------------------------------------------------------------------
#
# A comm message carries bytes in buffers beside its data. ``buffer_paths`` says where in the data
# each belongs.

_LONGEST_PATH: Final = 20


def _pairs(paths: Any, buffers: list[bytes]) -> list[tuple[Any, bytes]]:
    """Return each buffer with its path; paths or buffers without a partner are dropped."""
    return list(zip(paths if type(paths) is list else [], buffers, strict=False))


def _passed_unchecked(
    kind: str, comm: Comm, data: dict[Any, Any], message: messages.CommOut
) -> Passed:
    """Return a message for a module or target that the operator added: bounded, but not judged."""
    cleaned = gateway.clean_comm(data)
    buffers = message.buffers
    if "buffer_paths" in cleaned:
        cleaned["buffer_paths"], buffers = _plain_paths(cleaned["buffer_paths"], buffers)
    metadata = gateway.clean_metadata(message.metadata)
    return Passed(kind, comm, cleaned, buffers, metadata=metadata)


def _plain_paths(paths: Any, buffers: list[bytes]) -> tuple[list[Any], list[bytes]]:
    """Return the paths, and their buffers, that lead through objects' own keys and lists only."""
    plain_pairs = [
        (path, buffer)
        for path, buffer in _pairs(paths, buffers)
        if type(path) is list and 0 < len(path) <= _LONGEST_PATH and all(map(_is_step, path))
    ]
    return [path for path, _ in plain_pairs], [buffer for _, buffer in plain_pairs]


def _is_step(step: Any) -> bool:
    """Return whether a path may have this part: a list index, or a key that is not special.

    Through ``__proto__`` and the like a path would leave an object for its class.
    """
    if type(step) is int:
        return step >= 0
    return type(step) is str and step not in {"__proto__", "constructor", "prototype"}


def _with_buffers(state: dict[Any, Any], paths: Any, buffers: list[bytes]) -> dict[Any, Any]:
    """Return a copy of ``state`` with each buffer at its path; other paths are dropped.

    A path has one part, or three for an uploaded file in a list: nothing else in a known widget
    takes bytes.
    """
    whole = dict(state)
    copied = set[str]()
    for path, buffer in _pairs(paths, buffers):
        match path:
            case [str(key)]:
                whole[key] = buffer
            case [str(key), int(index), "content"] if index >= 0:
                rows = whole.get(key)
                if type(rows) is list and index < len(rows) and type(rows[index]) is dict:
                    if key not in copied:
                        # A list is copied once, not for each of its files: there may be many.
                        copied.add(key)
                        whole[key] = rows = list(rows)
                    rows[index] = rows[index] | {"content": buffer}
    return whole


# --- bytes that a widget carries: images, sound and film ----------------------------------------
#
# A user can have the browser open such bytes as a document, in the notebook's origin, so drawings
# (SVG) are sanitised. A browser also follows play lists to any address. So for sound and film the
# first bytes decide, not the format that the widget names.

#: Image formats that a browser only decodes and draws.
_RASTER: Final = markup.words("apng bmp gif jpeg jpg png webp")
_SOUND_AND_FILM: Final = markup.words("aac flac m4a mp3 mp4 mpeg ogg wav webm x-wav")
#: The first bytes of MP4, Matroska, Ogg, WAVE, FLAC, MP3 with and without a tag, and AAC.
_CONTAINER: Final = re.compile(
    rb"....ftyp|\x1a\x45\xdf\xa3|OggS|RIFF....WAVE|fLaC|ID3|\xff[\xe2-\xe7\xf1-\xff]", re.DOTALL
)
#: The models that carry bytes, each with the format that it has if it names none.
_MEDIA: Final = {"AudioModel": "mp3", "ImageModel": "png", "VideoModel": "mp4"}


def clean_media(model: str, named_format: str, data: bytes) -> bytes:
    """Return the bytes of a widget that names a format, sanitised if that is SVG.

    Raises ``RefusedError`` if they may not be shown in the format.
    """
    if model != "ImageModel":
        if named_format == "url":
            raise RefusedError("sound or film at an address is not loaded")
        if named_format not in _SOUND_AND_FILM or (data and not _CONTAINER.match(data)):
            raise RefusedError("not a format that is played")
        return data
    if named_format == "svg+xml" and data:
        return gateway.sanitise("image/svg+xml", data.decode("utf-8", "replace")).encode()
    if named_format == "url" and markup.raster(data.decode("ascii", "replace")) is None:
        raise RefusedError("an image at an address is not loaded")
    if named_format not in _RASTER and named_format not in {"svg+xml", "url"}:
        raise RefusedError("not an image format that is shown")
    return data


# --- a widget's state: key by key, then keys that are judged together ---------------------------

#: Characters of a description that is remembered.
_LONGEST_LABEL: Final = 2_000
#: Keys that are reported as left out of one update.
_MOST_NOTED: Final = 20
_NUMBERS: Final = frozenset((k.flag, k.number, k.numbers))
_TEXTS: Final = frozenset((k.formula, k.html, k.label, k.text))
#: Kinds of keys that a numeric key may be linked to. Text keys that are rendered as markup are
#: among them, as a number can't contain markup. For texts see ``_may_become``.
_SHOWS_NUMBERS: Final = _NUMBERS | _TEXTS
#: Kinds of keys that a colour may be linked to.
_COLORED: Final = frozenset((k.color, k.css))
#: Kinds of keys that mean nothing without the rest of their widget, or that only refer to something
#: else. A link may not carry them, even to a key of the same kind.
_NOT_LINKED: Final = frozenset(
    (
        k.capture,
        k.label,
        k.label_is_html,
        k.layout,
        k.link_end,
        k.media,
        k.media_format,
        k.style,
    )
)


class _Update:
    """A widget's state, or a part of it, while it is judged.

    ``take`` fills the attributes with what may pass, ``passed`` makes the message.
    """

    def __init__(self, comm: Comm, model_of: Callable[[str], Model | None]) -> None:
        self._comm = comm
        self._model_of = model_of
        #: What to remember of the widget if the message is published.
        self.memory = comm.memory
        self.state: dict[str, Any] = {}
        self.paths: list[list[Any]] = []
        self.buffers: list[bytes] = []
        self._left: list[tuple[str, str]] = []

    def passed(self, kind: str) -> Passed:
        """Return the message with this state."""
        data = {"state": self.state, "buffer_paths": self.paths}
        memories = [(self._comm, self.memory)]
        return Passed(kind, self._comm, data, self.buffers, self._left, memories)

    def take(self, state: dict[Any, Any], scope: Scope) -> None:
        """Judge ``state``, a whole state or an update, with bytes at their places.

        First each key by its kind; then the keys whose meaning depends on each other.
        """
        model = self._comm.model
        if model is None:
            raise RuntimeError("no widget")
        for key, value in state.items():
            kind = model.keys.get(key) if type(key) is str else None
            if kind is None:
                continue
            try:
                self.state[key] = kind(value, scope)
            except RefusedError as refused:
                self._leave_out(key, refused)
        if "_model_name" in state:
            self.state |= model.identity()
        if model.name in _MEDIA:
            self._settle_media(model.name)
        if "description" in self.state or "description_allow_html" in self.state:
            self._settle_description(scope)
        if "source" in self.state or "target" in self.state:
            self._settle_link(both_ways=model.name == "LinkModel")
        if model.name == "FileUploadModel":
            self._move_files()

    def _leave_out(self, key: str, reason: object) -> None:
        self.state.pop(key, None)
        if len(self._left) < _MOST_NOTED:
            self._left.append((key, str(reason)))

    def _move_files(self) -> None:
        """Move the contents of uploaded files from the state to buffers."""
        for index, row in enumerate(self.state.get("value", ())):
            if isinstance(row.get("content"), bytes):
                self.buffers.append(row.pop("content"))
                self.paths.append(["value", index, "content"])

    def _settle_media(self, model: str) -> None:
        """Judge bytes and their format together; move the bytes to a buffer.

        If only the format changes, it may change among image formats, or among those of sound and
        film: the bytes that are there passed as one of these.
        """
        before = self.memory.format or _MEDIA[model]
        format_now = self.state.get("format") or before
        data = self.state.pop("value", None)
        if data is None:
            kinds = (_RASTER, _SOUND_AND_FILM)
            if not any({before, format_now} <= kind for kind in kinds):
                self._leave_out("format", "what is there was not checked as that")
                return
        else:
            try:
                self.buffers.append(clean_media(model, format_now, data))
            except RefusedError as refused:
                self.state.pop("format", None)
                self._leave_out("value", refused)
                return
            self.paths.append(["value"])
            self.state["format"] = format_now
        self.memory = replace(self.memory, format=format_now)

    def _settle_description(self, scope: Scope) -> None:
        """Clean a description as HTML or as text, also if only that changes and not the text."""
        memory = self.memory
        is_html = bool(self.state.get("description_allow_html", memory.is_html))
        label = self.state.get("description")
        if label is None and is_html:
            label = memory.label
        if label is not None:
            show = k.html if is_html else k.formula
            self.state |= {"description": show(label, scope), "description_allow_html": is_html}
            memory = replace(memory, label=label if len(label) <= _LONGEST_LABEL else "")
        self.memory = replace(memory, is_html=is_html)

    def _settle_link(self, *, both_ways: bool) -> None:
        """Let a link pass if the kind of value at its source may become the kind at its target.

        A link copies values from widget to widget within the page, where the host sees none.
        """
        before = self.memory.ends
        ends = (self.state.get("source") or before[0], self.state.get("target") or before[1])
        source, target = map(self._kind_at, ends)
        flows = _may_become(source, target) and (not both_ways or _may_become(target, source))
        if all(ends) and not flows:
            self.state.pop("source", None)
            self._leave_out("target", "must not become what the source holds")
            return
        self.memory = replace(self.memory, ends=ends)
        for key, end in zip(("source", "target"), ends, strict=True):
            if end is not None:
                self.state[key] = [k.REFERENCE + end[0], end[1]]

    def _kind_at(self, end: tuple[str, str] | None) -> Any:
        """Return the kind of the key at a link's end; None if that widget has no such key."""
        model = self._model_of(end[0]) if end else None
        if model is None or end is None:
            return None
        return model.keys.get(end[1]) if model.keys else _anything


def _anything() -> None:
    """Stand for the kind of each key of a module that the operator added and nobody judges."""


def _may_become(source: Any, target: Any) -> bool:
    """Return whether a value that passed as kind ``source`` may be shown as kind ``target``."""
    if source is None or target is None:
        return False
    return (
        target is _anything
        or (source in _NUMBERS and target in _SHOWS_NUMBERS)
        or (source in _TEXTS and target is k.text)
        or (source is k.color and target in _COLORED)
        or (source is target and target not in _NOT_LINKED)
    )
