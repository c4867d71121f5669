"""What a policy gives cells, in a sentence: said once on a card, whatever the policy is called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cellblock.policy.paths import within
from cellblock.render.denial import AMBIENT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cellblock.policy.model import Policy

#: What makes a list of packages the scientific stack.
_STACK: Final = frozenset(("numpy", "pandas", "scipy"))
#: Names that are said of a list.
_MOST: Final = 3


def principle(policy: Policy, project: str, scratch: str) -> str:
    """Return it for mode ``safe``; empty for ``unsafe``, which refuses no import.

    ``project`` and ``scratch`` are the session's folders, as they stand in the policy.
    """
    if policy.mode != "safe":
        return ""
    given = [*_packages(policy), *_files(policy, project, scratch), *_beyond(policy)]
    if not given:
        return AMBIENT
    return f"Policy {policy.name} allows {', '.join(given)}, clock, randomness, bundled data."


def _packages(policy: Policy) -> Iterator[str]:
    allowed = policy.allowed_modules
    if _STACK.issubset(allowed):
        yield "the scientific stack"
    elif allowed:
        yield f"importing {_listed(allowed)}"


def _files(policy: Policy, project: str, scratch: str) -> Iterator[str]:
    reads = policy.filesystem_read_roots
    if project in reads:
        yield "the project folder's files to read"
    elif reads:
        yield f"files below {_listed(reads)} to read"
    writes = [root for root in policy.filesystem_write_roots if not within(root, scratch)]
    if writes:
        own = [root.removeprefix(f"{project}/").removesuffix("?") for root in writes]
        yield f"writing below {_listed(own)}"


def _beyond(policy: Policy) -> Iterator[str]:
    if policy.network_access is True:
        yield "the network"
    elif policy.network_access:
        yield f"connections to {_listed(policy.network_access)}"
    if policy.env_var_access:
        yield f"environment variables {_listed(policy.env_var_access)}"
    if policy.subprocess_execution:
        yield "starting programs"


def _listed(names: Sequence[str]) -> str:
    left = len(names) - _MOST
    head = ", ".join(names[:_MOST])
    return f"{head} and {left} more" if left > 0 else head
