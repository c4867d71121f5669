"""The host's services that a policy grants: operations, language models, copying files out.

Imported late (``config.granted_services``): most policies grant none, and workers cost start time.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cellblock.backends.plan import outermost
from cellblock.host.services import artifacts
from cellblock.host.services import llm as llm_provider
from cellblock.host.services.operations import catalog
from cellblock.policy import paths
from cellblock.policy.paths import within

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.host.reactor import Reactor
    from cellblock.policy.model import Policy
    from cellblock.wire.messages import Prepare, Tool


class GrantedServices:
    """What one session may use of them."""

    def __init__(self, policy: Policy, prepare: Prepare) -> None:
        self._policy = policy
        self._prepare = prepare

    def tools(self) -> tuple[Tool, ...]:
        """Return what cells may call of all that."""
        section, llm = self._policy.operations, self._policy.llm
        operations = () if section is None else catalog.granted_tools(section)
        return (*operations, *(llm_provider.tools(llm) if llm.granted else ()))

    # --- files that are copied out after cells ------------------------------------------------

    def exports(
        self, reactor: Reactor, open_folder: Callable[[str], int]
    ) -> artifacts.ArtifactCollector | None:
        """Return what copies files out after cells; None where the policy names none."""
        policy, cwd = self._policy, self._prepare.cwd
        if not policy.artifact_export_paths:
            return None
        return artifacts.ArtifactCollector(
            reactor,
            _written_roots(policy),
            artifacts.Patterns.of(
                artifacts.absolute_pattern(one, cwd) for one in policy.artifact_export_paths
            ),
            policy.artifact_folder,
            max_bytes=policy.artifact_max_bytes,
            max_total_bytes=policy.artifacts_max_bytes,
            open_folder=open_folder,
        )

    def check_artifacts(self) -> None:
        """Raise PolicyError for files to be copied out that no cell can write, or not safely."""
        policy, prepare = self._policy, self._prepare
        roots, folder = _written_roots(policy), policy.artifact_folder
        if not policy.artifact_export_paths:
            return
        for pattern in policy.artifact_export_paths:
            absolute = artifacts.absolute_pattern(pattern, prepare.cwd)
            patterns = artifacts.Patterns.of([absolute])
            if not any(patterns.at(root).may_match_below for root in roots):
                what = "cells can't write what this means"
                remedy = _how_to_write(artifacts.fixed_folder(absolute), roots, prepare.scratch)
                raise policy.error(what, "artifact_export_paths", pattern, remedy)
        by_host = paths.host_write_roots(policy).get("ops.write_file.roots", ())
        changed = (*policy.filesystem_write_roots, *by_host)
        if root := next((root for root in changed if within(folder, root)), None):
            what = f"cells could change what was copied out: {root} is writable"
            raise policy.error(what, "artifact_folder", folder, "Choose a folder elsewhere.")


def _written_roots(policy: Policy) -> tuple[str, ...]:
    """Return the folders that cells may write, staged or not, canonical and none in another."""
    return outermost((*policy.filesystem_write_roots, *policy.filesystem_staged_roots))


def _how_to_write(folder: str, roots: tuple[str, ...], scratch: str) -> str:
    """Return how cells come to write the files of a pattern that begins in ``folder``.

    A write root that may be missing, as preset data's work folder, is none until it is made.
    """
    named = ", ".join(root.replace(scratch, "{scratch}", 1) for root in roots)
    place = Path(folder)
    missing = next((one for one in (*reversed(place.parents), place) if not one.exists()), None)
    make = f"Make the folder {missing}, if the policy lets cells write there. Or n"
    return f"{make if missing else 'N'}ame what is beneath a write root: {named}."
