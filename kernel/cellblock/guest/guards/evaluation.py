"""What the library evaluates on a cell's behalf: generated methods, and annotations as text.

``namedtuple``, ``dataclass`` and ``typing`` find ``eval`` and ``exec`` among their own globals
before the builtins, so judged ones are put there. Whoever evaluates also picks a namespace: a
class names the module it says it is from, and a forward reference of one's own class is handed
whatever it would be evaluated in.
"""

from __future__ import annotations

import builtins
import collections
import dataclasses
import sys
import typing
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any

from cellblock.analysis import analyse, attribute_allowed
from cellblock.analysis.names import RESERVED, SHELL_OBJECT
from cellblock.guest.guards import trust
from cellblock.guest.guards.access import refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cellblock.analysis import Rules

#: What generated code may not say, whoever generated it.
_GENERATED = frozenset(
    {"attribute-not-allowed", "name-not-allowed", "node-not-allowed", "shell-object"}
)
_INTERPRETERS = frozenset({*RESERVED, "__import__"})


def harden(rules: Rules, guarded: dict[str, object]) -> None:
    """Judge what the library evaluates; ``guarded`` are the builtins of user code. Call once."""
    vars(collections)["eval"] = _checked_eval(rules)
    vars(dataclasses)["exec"] = _checked_exec(rules, guarded)
    vars(dataclasses)["_is_type"] = _knows_facades(vars(dataclasses)["_is_type"])
    vars(typing)["eval"] = _hint_eval(rules, guarded)
    if not rules.raw_modules:
        vars(typing)["_eval_type"] = _in_clean_spaces(vars(typing)["_eval_type"])


def _check_text(source: str, rules: Rules) -> None:
    for finding in analyse(source, rules):
        if finding.rule in _GENERATED:
            raise refusal(finding.subject)


def _checked_eval(rules: Rules) -> Callable[..., Any]:
    real = eval

    def eval_(source: str, space: dict[str, Any]) -> Any:
        _check_text(source, rules)
        return real(compile(source, "<string>", "eval"), space)

    return eval_


def _checked_exec(rules: Rules, guarded: dict[str, object]) -> Callable[..., None]:
    """Return the ``exec`` of dataclasses, which builds methods out of field names."""
    real = exec

    def exec_(source: str, space: dict[str, Any], local: dict[str, Any]) -> None:
        _check_text(source, rules)
        if _is_library(space):  # a class says what module it is from, and may lie
            space = {"__name__": space.get("__name__"), "__builtins__": guarded}
        # This file's own future import would turn the annotations into text.
        real(compile(source, "<string>", "exec", dont_inherit=True), space, local)

    return exec_


def _knows_facades(real: Callable[..., bool]) -> Callable[..., bool]:
    """Return the test for ``"dataclasses.InitVar[int]"`` that takes a facade for its module."""

    def _is_type(note: str, cls: type, module: ModuleType, kind: Any, judge: Any) -> bool:
        if real(note, cls, module, kind, judge):
            return True
        first, _, rest = note.partition(".")
        space = trust.namespace_of_module(sys.modules[cls.__module__])
        shown = space.get(first.strip())
        if type(shown) is not ModuleType or shown.__name__ != module.__name__:
            return False
        name = rest.partition("[")[0].strip()
        return bool(judge(trust.namespace_of_module(shown).get(name), module))

    return _is_type


def _hint_eval(rules: Rules, guarded: dict[str, object]) -> Callable[..., Any]:
    """Return the ``eval`` of typing, which evaluates annotations written as text."""
    real = eval

    def eval_(code: Any, space: Mapping[str, Any] | None, local: Any = None) -> Any:
        if isinstance(code, str):
            code = compile(code, "<annotation>", "eval")
        _check_code(code)
        space, local = space or {}, {} if local is None else local
        if not rules.raw_modules:  # library annotations matter only where libraries come in
            space = {} if _is_library(space) else space
            local = {} if _is_library(local) else local
        return real(code, {**space, "__builtins__": guarded}, local)

    return eval_


def _check_code(code: CodeType) -> None:
    for name in code.co_names:
        if name == SHELL_OBJECT or not attribute_allowed(name):
            raise refusal(name)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _check_code(constant)


def _is_library(space: Any) -> bool:
    """Whether this is the namespace of a loaded module, not of user code."""
    if not isinstance(space, dict):
        return False
    holds = dict.get(space, "__builtins__")
    return (
        holds is trust.REAL_BUILTINS or holds is builtins or dict.get(space, "__spec__") is not None
    )


class _Clean(dict[str, Any]):
    """A namespace that annotations may see, and that anybody may hold."""

    __slots__ = ()


def _in_clean_spaces(real: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``typing._eval_type`` that hands no live namespace to a ``ForwardRef`` subclass."""

    def _eval_type(t: Any, globalns: Any, localns: Any, *args: Any, **kwargs: Any) -> Any:
        return real(t, _clean(globalns), _clean(localns), *args, **kwargs)

    return _eval_type


def _clean(space: Any) -> Any:
    if not isinstance(space, dict) or type(space) is _Clean:
        return space
    if _is_library(space):
        return _Clean()
    return _Clean((k, v) for k, v in dict.items(space) if k not in _INTERPRETERS)
