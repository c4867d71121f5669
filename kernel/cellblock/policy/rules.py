"""From a policy to the rules of the language layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cellblock.analysis import Rules, default_modules

if TYPE_CHECKING:
    from cellblock.policy.model import Policy


def rules_of(policy: Policy) -> Rules:
    """Return what ``analysis`` and the guest's guards need to know of ``policy``."""
    return Rules(
        language=policy.mode == "safe",
        modules=default_modules("safe"),  # there is one allowlist; mode unsafe ignores it
        raw_modules=frozenset(policy.allowed_modules),
        magics=frozenset(policy.magics),
    )
