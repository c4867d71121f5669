"""Kernels whose policy has the tools of ``operators_tools``, as if that were installed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from support.kernels import argv_changed

if TYPE_CHECKING:
    from support.kernels import World

SUPPORT = Path(__file__).parent
NAMES = (
    "add",
    "crash",
    "echo",
    "fail",
    "fetch",
    "forecast",
    "large",
    "log_in",
    "missing",
    "opaque",
    "print_something",
    "slow",
    "spin",
    "worker_pid",
)


def argv(world: World, entries: tuple[str, ...] = (), settings: str = "", mode: str = "") -> list:
    """Return the command of a kernel whose policy has tools and these settings."""
    named = entries or tuple(f"operators_tools:{name}" for name in NAMES)
    head = f'extends = "{mode}"\n' if mode else ""
    policy = world.policy(f"{head}tools = {json.dumps(named)}\n{settings}\n")
    options = ["--allow-unsafe"] if mode == "unsafe" else []
    return argv_changed(f"import sys; sys.path.append({str(SUPPORT)!r})", policy, *options)


def calls(reply: dict) -> list[dict]:
    """Return the tool calls in a cell's whole reply."""
    return reply["metadata"]["cellblock"].get("tool_calls", [])
