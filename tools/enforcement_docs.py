"""Write the tables of docs/enforcement.md from what the backends declare, and from the probes.

python tools/enforcement_docs.py [--check]

With ``--check`` nothing is written, and the exit status is 1 if the page is out of date.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cellblock.backends import devices, landlock, networks
from cellblock.backends.base import ORDER, named, unprobed
from cellblock.guest.probes import PROBES
from cellblock.policy.model import DECLARED, Policy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cellblock.backends.base import Backend

PAGE = Path(__file__).parents[1] / "docs" / "enforcement.md"
BEGIN = "<!-- statuses: made by tools/enforcement_docs.py -->\n"
END = "<!-- end of statuses -->\n"
PROBES_BEGIN = "<!-- probes: made by tools/enforcement_docs.py -->\n"
PROBES_END = "<!-- end of probes -->\n"

#: What a row says beside its field, and the policy under which its cells are declared.
ASKED: Final[dict[str, tuple[tuple[str, dict[str, Any]], ...]]] = {
    "network_access": (
        (" = false", {"network_access": False}),
        (" = true", {"network_access": True}),
        (" = [host:port]", {"network_access": ("example.org:443",)}),
    ),
    "ports": ((" = [8050]", {"ports": (8050,)}),),
    "devices": ((' = ["nvidia"]', {"devices": ("nvidia",)}),),
    "subprocess_execution": (
        (" = false", {"subprocess_execution": False}),
        (" = true", {"subprocess_execution": True}),
    ),
    "cpu_seconds": (("", {"cpu_seconds": 60}),),
}
_SUPPORT = unprobed("declared, not probed", usable=True)


def table() -> str:
    """Return one row a declared field, as an unprivileged user's kernel declares it."""
    os.getuid = lambda: 1000  # what uid 0 is not held to is said beneath the table
    networks.why_not = lambda _backend: ""  # what this machine lacks is not said
    landlock.why_no_requests = lambda: ""
    devices.find = lambda _entries: devices.Found()
    head = f"| capability | {' | '.join(ORDER)} |\n"
    return head + f"|---|{'---|' * len(ORDER)}\n" + "".join(_rows())


def _rows() -> Iterator[str]:
    for capability in DECLARED:
        for label, fields in ASKED.get(capability, (("", {}),)):
            policy = Policy().replace(read_deny_paths=("/nowhere",), **fields)
            cells = [_cell(backend, capability, policy) for backend in map(named, ORDER)]
            yield f"| `{capability}`{label} | {' | '.join(cells)} |\n"


def _cell(backend: Backend, capability: str, policy: Policy) -> str:
    if capability == "network_access" and policy.network_access is True:
        return "nothing to hold"
    found = backend.declare(policy, _SUPPORT)[capability]
    return f"{found.status}: {'; '.join(found.holes)}" if found.holes else str(found.status)


def probes_table() -> str:
    """Return one row a probe: what is at stake, when, and what a cell could do where it passes."""
    rows = (
        f"| `{probe.capability}` | `{probe.name}` | {'around' if probe.around else 'straight'} "
        f"| {'each start, doctor' if probe.at_start else 'doctor'} | {probe.hole} |\n"
        for probe in PROBES
    )
    head = "| capability | probe | way | tried | where it passes |\n|---|---|---|---|---|\n"
    return head + "".join(rows)


def page() -> str:
    """Return the page with its tables made anew."""
    text = _between(PAGE.read_text(encoding="utf-8"), BEGIN, table(), END)
    return _between(text, PROBES_BEGIN, probes_table(), PROBES_END)


def _between(text: str, begin: str, made: str, end: str) -> str:
    before, _, rest = text.partition(begin)
    return before + begin + made + end + rest.partition(end)[2]


def main(arguments: list[str]) -> int:
    """Write the page, or check it; return the exit status."""
    made = page()
    if "--check" in arguments:
        return int(made != PAGE.read_text(encoding="utf-8"))
    PAGE.write_text(made, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
