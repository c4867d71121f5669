"""``SECRET``, for operators who write tools: marks a value as secret in its type hint.

    def log_in(user: str, password: Annotated[str, SECRET]) -> bool: ...

Wherever calls are listed, a marked value is shown as •••, and so is one of pydantic's
``SecretStr``. If a field of a model, a dataclass or a ``TypedDict`` is marked, the whole argument
is shown as •••.
"""

from __future__ import annotations

from typing import Final


class Secret:
    """A mark for a parameter, or the return value, of a tool that is secret."""

    __slots__ = ()


SECRET: Final = Secret()
