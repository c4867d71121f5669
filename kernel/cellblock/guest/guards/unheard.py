"""Shows errors that nobody catches, as the interpreter does, but in Python.

Its own way opens the file that the error came through, in C and in whatever frame runs just then:
to the audit hook that is a cell that opens files. Logging's own way looks into frames, and asks a
record that may be anybody's while it does.
"""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import TracebackType


def harden() -> None:
    """Replace ``sys.unraisablehook``, ``threading.excepthook`` and logging's. Call once."""
    sys.unraisablehook = _unraisable
    threading.excepthook = _in_thread
    logging.Handler.handleError = _in_handler  # type: ignore[assignment,method-assign]


def _unraisable(args: Any) -> None:
    """Tell of an exception in a finaliser or a callback (``sys.unraisablehook``)."""
    head = args.err_msg or "Exception ignored in"
    _show(f"{head}: {_named(args.object)}" if args.object is not None else f"{head}:", args)


def _in_thread(args: Any) -> None:
    """Tell of an exception that ended a thread (``threading.excepthook``)."""
    if not issubclass(args.exc_type, SystemExit):
        name = args.thread.name if args.thread is not None else "?"
        _show(f"Exception in thread {name}:", args)


def _in_handler(_handler: logging.Handler, record: logging.LogRecord) -> None:
    """Tell of an exception that a log record caused (``logging.Handler.handleError``)."""
    stream = sys.stderr
    if not logging.raiseExceptions or stream is None:
        return
    trace = traceback.format_exc()
    try:
        message = f"Message: {record.msg!r}\nArguments: {record.args}\n"
    except Exception:  # noqa: BLE001 - a user's __repr__ may raise anything
        message = "Message: <it could not be formatted>\n"
    stream.write(f"--- Logging error ---\n{trace}{message}")


def _show(head: str, args: Any) -> None:
    trace: TracebackType | None = args.exc_traceback
    try:
        lines = traceback.format_exception(args.exc_type, args.exc_value, trace)
    except Exception:  # noqa: BLE001 - a user's __str__ may raise anything
        lines = [f"{args.exc_type.__name__}\n"]
    stream = sys.stderr
    if stream is not None:
        stream.write(f"{head}\n{''.join(lines)}")


def _named(thing: object) -> str:
    try:
        return repr(thing)
    except Exception:  # noqa: BLE001 - as above
        return f"<{type(thing).__name__}>"
