"""The worker: the operator's tools, in a process of their own. Trusted; holds no key of Jupyter's.

It ends when the host does, however that ends. What tools print goes to the host's own stderr.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from typing import TYPE_CHECKING, Any

from cellblock.host.guests.spawn import end_with_host, protect_host
from cellblock.host.services.tools import protocol
from cellblock.wire import frames

if TYPE_CHECKING:
    import msgspec

    from cellblock.host.services.operations.catalog import OperationGrants
    from cellblock.host.services.tools.registry import RegisteredTool


READ_SIZE = 1 << 16


def main(fd: int, host: int) -> None:
    """Serve until the host hangs up. ``host`` is its pid."""
    end_with_host(host)
    protect_host()
    sock = socket.socket(fileno=fd)
    sock.set_inheritable(False)
    decode: frames.Decoder[protocol.ToWorker] = frames.Decoder(protocol.ToWorker)
    messages = _messages(sock, decode)
    load = next(messages, None)
    if not isinstance(load, protocol.Load):
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


def _load(load: protocol.Load, send: Any) -> dict[str, RegisteredTool] | None:
    from cellblock.host.services.tools import registry  # noqa: PLC0415 - imports what reads the environment

    try:
        found = _operations(load.operations) if load.operations else registry.load(load.entries)
    except registry.InvalidToolError as exc:
        send(protocol.LoadFailed(entry=exc.entry, message=exc.message, remedy=exc.remedy))
        return None
    send(protocol.Loaded(tools=tuple(one.tool for one in found.values())))
    return found


def _operations(settings: OperationGrants) -> dict[str, RegisteredTool]:
    from cellblock.host.services.operations import functions  # noqa: PLC0415 - workers of operators have none

    return functions.load(settings)


def _serve(load: protocol.Load, tools: Any, messages: Any, send: Any) -> None:
    from cellblock.host.services.tools.runner import CallRunner  # noqa: PLC0415 - as above

    runs = CallRunner(tools, send, threads=load.threads, most=load.max_bytes)
    for message in messages:
        match message:
            case protocol.Begin():
                runs.begin(message)
            case protocol.Cancel(number=number):
                runs.cancel(number)


def _messages(sock: socket.socket, decode: frames.Decoder[protocol.ToWorker]) -> Any:
    splitter = frames.Splitter(2 * frames.MAX_FRAME)
    while data := sock.recv(READ_SIZE):
        for payload in splitter.feed(data):
            yield decode(payload)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
