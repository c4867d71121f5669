"""Make the rules of the language layer from a policy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cellblock.analysis import Rules, default_modules
from cellblock.policy.vocabulary import PRESETS, TIERS

if TYPE_CHECKING:
    from cellblock.policy.model import Policy


def rules_of(policy: Policy) -> Rules:
    """Return what ``analysis`` and the guest's guards need to know of ``policy``."""
    modules = default_modules("safe")  # there is one allowlist; the other modes ignore it
    if policy.llm.granted and "dspy" in policy.allowed_modules:
        modules = {**modules, "cellblock.dspy": ("LM",)}
    operations = policy.operations.granted() if policy.operations is not None else ()
    granted = {f"ops.{name}" for name in operations} | ({"llm"} if policy.llm.granted else set())
    return Rules(
        language=policy.mode == "safe",
        modules=modules,
        raw_modules=frozenset(policy.allowed_modules),
        magics=frozenset(policy.magics),
        operations=frozenset(granted),
        approvals=policy.approvals == "prompt",
        reads=bool(policy.filesystem_read_roots),
        writes=_written(policy),
        file=_file(policy.name),
    )


def _file(name: str) -> str:
    """Return where to write down what a policy of this name does not allow."""
    if name in PRESETS:
        return f'a policy file with extends = "{name}"'
    return "your policy file" if name in TIERS else f"the file of policy {name}"


def _written(policy: Policy) -> str:
    """Return the first folder that cells may write beneath one they read, from there; or empty.

    Folders may be as they are written: ``{project}/work?``.
    """
    for root in policy.filesystem_write_roots:
        for read in policy.filesystem_read_roots:
            base = read.replace("{checkout}", "{project}")  # it is that, or above
            if root.startswith(f"{base.rstrip('/')}/"):
                return root[len(base.rstrip("/")) + 1 :].removesuffix("?")
    return ""
