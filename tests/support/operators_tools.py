"""Tools for tests, as an operator would write them. Some misbehave."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import time
from pathlib import Path
from typing import Annotated, Any

from cellblock.tools import SECRET


@dataclasses.dataclass
class Forecast:
    """What ``forecast`` returns."""

    city: str
    degrees: list[float]


def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


def forecast(city: str, *, days: int = 2) -> Forecast:
    """Tell the weather of the next days.

    The second paragraph is for the docstring alone.
    """
    return Forecast(city, [20.5] * days)


async def fetch(key: str, delay: float = 0.0) -> str:
    """Fetch something, later."""
    await asyncio.sleep(delay)
    return f"<{key}>"


def slow(seconds: float) -> str:
    """Hold on to a thread in C code."""
    time.sleep(seconds)
    return "slept"


async def stall(seconds: float) -> None:
    """Hold up the loop that async tools share."""
    time.sleep(seconds)  # noqa: ASYNC251 - that is the point


def spin() -> None:
    """Never end, in Python."""
    while True:
        pass


def fail(text: str = "no such city") -> None:
    """Fail with a message."""
    raise LookupError(text)


def missing() -> str:
    """Read a file that is not there."""
    return Path("/srv/operator/secret-name.txt").read_text(encoding="utf-8")


def crash() -> None:
    """End the process that runs it."""
    os._exit(3)


def worker_pid() -> int:
    """Tell which process runs the tools."""
    return os.getpid()


def echo(value: Any) -> Any:
    """Return what came."""
    return value


def opaque() -> Any:
    """Return what is no data."""
    return Path(os.devnull).open(encoding="utf-8")


def log_in(user: str, password: Annotated[str, SECRET]) -> Annotated[str, SECRET]:
    """Log in."""
    return f"token of {user} {len(password)}"


def large(size: int) -> str:
    """Return a text of that size."""
    return "x" * size


def print_something() -> None:
    """Print, where cells must not see it."""
    print("said by a tool")
