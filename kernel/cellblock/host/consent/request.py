"""What is asked for: bound to exactly that by a hash, and shown whole or not allowed by itself."""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
from msgspec.structs import replace

from cellblock.host.services.tools.calls import MASK, is_secret_at, is_secret_named
from cellblock.render.cards import count, size
from cellblock.render.text import clip, exact, laid_out, letters, wrap
from cellblock.wire import values

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from cellblock.analysis.imports import Import
    from cellblock.host.services.changes import Change
    from cellblock.host.services.tools.calls import Call
    from cellblock.wire.messages import Tool


#: What takes consent.
Of = Literal["call", "import", "keep", "start"]
#: Lines of a call's arguments that are shown; of more than these how many, and of their end.
MOST_LINES: Final = 40
_HEAD, _TAIL = 12, 4
#: Bytes of arguments that are looked into at all.
MOST_BYTES: Final = 64 << 10
#: Characters of a name, and names of imports in the question itself.
_NAME: Final = 60
_NAMES: Final = 4
_COLUMNS: Final = 76
_POSITIONAL, _REST = (0, 1), 2


class ApprovalRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Something that takes the user's consent.

    ``subjects`` are what a lasting grant is of; ``sha256`` is of exactly what is asked. ``shown``
    are lines; what is not shown ``whole`` can't be allowed once. ``asks`` completes "may cell …",
    and ``all_of`` is what a lasting grant lets pass. ``arguments`` are a call's, encoded, and
    ``tool`` what is called.
    """

    of: Of
    subjects: tuple[str, ...]
    sha256: str
    asks: str
    all_of: str
    shown: tuple[str, ...] = ()
    whole: bool = True
    arguments: bytes = b""
    tool: Tool | None = None


def of_call(call: Call) -> ApprovalRequest | None:
    """Return what a call asks for; None where its arguments are no data that can be shown.

    What is shown of them takes ``with_lines``: most calls are decided without.
    """
    tool, encoded = call.tool, bytes(call.arguments)
    try:
        _arguments(encoded)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return None
    name = exact(clip(tool.name, _NAME))
    return ApprovalRequest(
        of="call",
        subjects=(tool.name,),
        sha256=hashlib.sha256(tool.name.encode() + b"\0" + encoded).hexdigest(),
        asks=f"call {name}?",
        all_of=f"each call of {name}, whatever its arguments",
        whole=len(encoded) <= MOST_BYTES,
        arguments=encoded,
        tool=tool,
    )


def with_lines(wanted: ApprovalRequest) -> ApprovalRequest:
    """Return a request with what is shown of it: up to a tenth of a second's work for a call's."""
    if wanted.tool is None:
        return wanted
    lines, whole = list[str](), wanted.whole
    try:
        lines += _argument_lines(wanted.tool, wanted.arguments)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        whole = False  # nested deeper than this can follow, where ``of_call`` just could
    whole = whole and len(lines) <= MOST_LINES
    shown = lines if whole else _ends(lines, len(wanted.arguments), wanted.sha256)
    return replace(wanted, shown=tuple(shown), whole=whole)


def _ends(lines: Sequence[str], size: int, digest: str) -> Iterator[str]:
    if lines:
        yield from lines[:_HEAD]
        yield f"  … {len(lines) - _HEAD - _TAIL:,} more lines …"
        yield from lines[-_TAIL:]
    yield f"  It is too long to be shown whole: {size:,} bytes, request {digest[:16]}."
    yield "  So it can't be allowed by itself."


def _arguments(encoded: bytes) -> tuple[list[Any], dict[str, Any]]:
    """Return a call's arguments; none of what is too long to be shown whole.

    Raise msgspec.MsgspecError, RecursionError, ValueError.
    """
    return ([], {}) if len(encoded) > MOST_BYTES else values.arguments(encoded)


def _argument_lines(tool: Tool, encoded: bytes) -> Iterator[str]:
    """Yield the lines of each argument."""
    args, kwargs = _arguments(encoded)
    names = [exact(one.name) for one in tool.parameters if one.kind in _POSITIONAL]
    rest = [exact(one.name) for one in tool.parameters if one.kind == _REST]
    for index, value in enumerate(args):
        beyond = f"{rest[0]}[{index - len(names)}]" if rest else f"argument {index + 1}"
        name = names[index] if index < len(names) else beyond
        yield from _shown(name, value, secret=is_secret_at(tool, index))
    for key, value in kwargs.items():
        plain = isinstance(key, str) and key.isascii() and key.isidentifier() and len(key) <= _NAME
        name = key if plain else exact(repr(key))
        yield from _shown(name, value, secret=is_secret_named(tool, key))


def _shown(name: str, value: Any, *, secret: bool) -> Iterator[str]:
    if secret:
        yield f"  {name} = {MASK}, kept out of sight: the tool calls it secret"
        return
    text = repr(value)
    yield from laid_out(name, exact(text))
    yield from letters(text)


def of_imports(imports: Iterable[Import], sha256: str) -> ApprovalRequest:
    """Return what a cell asks for that imports these; ``sha256`` is the cell's."""
    listed, shown = tuple(imports), list[str]()
    for one in listed:
        comes = "as it is" if one.kind == "package" else "by its public names"
        shown += laid_out(one.kind, exact(one.name))
        shown += wrap(f"{comes}; {one.why}", indent="      ", columns=_COLUMNS)
        shown += letters(one.name)
    names = [exact(one.name) for one in listed]
    more = " and more" if len(names) > _NAMES else ""
    return ApprovalRequest(
        of="import",
        subjects=tuple(one.name for one in listed),
        sha256=hashlib.sha256("\0".join([sha256, *names]).encode()).hexdigest(),
        asks=f"import {', '.join(names[:_NAMES])}{more}?",
        all_of="in all cells",
        shown=tuple(shown),
    )


