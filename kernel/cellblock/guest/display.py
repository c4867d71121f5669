"""Where IPython's results and displays leave the guest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher

from cellblock.errors import FrameTooLargeError
from cellblock.guest.text import encodable
from cellblock.wire import messages

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cellblock.guest.channel import Channel
    from cellblock.guest.streams import Outlet


class Out:
    """The way out: streams first, so that what was printed stands before what is shown."""

    def __init__(self, channel: Channel, outlet: Outlet) -> None:
        self._channel, self._outlet = channel, outlet

    def send(self, message: msgspec.Struct) -> None:
        """Send ``message`` after all text so far."""
        self._outlet.flush()
        self._channel.send(message)

    def show(self, kind: type[msgspec.Struct], data: Mapping[str, Any], **fields: Any) -> None:
        """Send a bundle, falling back to its plain form where it can't be carried."""
        try:
            self.send(kind(data=dict(data), **fields))
        except FrameTooLargeError as exc:
            note = f"<output left out: {exc}>"
            self.send(kind(data={"text/plain": note}))
        except (TypeError, UnicodeEncodeError, RecursionError):
            fields["metadata"] = plain(fields.get("metadata") or {})
            self.send(kind(data=plain(data), **fields))

    def end(self, done: messages.Done) -> None:
        """Send a cell's end, whatever its parts hold."""
        try:
            try:
                self.send(done)
            except (TypeError, UnicodeEncodeError, RecursionError):
                values = {k: plain(v) for k, v in done.user_expressions.items()}
                pages = [plain(p) for p in done.payload]
                done = msgspec.structs.replace(done, user_expressions=values, payload=pages)
                self.send(done)
        except FrameTooLargeError as exc:
            left_out = {"status": "error", "ename": "ValueError", "evalue": str(exc)}
            values = {k: {**left_out, "traceback": []} for k in done.user_expressions}
            self.send(msgspec.structs.replace(done, user_expressions=values, payload=[]))


def plain(data: Mapping[Any, Any]) -> dict[str, Any]:
    """Return ``data`` with every value that msgpack can't carry replaced by its ``str``."""
    return {encodable(str(key)): _plain(value) for key, value in data.items()}


def _plain(value: Any) -> Any:
    try:
        msgspec.msgpack.encode(value)
    except Exception:  # noqa: BLE001 - a user's object may raise anything
        return encodable(value if isinstance(value, str) else repr(value))
    return value


class Publisher(DisplayPublisher):
    """``display()`` and ``clear_output()``."""

    def bind(self, out: Out) -> None:
        """Send through ``out`` from now on."""
        self.out = out

    def publish(  # type: ignore[override]
        self,
        data: dict[str, Any],
        metadata: dict[str, Any] | None = None,
        *,
        transient: dict[str, Any] | None = None,
        update: bool = False,
        **_: Any,
    ) -> None:
        """Send one bundle to the front end."""
        display_id = (transient or {}).get("display_id")
        self.out.show(
            messages.Display,
            data,
            metadata=metadata or {},
            display_id=None if display_id is None else str(display_id),
            update=update,
        )

    def clear_output(self, wait: bool = False) -> None:  # noqa: FBT002 - IPython's signature
        """Clear the running cell's output."""
        self.out.send(messages.Clear(wait=wait))


class ResultHook(DisplayHook):
    """``sys.displayhook``: the last expression's value."""

    def bind(self, out: Out) -> None:
        """Send through ``out`` from now on."""
        self.out = out

    def quiet(self) -> bool:
        """Say whether a trailing semicolon hides the result."""
        shell: Any = self.shell
        cell = shell.history_manager.input_hist_parsed[-1]
        last = cell.rstrip().rpartition("\n")[2]
        return ";" in last and bool(self.semicolon_at_end_of_expression(cell))

    def write_output_prompt(self) -> None:
        """Write nothing: the front end numbers its results."""

    def write_format_data(
        self,
        format_dict: dict[str, Any],
        md_dict: dict[str, Any] | None = None,
    ) -> None:
        """Send the result."""
        self.out.show(messages.Result, format_dict, metadata=md_dict or {})

    def finish_displayhook(self) -> None:
        """Write nothing."""
        self._is_active = False
