"""From a policy to what its operations may touch. Decided by the host, before a guest exists."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cellblock.backends import planner, roots
from cellblock.errors import PolicyError
from cellblock.host.ops import settings
from cellblock.policy import store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cellblock.policy.model import Policy
    from cellblock.policy.operations import Operations


def lay(policy: Policy, *, project: Path, private: Sequence[Path] = ()) -> settings.Settings | None:
    """Return what the operations of a policy may touch; None where it grants none.

    ``private`` are the host's own places. Makes the folder of packages, which guests read from
    their start on. Raises PolicyError where something can't be granted.
    """
    section = policy.operations
    if section is None:
        return None
    denied = planner.denied(policy, private=private)
    _check_roots(policy, section, denied)
    return settings.Settings(
        project=os.path.realpath(project),
        denied=denied,
        read_file=_table(section.read_file, settings.ReadFile),
        write_file=_table(section.write_file, settings.WriteFile),
        list_dir=_table(section.list_dir, settings.ListDir),
        http=_table(section.http, settings.Http),
        install=_install(policy, section),
    )


def _table(table: Any, kind: Any, **more: str) -> Any:
    """Return of a section what the worker needs; the rest is the host's."""
    if table is None:
        return None
    names = (name for name in kind.__struct_fields__ if name not in more)
    return kind(**{name: getattr(table, name) for name in names}, **more)


def _check_roots(policy: Policy, section: Operations, denied: Sequence[str]) -> None:
    for name, table in section.with_roots().items():
        key = f"ops.{name}.roots"
        for root in table.roots:
            roots.refuse_denied(root, denied, policy_name=policy.name, key=key)
            if name != "read_file" and not Path(root).is_dir():
                message = "not a folder"
                remedy = "Name the folder that it is in."
                raise PolicyError(
                    message, file=policy.name, key=key, value=repr(root), remedy=remedy
                )
    if section.write_file is not None:
        written = section.write_file.roots
        planner.check_writable(written, denied, policy, "ops.write_file.roots")


def _install(policy: Policy, section: Operations) -> settings.Install | None:
    if section.install is None:
        return None
    folder = store.folder(section.install)
    try:
        Path(folder, "lib").mkdir(parents=True, mode=0o700, exist_ok=True)
    except OSError as exc:
        raise PolicyError(
            f"{folder} can't be made: {exc.strerror}",
            file=policy.name,
            key="ops.install",
            value="",
            remedy="Have XDG_DATA_HOME name a folder that can be written to.",
        ) from None
    made: settings.Install = _table(section.install, settings.Install, folder=folder)
    return made
