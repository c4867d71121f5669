"""The guest's environment: made here, nothing inherited but what the policy names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class _Policy(Protocol):
    @property
    def env_var_access(self) -> tuple[str, ...]: ...


def guest_environment(
    policy: _Policy,
    scratch: Path,
    host: Mapping[str, str],
) -> dict[str, str]:
    """Return the environment of a guest.

    The fixed values win over what the policy passes on: a guest's HOME is its scratch folder.
    """
    passed = {name: host[name] for name in policy.env_var_access if name in host}
    folder = str(scratch)
    return passed | {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": folder,
        "TMPDIR": folder,
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        "MPLCONFIGDIR": f"{folder}/.matplotlib",
    }
