"""The worker: a trusted process that runs the operator's tools, operations or calls of models.

It holds no key of Jupyter's, and ends with the host, however that ends. What tools print goes to
the host's stderr. ``registry`` loads the tools, which validate their arguments; ``runner`` runs
calls.
"""

from __future__ import annotations

import os
import socket
import threading
from typing import TYPE_CHECKING

import msgspec

from cellblock.host.guests.spawn import end_with_host, protect_host
from cellblock.host.services.operations.catalog import OperationGrants
from cellblock.wire import frames
from cellblock.wire.messages import Struct, Tool

if TYPE_CHECKING:
    from collections.abc import Iterator

READ_SIZE = 1 << 16


# --- messages between host and worker, over a socket of their own -----------------------------


class Load(Struct, tag="load", frozen=True, kw_only=True):
    """First: the ``entries`` to import, or else the ``operations`` to offer.

    The environment comes here, and not where other processes can read it.
    """

    entries: tuple[str, ...]
    operations: OperationGrants | None = None
    environment: dict[bytes, bytes]
    threads: int
    max_bytes: int


class Begin(Struct, tag="begin", frozen=True, kw_only=True):
    """Run a tool. ``arguments`` are as a guest encoded them."""

    number: int
    tool: str
    arguments: msgspec.Raw


class Cancel(Struct, tag="cancel", frozen=True, kw_only=True):
    """Tell a call to stop; it is answered all the same."""

    number: int


class Loaded(Struct, tag="loaded", frozen=True, kw_only=True):
    """The tools are ready."""

    tools: tuple[Tool, ...]


class LoadFailed(Struct, tag="not_loaded", frozen=True, kw_only=True):
    """An entry is no tool; the worker ends."""

    entry: str
    message: str
    remedy: str


class Piece(Struct, tag="piece", frozen=True, kw_only=True):
    """A part of the text that a call will return."""

    number: int
    text: str


class Progress(Struct, tag="said", frozen=True, kw_only=True):
    """A line about a call's progress, for the user who waits."""

    number: int
    text: str


class Returned(Struct, tag="returned", frozen=True, kw_only=True):
    """A call ended with this value."""

    number: int
    value: msgspec.Raw


class Raised(Struct, tag="raised", frozen=True, kw_only=True):
    """A call ended with an exception of this type."""

    number: int
    kind: str
    message: str


ToWorker = Load | Begin | Cancel
FromWorker = Loaded | LoadFailed | Piece | Progress | Returned | Raised


# --- the process ------------------------------------------------------------------------------


def main(fd: int, host: int) -> None:
    """Load the tools, and run calls until the host, whose pid is given, hangs up."""
    end_with_host(host)
    protect_host()
    sock = socket.socket(fileno=fd)
    sock.set_inheritable(False)
    messages = _messages(sock)
    load = next(messages, None)
    if not isinstance(load, Load):
        return
    os.environb.update(load.environment)
    # Only now: both import what reads the environment.
    from cellblock.host.services.tools import registry, runner  # noqa: PLC0415 - see above

    lock = threading.Lock()

    def send(message: msgspec.Struct) -> None:
        frame = frames.encode(message)
        with lock:
            sock.sendall(frame)

    try:
        if load.operations is not None:
            tools = registry.load_operations(load.operations)
        else:
            tools = registry.load(load.entries)
    except registry.InvalidToolError as exc:
        send(LoadFailed(entry=exc.entry, message=exc.message, remedy=exc.remedy))
        return
    send(Loaded(tools=tuple(one.tool for one in tools.values())))
    calls = runner.CallRunner(tools, send, threads=load.threads, max_bytes=load.max_bytes)
    for message in messages:
        match message:
            case Begin():
                calls.begin(message)
            case Cancel(number=number):
                calls.cancel(number)


def _messages(sock: socket.socket) -> Iterator[ToWorker]:
    decode: frames.Decoder[ToWorker] = frames.Decoder(ToWorker)
    splitter = frames.Splitter(2 * frames.MAX_FRAME)
    while data := sock.recv(READ_SIZE):
        for payload in splitter.feed(data):
            yield decode(payload)
