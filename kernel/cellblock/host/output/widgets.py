"""Comms: which may be open towards the front end, and what may be said on them.

Invariant: a comm is known here before the front end hears of it, by the target and, for a widget,
by the model that it was let through as; what is said on it later is judged by that, not by what
it says. The front end's own comms reach targets that the policy names, and no others.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from cellblock.host.output import gateway, widget_state
from cellblock.host.output.widget_kinds import Scope
from cellblock.host.output.widget_models import MODELS, VERSIONS, Model
from cellblock.host.output.widget_state import Memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cellblock.host.output.widget_state import Cleaned
    from cellblock.wire import messages


# A comm, a message on it that may pass, and the refusal of one: values.


@dataclass(frozen=True, slots=True)
class Refused:
    """A comm that was not opened: its target and, of a widget, its module and model."""

    target: str
    module: str = ""
    model: str = ""


@dataclass(slots=True)
class Comm:
    """One comm that the front end knows of."""

    id: str
    target: str
    model: Model | None = None
    memory: Memory = field(default_factory=Memory)


@dataclass(slots=True)
class Passed:
    """A message that may go to the front end; ``Comms.commit`` once it does."""

    kind: str
    comm: Comm
    data: dict[str, Any]
    buffers: list[bytes] = field(default_factory=list)
    left: list[tuple[str, str]] = field(default_factory=list)
    memories: list[tuple[Comm, Memory]] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)

    def content(self) -> dict[str, Any]:
        """Return the message's content."""
        content = {"comm_id": self.comm.id, "data": self.data}
        return content | {"target_name": self.comm.target} if self.kind == "comm_open" else content


# What passes as it is said, to an operator's module or target: bounded, and no more than that.

_LONGEST_PATH = 20


def said(data: dict[Any, Any], buffers: list[bytes]) -> tuple[dict[str, Any], list[bytes]]:
    """Return a message's data, bounded, and its buffers, if they have plain places."""
    cleaned = gateway.clean_comm(data)
    if "buffer_paths" not in cleaned:
        return cleaned, buffers
    cleaned["buffer_paths"], buffers = plain_paths(cleaned["buffer_paths"], buffers)
    return cleaned, buffers


def plain_paths(paths: Any, buffers: list[bytes]) -> tuple[list[Any], list[bytes]]:
    """Return the paths, each with its buffer, that stay within plain objects and lists."""
    kept = [
        (path, buffer)
        for path, buffer in zip(paths if type(paths) is list else [], buffers, strict=False)
        if type(path) is list and 0 < len(path) <= _LONGEST_PATH and all(map(_is_step, path))
    ]
    return [path for path, _ in kept], [buffer for _, buffer in kept]


def _is_step(part: Any) -> bool:
    """Refuse the names through which a path leaves an object for its class."""
    if type(part) is int:
        return part >= 0
    return type(part) is str and part not in {"__proto__", "constructor", "prototype"}


def clean_version(value: Any) -> str:
    """Return a version as package managers write it, ``""`` for anything else."""
    return value if isinstance(value, str) and re.fullmatch(r"[\w.^~*+-]{1,40}", value) else ""


# The answer to a page that asks for every widget's state: one row a widget, told apart here.


@dataclass(frozen=True, slots=True)
class Row:
    """One widget's state as the guest tells it, with its own buffers and their paths."""

    id: str
    state: dict[Any, Any]
    version: str
    paths: list[list[Any]] = field(default_factory=list)
    buffers: list[bytes] = field(default_factory=list)

    def shown(self, model: Model, state: dict[str, Any]) -> dict[str, Any]:
        """Return the row with ``state`` in it, under the name the widget was let through as."""
        return {
            "model_name": model.name,
            "model_module": model.module,
            "model_module_version": VERSIONS.get(model.module, self.version),
            "state": state,
        }


def rows(data: dict[Any, Any], buffers: list[bytes]) -> Iterator[Row]:
    """Yield the rows of an ``update_states`` that are rows."""
    states, found = data.get("states"), dict[str, Row]()
    for name, row in states.items() if type(states) is dict else ():
        state = row.get("state") if type(row) is dict else None
        if type(name) is str and type(state) is dict:
            version = clean_version(row.get("model_module_version"))
            found[name] = Row(name, state, version)
    paths = data.get("buffer_paths")
    for path, buffer in zip(paths if type(paths) is list else [], buffers, strict=False):
        match path:
            case [str(name), "state", *rest] if name in found:
                found[name].paths.append(rest)
                found[name].buffers.append(buffer)
    yield from found.values()


WIDGET: Final = "jupyter.widget"
CONTROL: Final = "jupyter.widget.control"
VIEW: Final = "application/vnd.jupyter.widget-view+json"
#: Comms that may be open at once; a page full of controls has some hundreds.
MOST: Final = 20_000
_ID: Final = re.compile(r"[A-Za-z0-9_.:-]{1,200}")
_VERSION: Final = {"version": "2.1.0"}
_CUSTOM: Final = ({"do": "focus"}, {"do": "blur"})


