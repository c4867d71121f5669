"""The text for a model that is to write cells for a sandbox: its tools, and what its policy allows.

Agent frameworks put it into the description of the tool that runs cells.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cellblock.api.results import clipped
from cellblock.render import policy_card, tables
from cellblock.render.text import visible_lines

if TYPE_CHECKING:
    from cellblock.api.blocking import Sandbox
    from cellblock.api.sandbox import AsyncSandbox
    from cellblock.policy.model import Policy

_PORTS: Final = (
    "HTTP servers that cells start at {words} of 127.0.0.1 are opened for the user: the result "
    "of the cell says at which address."
)
#: Characters of tools and policy together.
MAX_EXPLAINED: Final = 3_000
_RUN_CELL: Final = (
    "Run a cell of Python, and return what it printed, its last value, or why it failed. "
    "Variables live from cell to cell. What the policy refuses says what to write instead."
)


def tools_text(sandbox: Sandbox | AsyncSandbox) -> str:
    """Return the tools that cells of an open sandbox can call, as ``%tools`` shows them."""
    return str(tables.tools(sandbox.tools, {})["text/plain"])


def policy_text(sandbox: Sandbox | AsyncSandbox) -> str:
    """Return what the policy of an open sandbox allows, and its gaps."""
    policy = sandbox.policy
    rules = policy.rules()
    modules = sorted({*rules.modules, *rules.raw_modules}) if rules.language else None
    text = policy_card.allowances(policy.as_dict(), sandbox.gaps, modules)
    return f"{text}\n{_PORTS.format(words=_port_words(policy))}" if policy.ports else text


def _port_words(policy: Policy) -> str:
    return "any port" if policy.ports == "any" else f"port {', '.join(map(str, policy.ports))}"


def run_cell_description(sandbox: Sandbox | AsyncSandbox) -> str:
    """Return the description, for a model, of the tool that runs cells in an open sandbox."""
    parts = [tools_text(sandbox)] if sandbox.tools else []
    explained = visible_lines(clipped("\n\n".join([*parts, policy_text(sandbox)]), MAX_EXPLAINED))
    return f"{_RUN_CELL}\n\n{explained}"
