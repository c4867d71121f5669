"""Kinds of keys that hold something else: outputs, a capture of them, other widgets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from cellblock.host.output import gateway
from cellblock.host.output.refusal import RefusedError
from cellblock.host.output.widgets_kinds import items

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.host.output.widgets_scope import Scope

REFERENCE: Final = "IPY_MODEL_"
_MOST_OUTPUTS: Final = 1_000


def outputs(value: Any, scope: Scope) -> list[dict[str, Any]]:
    """Return what an Output widget shows, each as the gateway passes it on."""
    if type(value) is not list:
        raise RefusedError("not a list")
    shown = (_output(item, scope) for item in value[-_MOST_OUTPUTS:] if type(item) is dict)
    return [item for item in shown if item]


def _output(item: dict[Any, Any], scope: Scope) -> dict[str, Any]:
    kind = item.get("output_type")
    if kind == "stream":
        name = "stderr" if item.get("name") == "stderr" else "stdout"
        return {"output_type": kind, "name": name, "text": gateway.clean_stream(_joined(item))}
    if kind == "error":
        parts = (item.get("ename"), item.get("evalue"), item.get("traceback"))
        return {"output_type": kind, **gateway.clean_error(*parts)}
    if kind not in {"display_data", "execute_result"}:
        return {}
    bundle: dict[str, Any] = {
        "output_type": kind,
        "data": scope.show(item.get("data")),
        "metadata": gateway.clean_metadata(item.get("metadata")),
    }
    if kind == "execute_result":
        count = item.get("execution_count")
        bundle["execution_count"] = count if type(count) is int else None
    return bundle


def _joined(item: dict[Any, Any]) -> Any:
    """Return a stream's text: nbformat allows a list of lines."""
    text_ = item.get("text")
    return "".join(line for line in text_ if type(line) is str) if type(text_) is list else text_


# --- other widgets ----------------------------------------------------------------------------


def capture(value: Any, scope: Scope) -> str:
    """Return the request whose output is captured: the one that runs, whatever was named."""
    return scope.parent if value else ""


def target(value: Any) -> str | None:
    """Return the id that a reference names."""
    if type(value) is str and value.startswith(REFERENCE):
        return value.removeprefix(REFERENCE)
    return None


def _reference(suffix: str) -> Callable[[Any, Scope], str | None]:
    def kind(value: Any, scope: Scope) -> str | None:
        if value is None:
            return None
        found = target(value)
        name = scope.model_of(found) if found is not None else None
        if name is None or not name.endswith(suffix):
            raise RefusedError("refers to no such widget")
        return str(value)

    return kind


layout = _reference("LayoutModel")
style = _reference("StyleModel")


def _references(value: Any, scope: Scope, suffix: str = "") -> list[str]:
    known = ((item, scope.model_of(target(item) or "")) for item in items(value))
    return [item for item, name in known if name is not None and name.endswith(suffix)]


def children(value: Any, scope: Scope) -> list[str]:
    """Return those of a box's children that are there; the others have been refused already."""
    return _references(value, scope)


def buttons(value: Any, scope: Scope) -> list[str]:
    """Return a game controller's buttons: it writes to them by itself."""
    return _references(value, scope, "ControllerButtonModel")


def axes(value: Any, scope: Scope) -> list[str]:
    """Return a game controller's axes."""
    return _references(value, scope, "ControllerAxisModel")


def end(value: Any, scope: Scope) -> tuple[str, str]:
    """Return one end of a link, widget and key; ``widgets_state`` sees both ends."""
    if type(value) is not list or len(value) != 2:  # noqa: PLR2004 - widget, key
        raise RefusedError("not a widget and a key")
    found, key = target(value[0]), value[1]
    if found is None or scope.model_of(found) is None or type(key) is not str:
        raise RefusedError("refers to no such widget")
    return found, key