class Comms:
    """Every comm of one kernel."""

    def __init__(
        self,
        *,
        modules: tuple[str, ...] = (),
        targets: tuple[str, ...] = (),
        trusted: bool = False,
        show: Callable[[Any], dict[str, Any]] = gateway.clean_bundle,
    ) -> None:
        self._modules, self._trusted, self._show = frozenset(modules), trusted, show
        widgets = (WIDGET, CONTROL) if modules else ()
        self._targets = frozenset((*targets, *widgets))
        self._open: dict[str, Comm] = {}
        self._capturing: set[str] = set()
        self._focused = ""

    # --- what the front end asks and says -----------------------------------------------------

    def knows(self, name: Any) -> bool:
        """Say whether this comm is open."""
        return name in self._open if isinstance(name, str) else False

    def listing(self, target: str | None) -> dict[str, dict[str, str]]:
        """Return the ``comms`` of a ``comm_info_reply``, of one target or all."""
        return {
            comm.id: {"target_name": comm.target}
            for comm in self._open.values()
            if target is None or comm.target == target
        }

    def opened_by_front(self, content: dict[str, Any]) -> bool:
        """Take note of a comm that the front end opens; say whether it may."""
        name, target = content.get("comm_id"), content.get("target_name")
        if not isinstance(name, str) or not _ID.fullmatch(name) or len(self._open) >= MOST:
            return False
        if not isinstance(target, str) or not (target in self._targets or self._trusted):
            return False
        model = _model_in(content.get("data")) if target == WIDGET else None
        if target == WIDGET and model is None and not self._trusted:
            return False
        self._open.setdefault(name, Comm(name, target, model))
        return True

    def closed_by_front(self, name: str) -> None:
        """Forget a comm that the front end closes."""
        self._forget(name)

    # --- what the guest says ------------------------------------------------------------------

    def clean(self, message: messages.CommOut, parent: str) -> Passed | Refused | None:
        """Return what may pass of a guest's message, or why not, or None where nobody asks.

        ``parent`` is the id of the request under which it is shown. Changes nothing.
        """
        name, data = message.content.get("comm_id"), message.content.get("data")
        if not isinstance(name, str) or not _ID.fullmatch(name):
            return None
        data = data if type(data) is dict else {}
        if message.kind == "comm_open":
            return self._opened(name, data, message, parent)
        comm = self._open.get(name)
        if comm is None:
            return None
        if message.kind == "comm_close":
            return Passed("comm_close", comm, {})
        return self._said(comm, data, message, parent) if message.kind == "comm_msg" else None

    def commit(self, passed: Passed) -> None:
        """Take note of a message that went to the front end."""
        comm = passed.comm
        if passed.kind == "comm_close":
            self._forget(comm.id)
            return
        if passed.kind == "comm_open":
            self._open[comm.id] = comm
        for each, memory in passed.memories:
            each.memory = memory
        state = passed.data.get("state")
        if isinstance(state, dict) and "msg_id" in state:
            (self._capturing.add if state["msg_id"] else self._capturing.discard)(comm.id)

    def release(self) -> Iterator[Passed]:
        """Yield what ends every Output widget's capture: a card of ours is no cell's to place."""
        for name in sorted(self._capturing):
            data = {"method": "update", "state": {"msg_id": ""}, "buffer_paths": []}
            yield Passed("comm_msg", self._open[name], data)
        self._capturing.clear()

    def reset(self) -> None:
        """Forget every comm: the guest that held their other ends is gone."""
        self._open.clear()
        self._capturing.clear()

    def view(self, value: Any) -> dict[str, Any] | None:
        """Return a bundle's view of an admitted widget, None if it is none."""
        name = value.get("model_id") if isinstance(value, dict) else None
        comm = self._open.get(name) if isinstance(name, str) else None
        if comm is None or comm.target != WIDGET:
            return None
        return {"version_major": 2, "version_minor": 0, "model_id": name}

    # --- opening ------------------------------------------------------------------------------

    def _opened(
        self, name: str, data: dict[Any, Any], message: messages.CommOut, parent: str
    ) -> Passed | Refused | None:
        target = gateway.clean_name(message.content.get("target_name")) or ""
        if name in self._open or len(self._open) >= MOST:
            return None
        if self._trusted or target not in (WIDGET, CONTROL):
            if target not in self._targets and not self._trusted:
                return Refused(target)
            return _raw("comm_open", Comm(name, target), data, message)
        if target == CONTROL:  # the front end opens it
            return Refused(target)
        return self._widget(name, data, message, parent)

    def _widget(
        self, name: str, data: dict[Any, Any], message: messages.CommOut, parent: str
    ) -> Passed | Refused | None:
        state = data.get("state")
        state = state if type(state) is dict else {}
        module, model = _said(state, "_model_module"), _said(state, "_model_name")
        found = MODELS.get((module, model))
        if module not in self._modules or (found is None and module in VERSIONS):
            return Refused(WIDGET, module, model)
        if found is None:
            comm = Comm(name, WIDGET, Model(module, model, module, None, {}))
            return replace(_raw("comm_open", comm, data, message), metadata=dict(_VERSION))
        comm = Comm(name, WIDGET, found)
        state = {**state, "_model_name": model}
        cleaned = self._state(comm, state, data.get("buffer_paths"), message.buffers, parent)
        passed = _passed("comm_open", comm, cleaned)
        return replace(passed, metadata=dict(_VERSION))

    # --- talking ------------------------------------------------------------------------------

    def _said(
        self, comm: Comm, data: dict[Any, Any], message: messages.CommOut, parent: str
    ) -> Passed | None:
        if comm.target == CONTROL and not self._trusted:
            return self._states(comm, data, message, parent)
        if comm.model is None or not comm.model.keys or self._trusted:
            return _raw("comm_msg", comm, data, message)
        method, state = data.get("method"), data.get("state")
        if method == "custom":
            return self._custom(comm, data.get("content"), parent)
        if method not in {"update", "echo_update"} or type(state) is not dict:
            return None
        if method == "echo_update" and "outputs" in state:
            # The front end has them from here, cleaned; again would not be quite the same.
            state = {key: value for key, value in state.items() if key != "outputs"}
        cleaned = self._state(comm, state, data.get("buffer_paths"), message.buffers, parent)
        return replace(_passed("comm_msg", comm, cleaned), data=_update(method, cleaned))

    def _custom(self, comm: Comm, content: Any, parent: str) -> Passed | None:
        """Pass on that a widget takes the focus, once a request: it takes what is typed, too."""
        if content not in _CUSTOM or self._focused == parent:
            return None
        self._focused = parent
        return Passed("comm_msg", comm, {"method": "custom", "content": dict(content)})

    def _states(
        self, comm: Comm, data: dict[Any, Any], message: messages.CommOut, parent: str
    ) -> Passed | None:
        """Return all widgets' states, as a page that is loaded anew asks for them."""
        if data.get("method") != "update_states":
            return None
        passed = Passed("comm_msg", comm, {})
        shown, paths = dict[str, Any](), list[list[Any]]()
        for row in rows(data, message.buffers):
            one = self._open.get(row.id)
            if one is None or one.model is None:
                continue
            cleaned = self._row(one, row, parent)
            shown[row.id] = row.shown(one.model, cleaned.state)
            paths += [[row.id, "state", *path] for path in cleaned.paths]
            passed.buffers += cleaned.buffers
            passed.memories.append((one, cleaned.memory))
        passed.data = {"method": "update_states", "states": shown, "buffer_paths": paths}
        return passed

    def _row(self, comm: Comm, row: Row, parent: str) -> Cleaned:
        if comm.model is not None and comm.model.keys:
            state = {**row.state, "_model_name": comm.model.name}
            return self._state(comm, state, row.paths, row.buffers, parent)
        paths, buffers = plain_paths(row.paths, row.buffers)
        state = gateway.clean_comm(row.state)
        return widget_state.Cleaned(comm.memory, state, paths, buffers)

    def _state(
        self, comm: Comm, state: dict[Any, Any], paths: Any, buffers: list[bytes], parent: str
    ) -> Cleaned:
        if comm.model is None:
            raise RuntimeError("no widget")
        scope = Scope(model_of=self._model_of, show=self._show, parent=parent)
        whole = widget_state.merged(state, paths, buffers)
        return widget_state.clean(comm.model, comm.memory, whole, scope, self._widget_of)

    def _model_of(self, name: str) -> str | None:
        model = self._widget_of(name)
        return model.name if model is not None else None

    def _widget_of(self, name: str) -> Model | None:
        comm = self._open.get(name)
        return comm.model if comm is not None else None

    def _forget(self, name: str) -> None:
        self._open.pop(name, None)
        self._capturing.discard(name)


def _said(state: dict[Any, Any], key: str) -> str:
    return gateway.clean_name(state.get(key)) or ""


def _model_in(data: Any) -> Model | None:
    state = data.get("state") if isinstance(data, dict) else None
    if type(state) is not dict:
        return None
    return MODELS.get((_said(state, "_model_module"), _said(state, "_model_name")))


def _update(method: str, cleaned: Cleaned) -> dict[str, Any]:
    return {"method": method, "state": cleaned.state, "buffer_paths": cleaned.paths}


def _passed(kind: str, comm: Comm, cleaned: Cleaned) -> Passed:
    data = {"state": cleaned.state, "buffer_paths": cleaned.paths}
    memories = [(comm, cleaned.memory)]
    return Passed(kind, comm, data, cleaned.buffers, cleaned.left, memories)


def _raw(kind: str, comm: Comm, data: dict[Any, Any], message: messages.CommOut) -> Passed:
    cleaned, buffers = said(data, message.buffers)
    metadata = gateway.clean_metadata(message.metadata)
    return Passed(kind, comm, cleaned, buffers, metadata=metadata)
