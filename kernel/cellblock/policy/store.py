"""Where the packages lie that a policy has installed: one folder for each index and list.

Guests read what is in ``lib`` beneath it, and nothing beside that. It is there before a guest is
confined, since no right can be added later; what is installed appears in it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from cellblock.policy.home import data_folder

if TYPE_CHECKING:
    from cellblock.policy.model import Policy
    from cellblock.policy.operations import Install

#: Of a hash: enough for no two lists to meet.
_DIGITS: Final = 16


def base() -> str:
    """Return the folder of all policies' packages, ``$XDG_DATA_HOME/cellblock/packages``."""
    return os.path.realpath(f"{data_folder()}/packages")


def folder(table: Install) -> str:
    """Return the folder of one index and list, for this interpreter on this machine."""
    import hashlib  # noqa: PLC0415  # most kernels install nothing
    import json  # noqa: PLC0415  # as above
    import sys  # noqa: PLC0415  # as above
    import sysconfig  # noqa: PLC0415  # as above

    whose = [sys.implementation.cache_tag, sysconfig.get_platform(), sys.abiflags]
    named = json.dumps([table.index, sorted(table.allow), whose])
    return f"{base()}/{hashlib.sha256(named.encode()).hexdigest()[:_DIGITS]}"


def readable(policy: Policy) -> str | None:
    """Return what guests read of it; None where the policy installs nothing."""
    section = policy.operations
    if section is None or section.install is None:
        return None
    return f"{folder(section.install)}/lib"
