"""PURE: source to findings. Standard library only; no I/O, no state, no import of what cells name.

The language layer is a lint with teeth: it explains, it refuses early, it keeps honest code
ambient. The OS layer is the boundary. Host and guest call the same ``analyse``, which never raises.

- ``transform``: IPython's input transformer and Python's parser, with the limits of both
- ``analyser``: one walk of the tree; its tables say which syntax is known, all else being
  refused, and which check judges which type of node
- ``findings``: the table of rules, what a finding is, the part of a policy that rules come from,
  and what would do the job of what is refused
- ``scopes``: which reads of a builtin's name are of what the cell itself binds
- ``names`` (attributes, too), ``imports``, ``magics``: the checks, each with its tables;
  ``magic_table``: a row for each magic
- ``allowlist``: the modules that are known; all else is refused
- ``templates``: cells that name a template, and what a template's file may do
- ``admission``: whether a cell may run at all: approved, template or any
- ``dataflow``: which names a cell binds and reads, and whether it can be run again

A new rule is a row in ``findings``, and a check that is in the table of ``analyser``. May import
nothing else of cellblock.
"""

from __future__ import annotations

from cellblock.analysis.analyser import analyse, analyse_expression, bound_builtins
from cellblock.analysis.findings import RULES, Finding, Rule, Rules
from cellblock.analysis.names import attribute_allowed
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
    "bound_builtins",
    "check_complete",
    "forget",
    "transform",
]
