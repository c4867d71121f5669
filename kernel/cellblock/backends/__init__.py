"""Backends: what enforces a policy's OS layer, chosen by a probe that ran, declared per field.

Invariant: nothing is claimed that a backend does not declare, and what a lock's report does not
bear out is lowered before it is shown. Import what you need from the modules:
``chooser``, ``planner``, ``assessment``, ``doctor``; the names below are the same, imported when
first used.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # a zygote may be started before typing is imported
if TYPE_CHECKING:
    from typing import Any

    from cellblock.backends.assessment import blocking, gaps, heard, replaced, settle
    from cellblock.backends.chooser import Chosen, choose, named
    from cellblock.backends.doctor import DoctorReport, doctor_report
    from cellblock.backends.matrix import COMPATIBILITY_MATRIX
    from cellblock.backends.planner import plan, preloaded, view
    from cellblock.backends.resolved import Resolved, resolve

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
    "COMPATIBILITY_MATRIX": "matrix",
    "Chosen": "chooser",
    "DoctorReport": "doctor",
    "Resolved": "resolved",
    "blocking": "assessment",
    "choose": "chooser",
    "doctor_report": "doctor",
    "gaps": "assessment",
    "heard": "assessment",
    "named": "chooser",
    "plan": "planner",
    "preloaded": "planner",
    "replaced": "assessment",
    "resolve": "resolved",
    "settle": "assessment",
    "view": "planner",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
