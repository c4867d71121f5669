"""Validates a state against a JSON schema (draft 2020-12), in bounded time.

Used for templates, and for tools of MCP servers. The schema is the operator's or a server's, the
state is a cell's, which may be made to take long. So patterns are matched by an engine of linear
time (Rust's, through pydantic, instead of Python's ``re``), ``uniqueItems`` is checked by hashing,
and the number of keyword checks is bounded. References may not leave the schema, so nothing is
fetched. ``format`` is an annotation and isn't checked.
"""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from pydantic_core import SchemaError as PatternError
from pydantic_core import SchemaValidator, core_schema
from referencing import Registry
from referencing.exceptions import Unresolvable

from cellblock.analysis.admission import MAX_PROBLEMS, Problem
from cellblock.errors import AdmissionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


#: The modules that jsonschema imports for ``format`` if they are installed, as they are with
#: Jupyter's server. ``rfc3987_syntax`` alone compiles a grammar for three seconds, for which the
#: host's one loop would stand still.
_FORMATS: Final = (
    "fqdn",
    "idna",
    "isoduration",
    "jsonpointer",
    "rfc3339_validator",
    "rfc3986_validator",
    "rfc3987",
    "rfc3987_syntax",
    "uri_template",
    "webcolors",
)


@contextmanager
def without_formats() -> Iterator[None]:
    """Hide the modules for ``format`` from imports, unless they are imported already."""
    modules: dict[str, Any] = sys.modules
    absent = [name for name in _FORMATS if name not in modules]
    # An entry of None makes an import raise ImportError (Python reference, import system, 5.3.1).
    modules.update(dict.fromkeys(absent))
    try:
        yield
    finally:
        for name in absent:
            del modules[name]


with without_formats():
    from jsonschema import Draft202012Validator, SchemaError, ValidationError
    from jsonschema.validators import extend


#: Keyword checks that one state may take: some tenths of a second.
_MOST_CHECKS: Final = 60_000
_LONGEST: Final = 200
_REMEDY: Final = "Mend the schema there."


class _TooLongError(Exception):
    """A state takes more than ``_MOST_CHECKS``."""


def checker(schema: Mapping[str, Any], file: str) -> Callable[[Any], tuple[Problem, ...]]:
    """Return a function that returns the problems of a state under ``schema``.

    Raise AdmissionError for a schema that is invalid, refers to another one, or has a pattern that
    can't be matched in linear time. ``file`` is its name in the error.
    """
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as exc:
        where = exc.json_path
        message = f"not a JSON schema of draft 2020-12: {where}: {exc.message[:_LONGEST]}"
        raise AdmissionError(message, file=file, remedy=_REMEDY) from None
    keywords = _Keywords(_patterns_of(schema, file))
    validator = keywords.validator_class()(schema, registry=Registry())

    def check(state: Any) -> tuple[Problem, ...]:
        keywords.checks_left = _MOST_CHECKS
        try:
            return tuple(
                Problem(_short(error.json_path), str(error.validator), _short(error.message))
                for error in islice(validator.iter_errors(state), MAX_PROBLEMS)
            )
        except _TooLongError:
            return (Problem("$", "schema", "it takes too long to be checked"),)
        except (Unresolvable, RecursionError, ArithmeticError) as exc:
            return (Problem("$", "schema", f"it can't be checked: {type(exc).__name__}"),)

    return check


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


# --- what a schema may contain ----------------------------------------------------------------


def _patterns_of(schema: Mapping[str, Any], file: str) -> dict[str, SchemaValidator]:
    """Return the compiled patterns of a schema, after checking its references.

    Raise AdmissionError.
    """
    patterns: dict[str, SchemaValidator] = {}
    stack: list[Any] = [schema]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            _check_references(node, file)
            pattern = node.get("pattern")
            by_pattern = node.get("patternProperties")
            texts = [pattern] if isinstance(pattern, str) else []
            texts += by_pattern if isinstance(by_pattern, dict) else ()
            patterns |= {text: _compiled(text, file) for text in texts}
            stack += node.values()
        elif isinstance(node, list):
            stack += node
    return patterns


