"""Text that goes on: kept in parts until all is there, or each part would copy what came before."""

from __future__ import annotations

from typing import Any


def joined(outputs: list[dict[str, Any]], made: dict[str, Any]) -> None:
    """Add an output, or its text to the stream that it goes on with."""
    if made["output_type"] != "stream":
        outputs.append(made)
        return
    last = outputs[-1] if outputs else {}
    if last.get("output_type") != "stream" or last["name"] != made["name"]:
        outputs.append(made | {"text": [made["text"]]})
        return
    if isinstance(last["text"], str):
        last["text"] = [last["text"]]
    last["text"].append(made["text"])


def finished(output: dict[str, Any]) -> dict[str, Any]:
    """Return an output with its text in one piece."""
    text = output.get("text")
    return output | {"text": "".join(text)} if isinstance(text, list) else output
