"""Policy values as a person would say them."""

from __future__ import annotations

from typing import Final

from cellblock.render.text import clip

_UNITS: Final = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_SECONDS: Final = ("cpu_seconds", "idle_timeout", "llm.timeout", "timeout", "tool_timeout")
_SIZES: Final = ("_bytes", "_size")
_MAX_NAMES: Final = 12
_MAX_VALUE: Final = 300
_MILLISECONDS_UNTIL: Final = 0.9995
_SECONDS_UNTIL: Final = 100.0


def asked(field: str, value: object) -> str:
    """Return what a policy field asks for: ``2 GiB``, ``60 s``, ``no limit``."""
    if isinstance(value, str) and value.isdecimal():
        value = int(value[:_MAX_NAMES])
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "no limit"
    if isinstance(value, int) and field.endswith(_SIZES):
        return size(value)
    if isinstance(value, int | float) and field in _SECONDS:
        return f"{value:g} s"
    return clip(_listed(value), _MAX_VALUE)


def size(value: int) -> str:
    """Return bytes as ``1.5 GiB``."""
    for unit, name in _UNITS:
        if value >= unit:
            return f"{value / unit:.4g} {name}"
    return f"{value} bytes"


def duration(seconds: float) -> str:
    """Return a time as ``1.5 ms``, ``12.3 s``, ``2 min 5 s``."""
    if seconds < _MILLISECONDS_UNTIL:
        return f"{seconds * 1000:.3g} ms"
    if seconds < _SECONDS_UNTIL:
        return f"{seconds:.3g} s"
    return f"{int(seconds // 60):,} min {int(seconds % 60)} s"


def _listed(value: object) -> str:
    if isinstance(value, list | tuple | set | frozenset):
        names = sorted(map(str, value)) if isinstance(value, set | frozenset) else value
        shown = [str(name) for name in list(names)[:_MAX_NAMES]]
        more = len(value) - len(shown)
        return ", ".join([*shown, *([f"and {more} more"] if more else [])]) or "none"
    if isinstance(value, dict):
        return _listed([f"{key}: {item}" for key, item in value.items()])
    return str(value)
