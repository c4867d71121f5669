"""For operators who write tools: what a type hint can say of a value.

    def log_in(user: str, password: Annotated[str, SECRET]) -> bool: ...

A value so marked is shown as ••• wherever calls are listed; pydantic's ``SecretStr`` does too. In a
field of a model, a dataclass or a ``TypedDict`` it has the whole argument shown so.
"""

from __future__ import annotations

from typing import Final


class Secret:
    """Marks a parameter, or what a tool returns, as secret."""

    __slots__ = ()


SECRET: Final = Secret()
