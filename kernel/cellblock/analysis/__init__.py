"""The analysis: makes findings of source. Pure: no I/O, no state, no import of a cell's modules.

The language layer is a lint with teeth: it explains, and refuses early. The OS layer is the
boundary. Host and guest call the same ``analyse``, which never raises. It needs only the standard
library.

- ``transform``: IPython's input transformer and Python's parser, with the limits of both
- ``analyser``: walks the tree once; its tables have the known syntax, since all other is refused,
  and the check for each type of node
- ``findings``: the table of rules, the type of a finding, the part of a policy that the rules
  depend on, and remedies for refused names and commands
- ``scopes``: tells reads of the cell's own names from reads of builtins of those names
- ``names`` (and attributes), ``imports``, ``magics``: the checks, each with its tables;
  ``magic_table``: a row for each magic
- ``allowlist``: the known modules; all others are refused
- ``templates``: cells that name a template, and the limits of a template's file
- ``admission``: whether a cell may run at all: approved, template or any
- ``dataflow``: which names a cell binds and reads, and whether it can be run again

A new rule is a row in ``findings``, and a check in the table of ``analyser``. May import nothing
else of cellblock.
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
