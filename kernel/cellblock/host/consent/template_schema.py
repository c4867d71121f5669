"""What a template's JSON schema (draft 2020-12) refuses of a state, in bounded time.

The schema is the operator's; the state is a cell's. So nothing of the state's making may take long:
patterns are matched by an engine of linear time (Rust's, through pydantic, instead of Python's
``re``), ``uniqueItems`` by hashing, and every check of a keyword costs one of a number that runs
out. No reference leaves the schema, so that nothing is fetched. ``format`` is an annotation.
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


#: What jsonschema imports for ``format`` where it is installed, as Jupyter's server has it be:
#: ``rfc3987_syntax`` alone compiles a grammar for three seconds, in which the host's one loop would
#: stand still.
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
    """Have these count as not installed meanwhile, unless they are imported already."""
    modules: dict[str, Any] = sys.modules
    absent = [name for name in _FORMATS if name not in modules]
    modules.update(dict.fromkeys(absent))  # None: an ImportError (import system, 5.3.1)
    try:
        yield
    finally:
        for name in absent:
            del modules[name]


with without_formats():
    from jsonschema import Draft202012Validator, SchemaError, ValidationError
    from jsonschema.validators import extend


#: Checks of keywords that one state may take: some tenths of a second.
_MOST_CHECKS: Final = 60_000
_LONGEST: Final = 200
_REMEDY: Final = "Mend the schema there."


class _TooLongError(Exception):
    """The checks of one state have run out."""


def checker(schema: Mapping[str, Any], file: str) -> Callable[[Any], tuple[Problem, ...]]:
    """Return what tells the problems of a state under ``schema``.

    Raise AdmissionError for what is no schema, refers to somewhere else, or has a pattern that
    can't be matched in linear time.
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
                Problem(_short(one.json_path), str(one.validator), _short(one.message))
                for one in islice(validator.iter_errors(state), MAX_PROBLEMS)
            )
        except _TooLongError:
            return (Problem("$", "schema", "it takes too long to be checked"),)
        except (Unresolvable, RecursionError, ArithmeticError) as exc:
            return (Problem("$", "schema", f"it can't be checked: {type(exc).__name__}"),)

    return check


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


# --- a schema's own bounds --------------------------------------------------------------------


def _patterns_of(schema: Mapping[str, Any], file: str) -> dict[str, SchemaValidator]:
    """Return the patterns that a schema may match by. Raise AdmissionError."""
    patterns: dict[str, SchemaValidator] = {}
    stack: list[Any] = [schema]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            _check_references(node, file)
            pattern, several = node.get("pattern"), node.get("patternProperties")
            texts = [pattern] if isinstance(pattern, str) else []
            texts += several if isinstance(several, dict) else ()
            patterns |= {text: _compiled(text, file) for text in texts}
            stack += node.values()
        elif isinstance(node, list):
            stack += node
    return patterns


def _check_references(node: Mapping[str, Any], file: str) -> None:
    if "unevaluatedProperties" in node:  # jsonschema matches patterns by itself there
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
    """Keywords that jsonschema would match by Python's ``re``, or compare item by item.

    Every check of a keyword costs one of ``checks_left``.
    """

    def __init__(self, patterns: Mapping[str, SchemaValidator]) -> None:
        self._patterns, self.checks_left = patterns, 0

    def validator_class(self) -> Any:
        """Return the class of validators that know these, and count."""
        own = {
            "additionalProperties": self._additional,
            "pattern": self._pattern,
            "patternProperties": self._named_by_pattern,
            "uniqueItems": _unique,
        }
        every = {**Draft202012Validator.VALIDATORS, **own}
        counted = {name: self._counted(one) for name, one in every.items()}
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
        known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
        for name, item in instance.items() if isinstance(instance, dict) else ():
            if name in known or any(self._matches(each, name) for each in patterns):
                continue
            if value is False:
                yield ValidationError(f"{name[:_LONGEST]!r} is not a key that it has")
            else:
                yield from validator.descend(item, value, path=name)


def _unique(_validator: Any, value: Any, instance: Any, _schema: Any) -> Iterator[Any]:
    if value and isinstance(instance, list):
        seen = {json.dumps(_canonical(item), sort_keys=True) for item in instance}
        if len(seen) < len(instance):
            yield ValidationError("its items are not all different")


def _canonical(value: Any) -> Any:
    """Return ``value`` with every number that is whole as an int: 1.0 equals 1 in a schema."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_canonical(item) for item in value]
    if isinstance(value, dict):
        return {key: _canonical(item) for key, item in value.items()}
    return value
