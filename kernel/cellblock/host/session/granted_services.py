"""The host's services that a policy grants: operations, language models, copying files out.

``config.granted_services`` imports this module only if the policy grants any of them: most policies
grant none, and the import costs start time.
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
    """The services that one session's policy grants."""

    def __init__(self, policy: Policy, prepare: Prepare) -> None:
        self._policy = policy
        self._prepare = prepare

    def tools(self) -> tuple[Tool, ...]:
        """Return the tools by which cells call the operations and language models granted."""
        section = self._policy.operations
        llm = self._policy.llm
        operations = () if section is None else catalog.granted_tools(section)
        return (*operations, *(llm_provider.tools(llm) if llm.granted else ()))

    # --- files that are copied out after cells ------------------------------------------------

    def exports(
        self, reactor: Reactor, open_folder: Callable[[str], int]
    ) -> artifacts.ArtifactCollector | None:
        """Return the collector that copies files out after cells; None if the policy names none.

        ``open_folder`` opens a folder that cells write to, and returns its descriptor.
        """
        policy = self._policy
        cwd = self._prepare.cwd
        if not policy.artifact_export_paths:
            return None
        return artifacts.ArtifactCollector(
            reactor,
            _written_roots(policy),
            artifacts.Patterns.of(
                artifacts.absolute_pattern(pattern, cwd) for pattern in policy.artifact_export_paths
            ),
            policy.artifact_folder,
            max_bytes=policy.artifact_max_bytes,
            max_total_bytes=policy.artifacts_max_bytes,
            open_folder=open_folder,
        )

    def check_artifacts(self) -> None:
        """Raise PolicyError if the policy's artifacts can't be copied out, or not safely.

        They can't if no cell can write a file that the pattern means. It is not safe if cells could
        write to the folder that files are copied to.
        """
        policy = self._policy
        prepare = self._prepare
        roots = _written_roots(policy)
        folder = policy.artifact_folder
        if not policy.artifact_export_paths:
            return
        for pattern in policy.artifact_export_paths:
            absolute = artifacts.absolute_pattern(pattern, prepare.cwd)
            patterns = artifacts.Patterns.of([absolute])
            if not any(patterns.at(root).may_match_below for root in roots):
                problem = "it matches no file that cells can write"
                remedy = _how_to_write(artifacts.fixed_folder(absolute), roots, prepare.scratch)
                raise policy.error(problem, "artifact_export_paths", pattern, remedy)
        by_host = paths.host_write_roots(policy).get("ops.write_file.roots", ())
        changed = (*policy.filesystem_write_roots, *by_host)
        if root := next((root for root in changed if within(folder, root)), None):
            problem = f"cells could change what was copied out: {root} is writable"
            raise policy.error(problem, "artifact_folder", folder, "Choose a folder elsewhere.")


def _written_roots(policy: Policy) -> tuple[str, ...]:
    """Return the folders that cells may write to, staged or not; none lies in another of them."""
    return outermost((*policy.filesystem_write_roots, *policy.filesystem_staged_roots))


def _how_to_write(folder: str, roots: tuple[str, ...], scratch: str) -> str:
    """Return the remedy for a pattern, which begins in ``folder``, that no cell can write to.

    The policy may name a write root that does not exist yet, such as the work folder of preset
    data. That root counts only once the folder is made, so the remedy says to make it.
    """
    root_names = ", ".join(root.replace(scratch, "{scratch}", 1) for root in roots)
    place = Path(folder)
    missing = next(
        (
            folder_above
            for folder_above in (*reversed(place.parents), place)
            if not folder_above.exists()
        ),
        None,
    )
    make = f"Make the folder {missing}, if the policy lets cells write there. Or n"
    return f"{make if missing else 'N'}ame what is beneath a write root: {root_names}."
