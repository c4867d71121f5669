"""From a policy's paths as they are written to places on this machine, and back."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from cellblock.errors import PolicyError
from cellblock.policy.links import links
from cellblock.policy.model import PATHS
from cellblock.policy.paths import expand, expand_own, expand_pattern, within

if TYPE_CHECKING:
    from pathlib import Path

    from cellblock.policy.model import Policy
    from cellblock.policy.operations import Operations
    from cellblock.policy.paths import Places


def placed(policy: Policy, places: Places) -> Policy:
    """Return a policy with its paths made real. Raises PolicyError."""
    paths: dict[str, tuple[str, ...]] = {}
    for key, must_exist in PATHS.items():
        entries = (
            expand(entry, key=key, places=places, must_exist=must_exist)
            for entry in getattr(policy, key)
        )
        paths[key] = tuple(dict.fromkeys(entry for entry in entries if entry is not None))
    paths["artifact_export_paths"] = tuple(
        expand_pattern(entry, key="artifact_export_paths", places=places)
        for entry in policy.artifact_export_paths
    )
    own = _own_places(policy, places)
    return policy.replace(**paths, **own, ops=_expanded_operations(policy, places))


def foreseen(policy: Policy, places: Places) -> Policy:
    """Return a policy with its paths as they would be here, for whoever runs nothing under it.

    None of them has to exist; one that means nothing here stays as it is written.
    """

    def path(entry: str, key: str) -> str:
        plain = entry.removesuffix("?")
        try:
            return expand(plain, key=key, places=places, must_exist=False) or plain
        except PolicyError:
            return plain

    paths = {
        key: tuple(dict.fromkeys(path(entry, key) for entry in getattr(policy, key)))
        for key in PATHS
    }

    def own(entry: str) -> str:
        try:
            return expand_own(entry, key="", places=places)
        except PolicyError:
            return entry

    approval, folders = policy.approval, tuple(map(own, policy.templates.folders))
    return policy.replace(
        **paths,
        approval=dataclasses.replace(approval, folder=own(approval.folder), key=own(approval.key)),
        templates=dataclasses.replace(policy.templates, folders=folders),
    )


def _own_places(policy: Policy, places: Places) -> dict[str, Any]:
    """Return the fields that name the host's own folders and files, expanded."""

    def own(section: str, key: str, entry: str) -> str:
        return expand_own(entry, key=f"{section}.{key}", places=places)

    approval, templates = policy.approval, policy.templates
    folders = tuple(own("templates", "folders", entry) for entry in templates.folders)
    shelf = policy.artifact_folder
    if policy.artifact_export_paths:  # else nothing is put there, and no policy differs by it
        shelf = expand_own(shelf, key="artifact_folder", places=places)
    return {
        "artifact_folder": shelf,
        "approval": dataclasses.replace(
            approval,
            folder=own("approval", "folder", approval.folder),
            key=own("approval", "key", approval.key),
        ),
        "audit": dataclasses.replace(
            policy.audit, folder=own("audit", "folder", policy.audit.folder)
        ),
        "templates": dataclasses.replace(templates, folders=folders),
    }


def _expanded_operations(policy: Policy, places: Places) -> Operations | None:
    section = policy.operations
    if section is None:
        return None
    from cellblock.policy.operations import expanded  # noqa: PLC0415 - most policies grant nothing

    def path(entry: str, key: str) -> str | None:
        if entry.startswith("{scratch}"):
            remedy = "Name a folder of yours: cells use {scratch} themselves."
            what = "cells have no need of the host there"
            raise PolicyError(what, file=places.file, key=key, value=repr(entry), remedy=remedy)
        return expand(entry, key=key, places=places, must_exist=True)

    return expanded(section, path)


def unplaced(policy: Policy, scratch: Path) -> Policy:
    """Return a policy with ``{scratch}`` for one kernel's folder: its digest is every kernel's."""
    return _moved(policy, str(scratch), "{scratch}")


def in_scratch(policy: Policy, scratch: Path) -> Policy:
    """Return what ``unplaced`` made of a policy, in another kernel's folder."""
    return _moved(policy, "{scratch}", str(scratch))


def _moved(policy: Policy, old: str, new: str) -> Policy:
    paths = {
        key: tuple(entry.replace(old, new, 1) for entry in getattr(policy, key))
        for key in (*PATHS, "artifact_export_paths")
    }
    return policy.replace(**paths)


def written_by_host(policy: Policy) -> dict[str, tuple[str, ...]]:
    """Return the folders that the host writes to for cells, by the fields that name them."""
    table = policy.operations.write_file if policy.operations is not None else None
    found = {} if table is None else {"ops.write_file.roots": table.roots}
    if policy.artifact_export_paths:
        found["artifact_folder"] = (policy.artifact_folder,)
    return found


def refuse_writable(path: Path, policy: Policy, spec: str) -> None:
    """Refuse a policy whose own file its cells could rewrite for the next start."""
    own = (str(path.resolve()), *(link for link, _ in links([str(path.absolute())])))
    written = written_by_host(policy) | {"filesystem_write_roots": policy.filesystem_write_roots}
    for key, root in ((key, root) for key, roots in written.items() for root in roots):
        if any(within(name, root) for name in own):
            raise PolicyError(
                "cells could rewrite this policy file",
                file=spec,
                key=key,
                value=repr(root),
                remedy="Move the file out of the folders that cells may write.",
            )
