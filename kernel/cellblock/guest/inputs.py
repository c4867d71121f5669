"""``inputs``: what whoever runs the cells has given them, to be read and not to be changed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, NoReturn

_SHOWN: Final = 60
_NAMED: Final = 10
_GIVEN: Final = "whoever runs the cells gives inputs: --input FILE, or Sandbox(inputs={…})"


class Inputs(Mapping[str, Any]):
    """Values by name. Each look-up gives a copy of its own, of JSON's types.

    ``encoded`` are the values as JSON.
    """

    __slots__ = ("_encoded",)

    _encoded: Mapping[str, str]

    def __init__(self, encoded: Mapping[str, str]) -> None:
        object.__setattr__(self, "_encoded", MappingProxyType(dict(encoded)))

    def __getitem__(self, name: str) -> Any:
        if name not in self._encoded:
            raise KeyError(self._missing(name))
        return json.loads(self._encoded[name])

    def _missing(self, name: object) -> str:
        names, more = list(self._encoded)[:_NAMED], len(self._encoded) - _NAMED
        known = f"but {', '.join(names)}" if names else "and no other"
        known += f" and {more:,} more" if more > 0 else ""
        return f"there is no input {name!r}, {known}; {_GIVEN}"

    def __contains__(self, name: object) -> bool:
        return name in self._encoded

    def __iter__(self) -> Iterator[str]:
        return iter(self._encoded)

    def __len__(self) -> int:
        return len(self._encoded)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("inputs can be read only")

    def __repr__(self) -> str:
        shown = ", ".join(f"{name!r}: {_short(text)}" for name, text in self._encoded.items())
        return f"inputs({{{shown}}})"


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
