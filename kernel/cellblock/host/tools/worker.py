"""The worker: the operator's tools, in a process of their own. Trusted; holds no key of Jupyter's.

It ends when the host does, however that ends. What tools print goes to the host's own stderr.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from typing import TYPE_CHECKING, Any

from cellblock.host.guests.spawn import end_with, protect_host
from cellblock.host.tools import speech
from cellblock.wire import frames

if TYPE_CHECKING:
    import msgspec

    from cellblock.host.ops.settings import Settings
    from cellblock.host.tools.registry import Registered

READ_SIZE = 1 << 16


def main(fd: int, host: int) -> None:
    """Serve until the host hangs up. ``host`` is its pid."""
    end_with(host)
    protect_host()
    sock = socket.socket(fileno=fd)
    sock.set_inheritable(False)
    decode: frames.Decoder[speech.ToWorker] = frames.Decoder(speech.ToWorker)
    messages = _messages(sock, decode)
    load = next(messages, None)
    if not isinstance(load, speech.Load):
        return
    os.environb.update(load.environment)
    lock = threading.Lock()

    def send(message: msgspec.Struct) -> None:
        frame = frames.encode(message)
        with lock:
            sock.sendall(frame)

    tools = _load(load, send)
    if tools is not None:
        _serve(load, tools, messages, send)


def _load(load: speech.Load, send: Any) -> dict[str, Registered] | None:
    from cellblock.host.tools import registry  # noqa: PLC0415 - imports what reads the environment

    try:
        found = _operations(load.operations) if load.operations else registry.load(load.entries)
    except registry.NoToolError as exc:
        send(speech.NotLoaded(entry=exc.entry, message=exc.message, remedy=exc.remedy))
        return None
    send(speech.Loaded(tools=tuple(one.tool for one in found.values())))
    return found


def _operations(settings: Settings) -> dict[str, Registered]:
    from cellblock.host.ops import functions  # noqa: PLC0415 - workers of operators have none

    return functions.load(settings)


def _serve(load: speech.Load, tools: Any, messages: Any, send: Any) -> None:
    from cellblock.host.tools.runs import Runs  # noqa: PLC0415 - as above

    runs = Runs(tools, send, threads=load.threads, most=load.max_bytes)
    for message in messages:
        match message:
            case speech.Begin():
                runs.begin(message)
            case speech.Cancel(number=number):
                runs.cancel(number)


def _messages(sock: socket.socket, decode: frames.Decoder[speech.ToWorker]) -> Any:
    splitter = frames.Splitter(2 * frames.MAX_FRAME)
    while data := sock.recv(READ_SIZE):
        for payload in splitter.feed(data):
            yield decode(payload)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
