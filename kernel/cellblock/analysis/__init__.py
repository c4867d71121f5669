"""PURE: source to findings. Standard library only; no I/O, no state, no import of what cells name.

The language layer is a lint with teeth: it explains, it refuses early, it keeps honest code
ambient. The OS layer is the boundary. Host and guest call the same ``analyse``.
"""

from __future__ import annotations

from cellblock.analysis.allowlist import default_magics, default_modules, default_raw_modules
from cellblock.analysis.analyser import analyse, analyse_expression
from cellblock.analysis.attributes import attribute_allowed
from cellblock.analysis.findings import RULES, Finding, Rule, Rules
from cellblock.analysis.templates import analyse_template
from cellblock.analysis.transform import Transformed, check_complete, forget, transform

__all__ = [
    "RULES",
    "Finding",
    "Rule",
    "Rules",
    "Transformed",
    "analyse",
    "analyse_expression",
    "analyse_template",
    "attribute_allowed",
    "check_complete",
    "default_magics",
    "default_modules",
    "default_raw_modules",
    "forget",
    "transform",
]
