"""What a run is told, besides its policy: the same for each of its notebooks."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import msgspec

from cellblock import __version__


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """How notebooks are run; seconds, where there is a limit. It can be sent to other processes."""

    parameters: dict[str, Any] = {}
    allow_errors: bool = False
    #: Of a whole notebook, and of each cell where the policy does not allow fewer.
    timeout: float | None = None
    cell_timeout: float | None = None
    #: Whether cells say when they ran.
    timing: bool = True

    def key(self, content: bytes, digest: str) -> str:
        """Return what a notebook and its terms are known by under a policy of that digest.

        Equal ones would be run in the same way: a resumed run does not.
        """
        told = msgspec.structs.asdict(self)
        known = [__version__, hashlib.sha256(content).hexdigest(), digest, told]
        return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()
