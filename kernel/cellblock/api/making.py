"""From a cell that has ended to its result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cellblock.api import results
from cellblock.api.wording import plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cellblock.analysis import Finding
    from cellblock.host.cell.cell import CellRun
    from cellblock.host.cell.status import Views
    from cellblock.host.services.tools.types import Record
    from cellblock.host.session.types import Outcome, Stopped


def made_of(
    run: CellRun,
    content: Mapping[str, Any],
    outputs: tuple[results.Output, ...],
    left_out: Mapping[str, int],
    views: Views,
) -> results.Result:
    """Return what came of a cell, of which ``content`` is a kernel's reply."""
    outcome, exported = run.outcome, run.exported
    stopped = outcome.stopped if outcome is not None else None
    displays = displays_of(outputs)
    rich = next((d for kind, d in displays if kind == "execute_result"), None)
    return results.Result(
        status=_status(outcome, content, views),
        output=_text(outputs, "stdout"),
        error_output=_text(outputs, "stderr"),
        result=str(rich) if rich is not None else None,
        rich_result=rich,
        error=_error(content),
        displays=tuple(d for kind, d in displays if kind != "execute_result"),
        pages=tuple(plain(page["data"]["text/plain"]) for page in content.get("payload", ())),
        denials=tuple(map(_denial, outcome.findings)) if outcome is not None else (),
        stop=_stop(stopped, content, views) if stopped is not None else None,
        tool_calls=tuple(map(_call, outcome.tool_calls.records)) if outcome is not None else (),
        tool_calls_left_out=outcome.tool_calls.left_out if outcome is not None else 0,
        artifacts=exported.artifacts if exported is not None else (),
        skipped=exported.skipped if exported is not None else (),
        usage=outcome.usage if outcome is not None else None,
        left_out=dict(left_out),
        outputs=outputs,
        execution_count=run.count,
        policy=views.in_force.name if views.in_force is not None else "",
        source=run.raw,
    )


def _status(outcome: Outcome | None, content: Mapping[str, Any], views: Views) -> results.Status:
    if content["status"] == "ok":
        return "ok"
    if views.failed:
        return "failed"
    return "refused" if outcome is None else outcome.status


def _text(outputs: tuple[results.Output, ...], name: str) -> str:
    """Return what is left of a stream once its clearings have been heeded."""
    parts, due = list[str](), False
    for output in outputs:
        if output.kind == "clear_output":
            due = bool(output.content["wait"])
            parts = parts if due else []
        elif due and output.kind in {"stream", "display_data", "execute_result"}:
            parts, due = [], False
        if output.kind == "stream" and output.content["name"] == name:
            parts.append(output.content["text"])
    return "".join(parts)


def displays_of(
    outputs: tuple[results.Output, ...],
) -> list[tuple[results.Kind, results.Display]]:
    """Return what a cell shows in the end, updated and cleared as it asked; cards of ours apart."""
    shown, due = list[tuple[results.Kind, results.Display]](), False
    for output in outputs:
        if output.ours:
            continue
        if output.kind == "clear_output":
            due = bool(output.content["wait"])
            shown = shown if due else []
        elif output.kind == "update_display_data":
            new = _display(output)
            shown = [(k, new if d.display_id == new.display_id else d) for k, d in shown]
        elif output.kind in {"stream", "display_data", "execute_result"}:
            shown, due = ([] if due else shown), False
            if output.kind != "stream":
                shown.append((output.kind, _display(output)))
    return shown


def _display(output: results.Output) -> results.Display:
    content = output.content
    name = content.get("transient", {}).get("display_id")
    return results.Display(content["data"], content["metadata"], name)


def _error(content: Mapping[str, Any]) -> results.CellError | None:
    if content["status"] == "ok":
        return None
    lines = tuple(content.get("traceback", ()))
    return results.CellError(
        type=content.get("ename", ""),
        message=plain(content.get("evalue", "")),
        traceback=plain("\n".join(lines)),
        lines=lines,
    )


def _denial(finding: Finding) -> results.Denial:
    names = results.Denial.__slots__
    return results.Denial(**{name: getattr(finding, name) for name in names})


def _stop(stopped: Stopped, content: Mapping[str, Any], views: Views) -> results.Stop:
    from cellblock.host.cell import status  # noqa: PLC0415 - few cells are

    state: Any = "kept" if stopped.kept else "gone" if stopped.restored is None else "restored"
    said = plain("\n".join(content.get("traceback", ())))
    return results.Stop(stopped.why, status.reason(stopped, views.in_force)[1], state, said)


def _call(record: Record) -> results.ToolCall:
    told = record.as_dict()
    error = told.get("error")
    return results.ToolCall(
        name=told["name"],
        args=tuple(told["args"]),
        kwargs=told["kwargs"],
        status=record.status,
        seconds=told["seconds"],
        result=told.get("result"),
        error=(error["type"], error["message"]) if error is not None else None,
        tokens=record.tokens,
    )
