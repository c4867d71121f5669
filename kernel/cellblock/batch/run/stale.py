"""Outputs that stood in a notebook already: of cells that are not run, cleaned as a guest's are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from cellblock.host.output import gateway

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Of one cell; more are no outputs that anybody looked at.
_MOST: Final = 1_000
_JSON: Final = ("application/json", "+json")


def cleaned(outputs: Iterable[Any], display: str) -> list[dict[str, Any]]:
    """Return what may be shown of them under a policy's ``display``; the rest is left out."""
    show = gateway.for_display(display)
    made = (_cleaned(one, show) for one in list(outputs)[:_MOST] if type(one) is dict)
    return [one for one in made if one is not None]


def _cleaned(one: dict[str, Any], show: gateway.Show) -> dict[str, Any] | None:
    kind = one.get("output_type")
    match kind:
        case "stream":
            name = "stderr" if one.get("name") == "stderr" else "stdout"
            return {
                "output_type": kind,
                "name": name,
                "text": gateway.clean_stream(_whole(one.get("text"))),
            }
        case "error":
            parts = (one.get("ename"), one.get("evalue"), one.get("traceback"))
            return {"output_type": kind, **gateway.clean_error(*parts)}
        case "display_data" | "execute_result":
            made = {"output_type": kind, "data": show(_bundle(one.get("data")))}
            made["metadata"] = gateway.clean_metadata(one.get("metadata"))
            return made if kind == "display_data" else made | {"execution_count": _count(one)}
    return None


def _bundle(data: Any) -> dict[str, Any]:
    if type(data) is not dict:
        return {}
    return {k: v if k.endswith(_JSON) else _whole(v) for k, v in data.items()}


def _whole(text: Any) -> Any:
    """Return a text that is written in lines in one piece."""
    if type(text) is list and all(type(line) is str for line in text):
        return "".join(text)
    return text


def _count(one: dict[str, Any]) -> int | None:
    count = one.get("execution_count")
    return count if type(count) is int and 0 <= count < 1 << 31 else None
