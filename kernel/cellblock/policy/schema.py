"""The pydantic side of a policy: operator's input in, ``Policy`` or one ``PolicyError`` out.

Imported only for operators' files; shipped presets are checked by the tests instead.
"""

from __future__ import annotations

import dataclasses
import json
from functools import cache
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from cellblock.errors import PolicyError
from cellblock.policy.model import FIELDS, LIMITS, Policy
from cellblock.policy.sections import SECTIONS, fields
from cellblock.policy.suggest import closest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic_core import ErrorDetails

#: pydantic's words in TOML's.
_WORDS = (
    ("a valid array", "a list"),
    ("a valid integer", "a whole number"),
    ("a valid string", "a text"),
    ("a valid boolean", "true or false"),
    ("an object", "a table"),
    ("a valid ", "a "),
)
_EXPECTED = {"network_access": "true, false or a list of host:port texts"}


def parse(values: Mapping[str, object], *, file: str) -> Policy:
    """Check ``values`` (field name to TOML value) and build the policy.

    Raises PolicyError for the first thing wrong. Paths are taken as they stand.
    """
    try:
        # JSON, because strict JSON input is where pydantic takes a list for a tuple.
        return _adapter().validate_json(json.dumps(values, default=str))
    except ValidationError as failure:
        raise _explained(failure.errors(include_url=False)[0], values, file) from None


@cache
def _adapter() -> TypeAdapter[Policy]:
    return TypeAdapter(Policy)


def _named(loc: tuple[int | str, ...]) -> tuple[str, tuple[str, ...] | None]:
    """Return the key at a place, and for one that is not known those that are."""
    top = str(loc[0])
    if top not in FIELDS:
        return top, FIELDS
    if top not in SECTIONS or len(loc) == 1:
        return top, None
    second, own = str(loc[1]), fields(top)
    if second not in own:
        return f"{top}.{second}", tuple(own)
    table = own[second]
    if table is None or len(loc) == 2:  # noqa: PLR2004 - the table itself
        return f"{top}.{second}", None
    names = tuple(field.name for field in dataclasses.fields(table))
    return f"{top}.{second}.{loc[2]}", None if loc[2] in names else names


def json_schema() -> dict[str, Any]:
    """Return the JSON schema of a policy, field docs and defaults included."""
    schema = _adapter().json_schema()
    # A default that is made anew for each policy is not in what pydantic says.
    schema["properties"]["tool_timeouts"]["default"] = {}
    schema["properties"]["ops"]["default"] = {}  # in a file there is no None
    return schema


def _explained(detail: ErrorDetails, values: Mapping[str, object], file: str) -> PolicyError:
    if not detail["loc"]:  # it never came to a field: a surrogate, from a name in bytes
        what, remedy = "not text", "Give the file and the folders it names names in UTF-8."
        return PolicyError(what, file=ascii(file), key="name", value="", remedy=remedy)
    key, known = _named(detail["loc"])
    if known is not None:
        remedy = closest(key.rpartition(".")[2], known, what="keys")
        return PolicyError("no such key", file=file, key=key, value="", remedy=remedy)
    expected = _EXPECTED.get(key) or detail["msg"].removeprefix("Input should be ")
    for theirs, ours in _WORDS:
        expected = expected.replace(theirs, ours)
    limit = ', or "none" for no limit' if key in LIMITS else ""
    value = detail["input"] if key not in _EXPECTED else values[key]
    return PolicyError(
        "wrong value",
        file=file,
        key=key,
        value=repr(value),
        remedy=f"It should be {expected}{limit}.",
    )