def of_start() -> ApprovalRequest:
    """Return what a kernel asks for whose policy has mode unsafe."""
    subject = "mode unsafe"
    return ApprovalRequest(
        of="start",
        subjects=(subject,),
        sha256=hashlib.sha256(subject.encode()).hexdigest(),
        asks=f"start with {subject}?",
        all_of="all that it runs",
        shown=("  what cells say is not checked; what their process may do is bounded as ever",),
    )


def of_keeping(
    changes: Sequence[Change], digests: Mapping[str, str], paths: Collection[str]
) -> ApprovalRequest:
    """Return what keeping these changes asks for; ``digests`` are of the files, ``paths`` as asked.

    Many files are shown by their folders.
    """
    exactly = "".join(
        f"{one.kind}\0{one.name}\0{one.size}\0{digests.get(one.name, '')}\0" for one in changes
    )
    lines = list[str]()
    if len(changes) <= MOST_LINES:
        for one in changes:
            text = one.name if one.size is None else f"{one.name}, {size(one.size)}"
            lines += [*laid_out(one.kind, exact(text)), *letters(one.name)]
    if not lines or len(lines) > MOST_LINES:
        lines = list(_folder_lines(changes))
    return ApprovalRequest(
        of="keep",
        subjects=tuple(paths) or ("all",),
        sha256=hashlib.sha256(exactly.encode("utf-8", "surrogateescape")).hexdigest(),
        asks=f"keep {count(len(changes), 'staged file')}?",
        all_of="",
        shown=tuple(lines[:MOST_LINES]),
        whole=len(lines) <= MOST_LINES,
    )


def _folder_lines(changes: Iterable[Change]) -> Iterator[str]:
    files, sizes = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for one in changes:
        key = one.name.rpartition("/")[0], one.kind
        files[key] += 1
        sizes[key] += one.size or 0
    for (folder, kind), number in sorted(files.items()):
        text = f"{count(number, 'file')} in {folder}, {size(sizes[folder, kind])}"
        yield from (*laid_out(kind, exact(text)), *letters(folder))
