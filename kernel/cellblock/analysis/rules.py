"""The rules, one id each: the same in findings, docs/rules.md, tests and the audit log."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule: ``why`` and ``remedy`` serve where a finding has nothing more precise to say."""

    id: str
    title: str
    why: str
    remedy: str


_TABLE = (
    Rule(
        "argument-not-allowed",
        "A magic's argument is not allowed",
        "this argument makes the magic run text that cannot be checked, or write a file",
        "Give the magic plain text without {braces} and $names, and no file options.",
    ),
    Rule(
        "attribute-not-allowed",
        "An attribute that leads to interpreter internals",
        "leads from an ordinary object into the interpreter's own objects",
        "Use the public interface of the object.",
    ),
    Rule(
        "builtin-not-allowed",
        "A builtin that this policy refuses",
        "reaches beyond the cell's own values",
        "Work on values that the cell was given, or ask the host for an operation.",
    ),
    Rule(
        "cell-not-approved",
        "A cell that nobody approved",
        "This text is not among the cells that were approved",
        "Have it approved: cellblock approve NOTEBOOK. Until then run a cell that is.",
    ),
    Rule(
        "import-not-allowed",
        "A module that is not on the allowlist",
        "is not on this policy's list of allowed modules",
        "Use an allowed module, or let the operator add it to allowed_modules.",
    ),
    Rule(
        "magic-not-allowed",
        "A magic that is not on the allowlist",
        "is not on this policy's list of allowed magics",
        "Write it in Python, or let the operator add it to magics.",
    ),
    Rule(
        "module-name-not-allowed",
        "A name of an allowed module that this policy holds back",
        "is not among the names that this policy allows from the module",
        "Use an allowed name, or let the operator widen the module's entry in allowed_modules.",
    ),
    Rule(
        "name-not-allowed",
        "A name that belongs to the interpreter",
        "belongs to the interpreter, not to the cell",
        "Choose another name.",
    ),
    Rule(
        "narrowing-not-kept",
        "A narrowing that can't be put in force",
        "can't be put in force here",
        "Narrow something else, or let the operator change the policy.",
    ),
    Rule(
        "node-not-allowed",
        "Syntax that cellblock does not know",
        "is syntax that this version of cellblock does not know, so nobody has judged it",
        "Write it in older syntax, or update cellblock.",
    ),
    Rule(
        "not-a-template",
        "A cell that is no template",
        "This policy runs shipped templates only, and this cell names none",
        "Begin the cell with %%template NAME, and give its state as JSON. %template lists them.",
    ),
    Rule(
        "operation-not-allowed",
        "An operation on the machine, met at run time",
        "is refused by this policy",
        "Work on the cell's own values, or ask the host for an operation.",
    ),
    Rule(
        "policy-only-narrows",
        "A change that would allow more",
        "would allow more than the policy does",
        "Only the operator can allow more, in the policy of the kernel.",
    ),
    Rule(
        "relative-import",
        "A relative import",
        "a notebook cell is not inside a package, so a relative import can only reach files",
        "Import an allowed module by its full name.",
    ),
    Rule(
        "shell-escape",
        "A shell command",
        "starts a process on the machine",
        "Do it in Python, or ask the host for an operation.",
    ),
    Rule(
        "shell-object",
        "The shell object itself",
        "is the running shell: whoever holds it can run unchecked text",
        "Use a magic (%name) where one is allowed; display() and input() are plain functions here.",
    ),
    Rule(
        "source-too-complex",
        "Source that cannot be checked",
        "is nested too deeply to be checked, and what is not checked does not run",
        "Break the expression up into several statements.",
    ),
    Rule(
        "template-definitions",
        "A template that does more than define",
        "runs when the template is loaded, not when it is asked for",
        "Put it into a function that run(state) calls.",
    ),
    Rule(
        "template-not-found",
        "A template that is not shipped",
        "No template of this name is shipped",
        "%template lists those that are.",
    ),
    Rule(
        "template-state",
        "A state that the template does not take",
        "This is not a state that the template takes",
        "%template NAME shows the schema that a state has to fit.",
    ),
)

RULES: Mapping[str, Rule] = MappingProxyType({rule.id: rule for rule in _TABLE})
