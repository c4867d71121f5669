"""Backends: what enforces a policy's OS layer, chosen by a probe that ran, declared per field.

Invariant: nothing is claimed that a backend does not declare, and what a lock's report does not
bear out is lowered before it is shown. Import what you need from the modules:
``chooser``, ``planner``, ``report``; the names below are the same, imported when
first used.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # a zygote may be started before typing is imported
if TYPE_CHECKING:
    from typing import Any

    from cellblock.backends.chooser import COMPATIBILITY_MATRIX, Chosen, choose, named
    from cellblock.backends.planner import plan, preloaded, view
    from cellblock.backends.report import (
        DoctorReport,
        Resolved,
        blocking,
        doctor_report,
        gaps,
        heard,
        replaced,
        resolve,
        settle,
    )

__all__ = [
    "COMPATIBILITY_MATRIX",
    "Chosen",
    "DoctorReport",
    "Resolved",
    "blocking",
    "choose",
    "doctor_report",
    "gaps",
    "heard",
    "named",
    "plan",
    "preloaded",
    "replaced",
    "resolve",
    "settle",
    "view",
]

_HOME = {
    "COMPATIBILITY_MATRIX": "chooser",
    "Chosen": "chooser",
    "DoctorReport": "report",
    "Resolved": "report",
    "blocking": "report",
    "choose": "chooser",
    "doctor_report": "report",
    "gaps": "report",
    "heard": "report",
    "named": "chooser",
    "plan": "planner",
    "preloaded": "planner",
    "replaced": "report",
    "resolve": "report",
    "settle": "report",
    "view": "planner",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
