"""Reads a kernel's messages: streams, results, cards, errors; and validates them."""

from __future__ import annotations

import re
from ast import literal_eval

from jupyter_kernel_test import msgspec_v5

ANSI = re.compile(r"\x1b\[[0-9;]*m")
#: Types without a schema in msgspec_v5, or whose schema takes a boolean for a number: the keys that
#: their content must have.
KEYS = {
    "input_request": {"prompt", "password"},
    "iopub_welcome": {"subscription"},
    "comm_open": {"comm_id", "target_name", "data"},
    "comm_msg": {"comm_id", "data"},
    "comm_close": {"comm_id", "data"},
    "interrupt_reply": {"status"},
}


def validate(msg):
    """Raise unless ``msg`` is a valid message of its type."""
    kind, content = msg["msg_type"], msg["content"]
    if content.get("status") in {"aborted", "error"} and kind.endswith("_reply"):
        wanted = {"status"} if content["status"] == "aborted" else {"ename", "evalue", "traceback"}
        assert wanted <= content.keys(), msg
        msgspec_v5.msg_structure_validator.validate(_bare(msg))
    elif kind in KEYS:
        assert KEYS[kind] <= content.keys(), msg
        msgspec_v5.msg_structure_validator.validate(_bare(msg))
    else:
        msgspec_v5.validate_message(_bare(msg), kind)


def _bare(msg):
    return {k: v for k, v in msg.items() if k not in {"msg_id", "msg_type"}}


def kinds(published):
    """Return the types of the messages between the echoed input and the status idle."""
    assert published[0]["msg_type"] == "status"
    assert published[0]["content"]["execution_state"] == "busy"
    rest = [m["msg_type"] for m in published[1:-1]]
    return rest[1:] if rest[:1] == ["execute_input"] else rest


def of(published, *wanted):
    """Return the contents of the messages of these types."""
    return [m["content"] for m in published if m["msg_type"] in wanted]


def stream(published, name="stdout"):
    """Return the text on one stream."""
    return "".join(c["text"] for c in of(published, "stream") if c["name"] == name)


def notices(published):
    """Return the lines that the host added, each with its end."""
    said = [
        m["content"]["data"]["text/plain"]
        for m in published
        if m["msg_type"] == "display_data" and m["metadata"] == {"cellblock": "notice"}
    ]
    return "".join(f"{line}\n" for line in said)


def result(published):
    """Return the plain text of a cell's result, or None."""
    found = of(published, "execute_result")
    return found[0]["data"]["text/plain"] if found else None


def cards(published, kind):
    """Return the JSON of cellblock's cards of one kind, e.g. ``denial``."""
    mime = f"application/vnd.cellblock.{kind}+json"
    shown = of(published, "display_data")
    return [c["data"][mime] for c in shown if mime in c["data"]]


def card_text(published):
    """Return the plain text of everything displayed."""
    return "\n".join(c["data"]["text/plain"] for c in of(published, "display_data"))


def traceback(published):
    """Return the published traceback without colours."""
    (error,) = of(published, "error")
    return ANSI.sub("", "\n".join(error["traceback"]))


def run(kernel, code, **fields):
    """Run a cell, which must succeed; return the messages that were published."""
    reply, published = kernel.run(code, **fields)
    assert reply["status"] == "ok", (code, reply, card_text(published))
    return published


def value(kernel, code):
    """Run a cell whose result is a literal; return its value."""
    return literal_eval(result(run(kernel, code)))
