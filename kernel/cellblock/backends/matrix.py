"""Capability by backend, derived from the backends' own declarations, never by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cellblock.backends.chooser import ORDER
from cellblock.backends.probes import unprobed
from cellblock.policy.enforcement import CAPABILITIES, Status
from cellblock.policy.model import Policy

if TYPE_CHECKING:
    from collections.abc import Mapping


def _column(index: int) -> dict[str, Status]:
    declared = ORDER[index].declare(Policy(), unprobed("declared, not probed", usable=True))
    return {name: each.status for name, each in declared.items()}


#: Under the default policy, on a machine where each backend works.
COMPATIBILITY_MATRIX: Final[Mapping[str, Mapping[str, Status]]] = {
    capability: {backend.name: _column(nth)[capability] for nth, backend in enumerate(ORDER)}
    for capability in CAPABILITIES
}
