"""Backend noop: the policy is audited, not enforced. The host warns once, on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from cellblock.backends.base import (
    HOST,
    MONITORED_MEMORY,
    UNENFORCED,
    UNLIMITED,
    Backend,
    Declare,
    Support,
    unprobed,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


class Noop(Backend):
    """Takes no lock and wraps nothing. Only what the host itself does holds."""

    name = "noop"
    locks = ()
    declarations: ClassVar[Mapping[str, Declare]] = {
        **HOST,
        **UNLIMITED,
        "filesystem_read_roots": UNENFORCED,
        "filesystem_write_roots": UNENFORCED,
        "filesystem_staged_roots": UNENFORCED,
        "read_deny_paths": UNENFORCED,
        "network_access": UNENFORCED,
        "ports": UNENFORCED,
        "devices": UNENFORCED,
        "subprocess_execution": UNENFORCED,
        "package_installation": UNENFORCED,
        "memory_max_bytes": MONITORED_MEMORY,
    }

    def glance(self) -> Support:
        """Return a usable support at once, because there is nothing to try."""
        return unprobed("enforces nothing", usable=True)

    probe = glance
