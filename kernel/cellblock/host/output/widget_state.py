"""A widget's state, key by key, and what has to be seen together: pure but for what it remembers.

What a key may be can hang on what was let through before: bytes that passed as a picture must not
become an address, nor a text that passed as a text HTML. So a little of each widget is remembered.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from cellblock.host.output import names
from cellblock.host.output import widget_kinds as k
from cellblock.host.output.text import RefusedError
from cellblock.host.output.widget_kinds import Scope

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.host.output.widget_models import Model


# Bytes that a widget carries: images, sound and film, each checked for what it says it is.
#
# A browser makes a document of its own of such bytes when its user asks for it, in the page's
# origin, hence drawings are cleaned. It follows play lists wherever they lead, hence the first
# bytes decide about sound and film and not what the widget says.

#: Formats that a decoder draws and that nothing else is made of.
RASTER: Final = frozenset(("apng", "bmp", "gif", "jpeg", "jpg", "png", "webp"))
_DRAWING: Final = "svg+xml"
_URL: Final = "url"
_SOUND_AND_FILM: Final = frozenset(
    ("aac", "flac", "m4a", "mp3", "mp4", "mpeg", "ogg", "wav", "webm", "x-wav")
)
#: MP4, Matroska, Ogg, WAVE, FLAC, MP3 with and without a tag, AAC.
_CONTAINER: Final = re.compile(
    rb"....ftyp|\x1a\x45\xdf\xa3|OggS|RIFF....WAVE|fLaC|ID3|\xff[\xe2-\xe7\xf1-\xff]", re.DOTALL
)


def _image(said: str, data: bytes) -> bytes:
    if said in RASTER:
        return data
    if said == _DRAWING:
        return _drawing(data) if data else data
    if said == _URL:
        if names.raster(data.decode("ascii", "replace")) is None:
            raise RefusedError("an image at an address is not loaded")
        return data
    raise RefusedError("not an image format that is shown")


def _drawing(data: bytes) -> bytes:
    from cellblock.host.output import svg  # noqa: PLC0415 - as in the gateway

    return svg.clean(data.decode("utf-8", "replace")).encode()


def _playable(said: str, data: bytes) -> bytes:
    if said == _URL:
        raise RefusedError("sound or film at an address is not loaded")
    if said not in _SOUND_AND_FILM or (data and not _CONTAINER.match(data)):
        raise RefusedError("not a format that is played")
    return data


#: By model name: the format it has when it says none, and the check.
MEDIA: Final[dict[str, tuple[str, Callable[[str, bytes], bytes]]]] = {
    "AudioModel": ("mp3", _playable),
    "ImageModel": ("png", _image),
    "VideoModel": ("mp4", _playable),
}


def clean_media(model: str, said: str, data: bytes) -> bytes:
    """Return what may be shown of ``data`` in format ``said``. Raises ``RefusedError``."""
    return MEDIA[model][1](said, data)


def may_become(before: str, after: str) -> bool:
    """Whether bytes that were let through as ``before`` may be called ``after``."""
    return before == after or {before, after} <= RASTER or {before, after} <= _SOUND_AND_FILM


_LABEL: Final = 2_000
_MOST_BUFFERS: Final = 10_000
_MOST_NOTED: Final = 20
_IDENTITY: Final = "_model_name"
_NUMBERS: Final = frozenset((k.flag, k.number, k.numbers))
_TEXTS: Final = frozenset((k.formula, k.html, k.label, k.text))
#: Numbers can be shown as any text; text only where it is nothing but text.
_SHOWS_NUMBERS: Final = _NUMBERS | _TEXTS
_COLORED: Final = frozenset((k.color, k.css))
#: Kinds that mean nothing without the rest of their widget, or that are not values.
_HELD: Final = frozenset(
    (k.capture, k.end, k.layout, k.style, k.label, k.markup, k.media, k.media_format)
)

End = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Memory:
    """What of a widget's state the next message is judged by."""

    format: str = ""
    label: str = ""
    markup: bool = False
    ends: tuple[End | None, End | None] = (None, None)


@dataclass(slots=True)
class Cleaned:
    """State that may pass, its buffers, what was left out and why, what to remember."""

    memory: Memory
    state: dict[str, Any] = field(default_factory=dict)
    paths: list[list[Any]] = field(default_factory=list)
    buffers: list[bytes] = field(default_factory=list)
    left: list[tuple[str, str]] = field(default_factory=list)

    def leave(self, key: str, why: object) -> None:
        """Note that a key was left out."""
        self.state.pop(key, None)
        if len(self.left) < _MOST_NOTED:
            self.left.append((key, str(why)))


