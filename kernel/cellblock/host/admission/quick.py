"""jsonschema without the packages that it imports for ``format``, which is an annotation here.

It takes each that is installed, and Jupyter's server has them be: ``rfc3987_syntax`` alone compiles
a grammar for three seconds, in which the host's one loop would stand still.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

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
def quick() -> Iterator[None]:
    """Have these count as not installed meanwhile, unless they are imported already."""
    modules: dict[str, Any] = sys.modules
    absent = [name for name in _FORMATS if name not in modules]
    modules.update(dict.fromkeys(absent))  # None: an ImportError (import system, 5.3.1)
    try:
        yield
    finally:
        for name in absent:
            del modules[name]
