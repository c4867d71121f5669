"""``str.format`` and ``str.format_map`` by the attribute rule, however they are reached.

Both are replaced in ``str`` itself: bound, unbound, handed to ``map`` or called by the library,
every template passes here. Templates without a dot can't reach an attribute and pay one search.
"""

from __future__ import annotations

from _string import formatter_field_name_split, formatter_parser
from functools import lru_cache
from typing import Any

from cellblock.guest.guards.access import check_name
from cellblock.guest.guards.roots import modified, namespace_of

_exact = str.__str__
_NESTING = 4


@lru_cache(maxsize=512)
def check_template(template: str, depth: int = 0) -> None:
    """Check every attribute that ``template`` reads, in nested format specs too.

    Raises:
        AttributeViolation: the policy refuses one of them.

    """
    try:
        for _, field, spec, _ in formatter_parser(template):
            if field:
                _check_field(field)
            if spec and "{" in spec and depth < _NESTING:
                check_template(spec, depth + 1)
    except ValueError:
        return  # not a template: str.format says why


def _check_field(field: str) -> None:
    _, rest = formatter_field_name_split(field)
    for is_attribute, name in rest:
        if is_attribute:
            check_name(name)


def close() -> None:
    """Replace both methods. Call once."""
    space = namespace_of(str)
    real_format, real_format_map = space["format"], space["format_map"]
    check = check_template

    def format(self: str, /, *args: Any, **kwargs: Any) -> str:  # noqa: A001 - its name
        text = _exact(self)
        if "." in text:
            check(text)
        return real_format(text, *args, **kwargs)  # type: ignore[no-any-return]

    def format_map(self: str, mapping: Any, /) -> str:
        text = _exact(self)
        if "." in text:
            check(text)
        return real_format_map(text, mapping)  # type: ignore[no-any-return]

    for function, real in ((format, real_format), (format_map, real_format_map)):
        function.__doc__ = real.__doc__
        function.__qualname__ = f"str.{function.__name__}"
        space[function.__name__] = function
    modified(str)
