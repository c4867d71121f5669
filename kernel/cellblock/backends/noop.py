"""No enforcement: the policy is audited, not kept. One warning on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from cellblock.backends.base import Backend, Declare, Support
from cellblock.backends.probes import unprobed
from cellblock.backends.shared import HOST, nothing, watched

if TYPE_CHECKING:
    from collections.abc import Mapping


class Noop(Backend):
    """Takes no lock and wraps nothing; only what the host does holds."""

    name = "noop"
    locks = ()
    declarations: ClassVar[Mapping[str, Declare]] = {
        **HOST,
        "filesystem_read_roots": nothing("filesystem_read_roots"),
        "filesystem_write_roots": nothing("filesystem_write_roots"),
        "read_deny_paths": nothing("read_deny_paths"),
        "network_access": nothing("network_access"),
        "subprocess_execution": nothing("subprocess_execution"),
        "package_installation": nothing("package_installation"),
        "memory_max_bytes": watched("memory_max_bytes"),
        "max_processes": nothing("max_processes"),
        "max_open_files": nothing("max_open_files"),
        "max_file_size": nothing("max_file_size"),
    }

    def glance(self) -> Support:
        """Return what ``probe`` does."""
        return self.probe()

    def probe(self) -> Support:
        """Return at once: there is nothing to try."""
        return unprobed("enforces nothing", usable=True)
