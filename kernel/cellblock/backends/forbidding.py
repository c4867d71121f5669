"""Why bwrap(1) can't make namespaces here: which setting forbids it, or what its words mean.

Source: user_namespaces(7), namespaces(7); bubblewrap.c and network.c of bubblewrap 0.8.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

MISSING: Final = "bwrap is not installed: install the package bubblewrap"
_SETTINGS: Final = Path("/proc/sys")
#: Setting, the value that forbids user namespaces to those who are not root, and what to do.
_FORBIDDING: Final = (
    ("user.max_user_namespaces", "0", "sysctl user.max_user_namespaces=10000"),
    ("kernel.unprivileged_userns_clone", "0", "sysctl kernel.unprivileged_userns_clone=1"),
    (
        "kernel.apparmor_restrict_unprivileged_userns",
        "1",
        "an AppArmor profile for bwrap that has userns, or the setting 0",
    ),
)
#: What bwrap says, and what that means where no setting is known to forbid it.
_MEANINGS: Final = (
    ("Can't mount proc", "this container hides parts of /proc, so no new one can be mounted"),
    ("setuid", "this OS kernel has no user namespaces, and bwrap is not setuid root"),
    (
        "No permissions to creat",
        "user namespaces are forbidden here: by a container, or by seccomp",
    ),
    ("max_", "no more user namespaces may be made: see user.max_user_namespaces"),
    ("No space left", "no more user namespaces may be made: see user.max_user_namespaces"),
    ("uid map", "user namespaces have no rights here: see AppArmor, SELinux or the container"),
    ("RTM_NEWADDR", "user namespaces have no rights here: see AppArmor, SELinux or the container"),
)
_LONGEST: Final = 300


def refusal(said: str) -> str:
    """Say which setting has ``bwrap`` fail, or what it says means, and its own words."""
    words = f"(bwrap: {said.removeprefix('bwrap: ')[:_LONGEST]})"
    for name, value, remedy in _FORBIDDING:
        if _setting(name) == value:
            return f"{_said(name, value, remedy)} {words}"
    for part, meaning in _MEANINGS:
        if part in said:
            return f"{meaning} {words}"
    return f"it fails here {words}"


def forbidden() -> str | None:
    """Say which setting forbids it for certain: AppArmor's may have an exception for bwrap."""
    certain = _FORBIDDING[:1] if os.getuid() == 0 else _FORBIDDING[:2]
    for name, value, remedy in certain:
        if _setting(name) == value:
            return _said(name, value, remedy)
    return None


def _said(name: str, value: str, remedy: str) -> str:
    return f"{name} is {value}; to allow it: {remedy}"


def _setting(name: str) -> str:
    try:
        return (_SETTINGS / name.replace(".", "/")).read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""
