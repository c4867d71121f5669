"""Providers side by side: each call goes to the one that has its tool."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cellblock.host.tools.provider import Call, Provider


class Several:
    """A provider. ``named`` have the tools, by name; the broker passes no call of any other."""

    def __init__(self, named: Mapping[str, Provider]) -> None:
        self._named = named
        self._all: tuple[Provider, ...] = tuple(dict.fromkeys(named.values()))

    def begin(self, call: Call) -> None:
        """Run a call."""
        self._named[call.tool.name].begin(call)

    def cancel(self, number: int) -> None:
        """Stop a call; harmless for whoever does not have it."""
        for provider in self._all:
            provider.cancel(number)

    def hold(self, *, held: bool) -> None:
        """Keep answers back, or give them again."""
        for provider in self._all:
            provider.hold(held=held)

    def close(self) -> None:
        """End them all."""
        for provider in self._all:
            provider.close()
