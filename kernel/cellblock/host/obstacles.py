"""What keeps a policy that can be read from holding here: limits, names, places in cells' reach."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cellblock.backends.roots import outermost
from cellblock.errors import PolicyError
from cellblock.host import launch
from cellblock.policy import placing
from cellblock.policy.links import links
from cellblock.policy.paths import within
from cellblock.wire import frames

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cellblock.policy.model import Policy
    from cellblock.wire import messages

#: Descriptors of the host's for a copy of the guest: a socket, two pipes, a pidfd.
_FILES_OF_A_COPY: Final = 4
#: What is not for cells' eyes.
_SECRETS: Final = {"approval.key": "key of approvals", "audit.folder": "audit log"}


def check_file_limit(policy: Policy) -> None:
    """Raise PolicyError where fewer files may be open than the policy's snapshots take."""
    limit = os.sysconf("SC_OPEN_MAX")
    copies = 0 if policy.snapshots == "off" else policy.undo_depth
    if 0 <= limit < launch.LEAST_FILES + copies * _FILES_OF_A_COPY:
        most = max(0, limit - launch.LEAST_FILES) // _FILES_OF_A_COPY
        raise PolicyError(
            f"only {limit} files may be open, and each snapshot takes {_FILES_OF_A_COPY}",
            file=policy.name,
            key="undo_depth",
            value=str(policy.undo_depth),
            remedy=f"Raise the limit: ulimit -n 1024. Or have undo_depth be {most}.",
        )


def check_apart(policy: Policy, plan: messages.Plan) -> None:
    """Raise PolicyError for an audit log or a key that lies in what is always readable.

    And for manifests or templates in what cells may write.
    """
    readable = (*plan.read_roots, *plan.write_roots)
    by_host = placing.written_by_host(policy).values()
    writable = (*plan.write_roots, *itertools.chain.from_iterable(by_host))
    secret = {"audit.folder": policy.audit.folder} if policy.audit.log else {}
    deciding = [("templates.folders", folder) for folder in policy.templates.folders]
    if policy.admission == "approved":
        secret["approval.key"] = policy.approval.key
        deciding.append(("approval.folder", policy.approval.folder))
    for key, path in secret.items():
        _refuse_within(path, readable, f"cells could read the {_SECRETS[key]}", key, policy)
    for key, path in deciding:
        _refuse_within(path, writable, "cells could write what decides", key, policy)


def _refuse_within(path: str, roots: Sequence[str], what: str, key: str, policy: Policy) -> None:
    """Raise PolicyError where ``path``, a link on its way or its end lies in one of ``roots``."""
    names = (path, os.path.realpath(path), *(link for link, _ in links([path])))
    for root in roots:
        if any(within(name, root) for name in names):
            raise PolicyError(
                f"{what}: {root} is within their reach",
                file=policy.name,
                key=key,
                value=repr(path),
                remedy="Choose a folder elsewhere.",
            )


def check_artifacts(policy: Policy, told: messages.Prepare) -> None:
    """Raise PolicyError for files to be copied out that no cell can write, or not safely."""
    if not policy.artifact_export_paths:
        return
    from cellblock.host.artifacts import patterns  # noqa: PLC0415 - most name none

    file, roots, folder = policy.name, written(policy), policy.artifact_folder
    for pattern in policy.artifact_export_paths:
        absolute = patterns.rooted(pattern, told.cwd)
        states = patterns.Patterns([absolute])
        if not any(states.leads_on(states.at(root)) for root in roots):
            what, key = "cells can't write what this means", "artifact_export_paths"
            remedy = _fillable(patterns.begins_in(absolute), roots, told.scratch)
            raise PolicyError(what, file=file, key=key, value=repr(pattern), remedy=remedy)
    theirs = (*roots, *placing.written_by_host(policy).get("ops.write_file.roots", ()))
    if root := next((root for root in theirs if within(folder, root)), None):
        what, key = f"cells could change what was copied out: {root} is writable", "artifact_folder"
        remedy = "Choose a folder elsewhere."
        raise PolicyError(what, file=file, key=key, value=repr(folder), remedy=remedy)


def _fillable(folder: str, roots: Sequence[str], scratch: str) -> str:
    """Say what has cells write the files of a pattern that begins in ``folder``.

    A write root that may be missing, as preset data's work folder, is none until it is made.
    """
    named = ", ".join(root.replace(scratch, "{scratch}", 1) for root in roots)
    place = Path(folder)
    missing = next((one for one in (*reversed(place.parents), place) if not one.exists()), None)
    make = f"Make the folder {missing}, if the policy lets cells write there. Or n"
    return f"{make if missing else 'N'}ame what is beneath a write root: {named}."


def written(policy: Policy) -> tuple[str, ...]:
    """Return the folders that cells may write, canonical and none within another."""
    return outermost(policy.filesystem_write_roots)


def check_text(told: messages.Prepare, policy_name: str, scratch: Path) -> None:
    """Raise PolicyError for a path, or a variable's value, that the wire can't carry."""
    try:
        frames.encode(told)
    except UnicodeEncodeError as exc:
        remedy = "Give the folder a name in UTF-8, or take it out of the policy."
        if str(scratch) in exc.object:
            remedy = "Set TMPDIR to a folder with a name in UTF-8."
        what, value = "a name that cells need is not UTF-8", ascii(exc.object)
        raise PolicyError(what, file=policy_name, key="", value=value, remedy=remedy) from None
