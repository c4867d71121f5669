"""Parts of a policy that are tables of their own in a file: ``[audit]``, ``[ops.http]``.

The docstring below a field is its documentation of record, as in ``model``.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal

from cellblock.policy.ranges import CHECKED, KIB, MIB, Range

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cellblock.policy.operations import Operations


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """What it is that ``cellblock approve`` writes and a kernel reads: manifests, and their key."""

    __pydantic_config__: ClassVar[Mapping[str, object]] = CHECKED

    folder: str = "{data}/approved"
    """Where manifests lie. ``{data}`` is ``$XDG_DATA_HOME/cellblock`` or
    ``~/.local/share/cellblock``. No guest can write it."""

    key: str = "{data}/approval.key"
    """The file of the key that manifests are signed with: the user's alone, or root's. Whoever can
    read it can approve. No guest can read it."""

    scope: str = "{project}"
    """What a manifest is for, and what a user allows for always: the folder of the notebooks, or a
    name of the operator's where they are to count in other places, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """What is written down of a session, and what happens where it can't be."""

    __pydantic_config__: ClassVar[Mapping[str, object]] = CHECKED

    log: bool = True
    """Whether the host writes an audit log of the session."""

    required: bool = False
    """Whether no cell runs while the log can't be written. If not, cells run and the first one
    says that nothing is written."""

    folder: str = "{cache}/audit"
    """Where logs lie, one or more files a session. ``{cache}`` is ``$XDG_CACHE_HOME/cellblock`` or
    ``~/.cache/cellblock``: a log that somebody relies on needs a folder that nobody clears. No
    guest can read or write it."""

    max_bytes: Annotated[int, Range(64 * KIB)] = 16 * MIB
    """Bytes after which a session's log goes on in its next file. Once it has sixteen times that,
    nothing more runs in the session."""

    fsync: bool = False
    """Whether each record is on disk before its cell starts: it then outlives a power cut, not
    only the host. Costs what the disk takes for it, a millisecond or more a cell."""

    sources: bool = False
    """Whether sources of cells, lines that were refused and messages of exceptions stand in the
    log. If not, sources are there as SHA-256 only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Templates:
    """Where templates come from."""

    __pydantic_config__: ClassVar[Mapping[str, object]] = CHECKED

    folders: tuple[str, ...] = ("{shipped}",)
    """Folders of templates, each a ``NAME.py`` and a ``NAME.schema.json``. ``{shipped}`` holds
    cellblock's own. No guest can write them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Llm:
    """Which language models cells may ask, through the host, and how much of that there is."""

    __pydantic_config__: ClassVar[Mapping[str, object]] = CHECKED

    base_url: str = ""
    """The endpoint, compatible with OpenAI's: ``https://api.openai.com/v1``. Empty: cells can ask
    none. The host asks it, with what cells say; they learn neither address nor key."""

    models: tuple[str, ...] = ()
    """Models that cells may ask; the first where they name none."""

    key_env: str = ""
    """The host's environment variable that holds the key. Cells never have it."""

    keyring: str = ""
    """Where the key is in the host's keyring, instead: ``service:user``."""

    timeout: Annotated[float, Range(0.1)] = 120.0
    """Seconds that one call may take, with all its retries."""

    retries: Annotated[int, Range(0, 10)] = 2
    """How often a call is tried again that the endpoint was too busy for, or that did not reach
    it."""

    max_calls: Annotated[int, Range(1)] = 1_000
    """Calls that all cells of a session may make."""

    max_tokens: Annotated[int, Range(1)] = 1_000_000
    """Tokens that all calls of a session may take, prompts and completions together."""

    max_tokens_per_call: Annotated[int, Range(1)] = 4_096
    """Tokens of the longest completion. Also what a call gets that names no number."""

    max_in_flight: Annotated[int, Range(1, 1_000)] = 16
    """Calls under way at once; more wait, within their ``timeout``."""

    token_parameter: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"  # noqa: S105  # tokens of another kind
    """What the endpoint calls the length of a completion."""

    @property
    def granted(self) -> bool:
        """Whether cells have ``llm``."""
        return bool(self.base_url)


class Granted:
    """Says to pydantic what a field is made of that is None where no operation is granted."""

    __slots__ = ()

    def __get_pydantic_core_schema__(
        self, _source: object, handler: Callable[[object], dict[str, Any]]
    ) -> dict[str, Any]:
        from cellblock.policy.operations import Operations  # noqa: PLC0415 - as its module says

        def none_if_empty(section: Operations) -> Operations | None:
            return section if any(_granted(section)) else None

        after = {"type": "no-info", "function": none_if_empty}
        return {"type": "function-after", "function": after, "schema": handler(Operations)}


def _operations(**values: Any) -> Operations | None:
    if not values:
        return None
    from cellblock.policy.operations import built  # noqa: PLC0415 - as its module says

    return built(values)


#: Fields that are tables of fields.
TABLES: Final = {"approval": Approval, "audit": Audit, "llm": Llm, "templates": Templates}
#: Fields that are tables: how each is made of a file's values.
SECTIONS: Final[dict[str, Callable[..., Any]]] = {**TABLES, "ops": _operations}


def fields(section: str) -> dict[str, type | None]:
    """Return the keys of a section; each with the class of the table that it is, if it is one."""
    if section == "ops":
        from cellblock.policy.operations import OPERATIONS  # noqa: PLC0415 - as its module says

        return dict(OPERATIONS)
    return {one.name: None for one in dataclasses.fields(TABLES[section])}


def plain(value: Any) -> Any:
    """Return a policy's value with sections as dicts; what they do not grant is left out."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        found = dataclasses.asdict(value)
        return {key: own for key, own in found.items() if own is not None}
    return value


def _granted(section: Any) -> list[Any]:
    return [one for field in dataclasses.fields(section) if (one := getattr(section, field.name))]


def rows(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a policy's fields as ``Policy.as_dict`` has them, those of sections one by one.

    Of a section that has nothing in it there is one row.
    """
    flat: dict[str, Any] = {}
    for field, value in values.items():
        if field in SECTIONS and isinstance(value, dict) and value:
            flat |= _section(field, value)
        else:
            flat[field] = value
    return flat


def _section(field: str, values: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, own in values.items():
        if isinstance(own, dict):
            flat |= {f"{field}.{key}.{inner}": value for inner, value in own.items()}
        else:
            flat[f"{field}.{key}"] = own
    return flat