def clean(
    model: Model,
    memory: Memory,
    state: dict[Any, Any],
    scope: Scope,
    keys_of: Callable[[str], Model | None],
) -> Cleaned:
    """Return what may pass of ``state``, a whole one or an update."""
    done = Cleaned(memory)
    for key, value in state.items():
        kind = model.keys.get(key) if type(key) is str else None
        if kind is None:
            continue
        try:
            done.state[key] = kind(value, scope)
        except RefusedError as refused:
            done.leave(key, refused)
    if _IDENTITY in state:
        done.state |= model.identity()
    _settle(model, done, keys_of)
    return done


def _settle(model: Model, done: Cleaned, keys_of: Callable[[str], Model | None]) -> None:
    if model.name in MEDIA:
        _media(model, done)
    if "description" in done.state or "description_allow_html" in done.state:
        _description(done)
    if "source" in done.state or "target" in done.state:
        _link(model, done, keys_of)
    if model.name == "FileUploadModel":
        _files(done)


# --- bytes ------------------------------------------------------------------------------------


def merged(state: Any, paths: Any, buffers: list[bytes]) -> dict[Any, Any]:
    """Return ``state`` with its buffers where their paths say, those aside that lead elsewhere.

    A path has one part, or three for a file of a list: no other kind takes bytes.
    """
    if type(state) is not dict:
        return {}
    if not buffers or type(paths) is not list:
        return state
    whole = dict(state)
    for path, buffer in zip(paths[:_MOST_BUFFERS], buffers, strict=False):
        match path:
            case [str(key)]:
                whole[key] = buffer
            case [str(key), int(index), "content"] if index >= 0:
                _put(whole, key, index, buffer)
    return whole


def _put(whole: dict[Any, Any], key: str, index: int, buffer: bytes) -> None:
    rows = whole.get(key)
    if type(rows) is list and index < len(rows) and type(rows[index]) is dict:
        rows = list(rows)
        rows[index] = rows[index] | {"content": buffer}
        whole[key] = rows


def _files(done: Cleaned) -> None:
    for index, row in enumerate(done.state.get("value", ())):
        if isinstance(row.get("content"), bytes):
            done.buffers.append(row.pop("content"))
            done.paths.append(["value", index, "content"])


def _media(model: Model, done: Cleaned) -> None:
    before = done.memory.format or MEDIA[model.name][0]
    said = done.state.get("format") or before
    data = done.state.pop("value", None)
    if data is None:
        if not may_become(before, said):
            done.leave("format", "what is there was not checked as that")
        else:
            done.memory = replace(done.memory, format=said)
        return
    try:
        done.buffers.append(clean_media(model.name, said, data))
    except RefusedError as refused:
        done.state.pop("format", None)
        done.leave("value", refused)
    else:
        done.paths.append(["value"])
        done.memory = replace(done.memory, format=said)


# --- descriptions -----------------------------------------------------------------------------


def _description(done: Cleaned) -> None:
    """Settle a description by whether it is HTML now, also when only that changes."""
    memory, state = done.memory, done.state
    markup = bool(state.get("description_allow_html", memory.markup))
    said = state.get("description")
    if said is None and markup and not memory.markup:
        said = memory.label
    if said is not None:
        show = k.html if markup else k.formula
        state["description"] = show(said, _NOBODY)
        memory = replace(memory, label=said if len(said) <= _LABEL else "")
    done.memory = replace(memory, markup=markup)


_NOBODY: Final = Scope(model_of=lambda _: None, show=lambda _: {}, parent="")


# --- links ------------------------------------------------------------------------------------


def _link(model: Model, done: Cleaned, keys_of: Callable[[str], Model | None]) -> None:
    """Let a link's ends through when what flows in it is what passed, or may, as the other.

    A link carries values from widget to widget in the page, where nobody looks at them.
    """
    before = done.memory.ends
    ends = (done.state.get("source") or before[0], done.state.get("target") or before[1])
    source, target = (_kind(each, keys_of) for each in ends)
    both_ways = model.name == "LinkModel"
    if all(ends) and not (_flows(source, target) and (not both_ways or _flows(target, source))):
        done.state.pop("source", None)
        done.leave("target", "must not become what the source holds")
        return
    done.memory = replace(done.memory, ends=ends)
    for key in ("source", "target"):
        if key in done.state:
            found, name = done.state[key]
            done.state[key] = [k.REFERENCE + found, name]


def _kind(end: End | None, keys_of: Callable[[str], Model | None]) -> Any:
    """Return the kind of what an end holds, None for a key that its widget does not have."""
    model = keys_of(end[0]) if end else None
    if model is None or end is None:
        return None
    return model.keys.get(end[1]) if model.keys else _anything


def _anything() -> None:
    """Stand for the kind of every key of an operator's module."""


def _flows(source: Any, target: Any) -> bool:
    if source is None or target is None:
        return False
    if target is _anything or (source in _NUMBERS and target in _SHOWS_NUMBERS):
        return True
    if source in _TEXTS and target is k.text:
        return True
    if source is k.color and target in _COLORED:
        return True
    return source is target and target not in _HELD