def _check_references(node: Mapping[str, Any], file: str) -> None:
    if "unevaluatedProperties" in node:  # for it, jsonschema matches patterns by Python's re
        message = "unevaluatedProperties can't be checked in bounded time"
        raise AdmissionError(message, file=file, remedy="Write additionalProperties.")
    for name in ("$ref", "$dynamicRef"):
        target = node.get(name)
        if isinstance(target, str) and not target.startswith("#"):
            message = f"{name} leads out of the schema: {target[:_LONGEST]!r}"
            raise AdmissionError(message, file=file, remedy="Put what it means into $defs.")


def _compiled(pattern: str, file: str) -> SchemaValidator:
    try:
        return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))
    except PatternError as exc:
        message = f"a pattern can't be matched in linear time: {pattern[:_LONGEST]!r}"
        remedy = "Write it without lookaround and backreferences."
        raise AdmissionError(message, file=file, remedy=remedy) from exc


# --- keywords ---------------------------------------------------------------------------------


class _Keywords:
    """Replacements of keywords that jsonschema matches by ``re``, or compares item by item.

    Each check of any keyword takes one of ``checks_left``.
    """

    def __init__(self, patterns: Mapping[str, SchemaValidator]) -> None:
        self._patterns = patterns
        self.checks_left = 0

    def validator_class(self) -> Any:
        """Return a class of validators with these keywords, all of which are counted."""
        own = {
            "additionalProperties": self._additional,
            "pattern": self._pattern,
            "patternProperties": self._named_by_pattern,
            "uniqueItems": _unique,
        }
        keywords = {**Draft202012Validator.VALIDATORS, **own}
        counted = {name: self._counted(keyword) for name, keyword in keywords.items()}
        return extend(Draft202012Validator, counted)

    def _spend(self) -> None:
        self.checks_left -= 1
        if self.checks_left < 0:
            raise _TooLongError

    def _counted(self, keyword: Any) -> Any:
        def counted(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
            self._spend()
            yield from keyword(validator, value, instance, schema) or ()

        return counted

    def _matches(self, pattern: str, text: str) -> bool:
        self._spend()
        return self._patterns[pattern].isinstance_python(text)

    def _pattern(self, _validator: Any, value: str, instance: Any, _schema: Any) -> Iterator[Any]:
        if isinstance(instance, str) and not self._matches(value, instance):
            yield ValidationError(f"{instance[:_LONGEST]!r} does not match {value!r}")

    def _named_by_pattern(
        self, validator: Any, value: dict[str, Any], instance: Any, _schema: Any
    ) -> Iterator[Any]:
        for name, item in instance.items() if isinstance(instance, dict) else ():
            for pattern, schema in value.items():
                if self._matches(pattern, name):
                    yield from validator.descend(item, schema, path=name, schema_path=pattern)

    def _additional(self, validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
        properties = schema.get("properties", {})
        patterns = schema.get("patternProperties", {})
        for name, item in instance.items() if isinstance(instance, dict) else ():
            if name in properties or any(self._matches(each, name) for each in patterns):
                continue
            if value is False:
                yield ValidationError(f"{name[:_LONGEST]!r} is not a key that it has")
            else:
                yield from validator.descend(item, value, path=name)


def _unique(_validator: Any, value: Any, instance: Any, _schema: Any) -> Iterator[Any]:
    if value and isinstance(instance, list):
        distinct = {json.dumps(_canonical(item), sort_keys=True) for item in instance}
        if len(distinct) < len(instance):
            yield ValidationError("its items are not all different")


def _canonical(value: Any) -> Any:
    """Return ``value`` with each whole number as an int: 1.0 and 1 are equal in JSON Schema."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_canonical(item) for item in value]
    if isinstance(value, dict):
        return {key: _canonical(item) for key, item in value.items()}
    return value
