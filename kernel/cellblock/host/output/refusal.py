"""Why a value is not passed on."""

from __future__ import annotations


class RefusedError(Exception):
    """Nothing of a value may be shown; its message says why. Never leaves the gateway."""
