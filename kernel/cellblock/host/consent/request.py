"""What is asked for: bound to exactly that by a hash, and shown whole or not allowed by itself."""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from itertools import islice, repeat
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
from msgspec.structs import replace

from cellblock.host.consent.shown_tables import ShownTable
from cellblock.host.services.tools.calls import MASK, is_secret_at, is_secret_named
from cellblock.render.cards import count, size
from cellblock.render.text import broken, clip, exact, laid_out, letters, width, wrap
from cellblock.wire import arrays

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
#: Names, numbered one by one, that are shown as a series.
_LEAST_SERIES: Final = 3
_DIGITS: Final = "0123456789"
_PLAIN_NAME: Final = re.compile(r"[^\s,…()'\"]+")
#: How a line begins that goes on with columns, fields or names.
_HANGING: Final = " " * 8
_POSITIONAL, _REST = (0, 1), 2


class ApprovalRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Something that takes the user's consent.

    ``subjects`` are what a lasting grant is of; ``sha256`` is of exactly what is asked. ``shown``
    are lines; what is not shown ``whole`` can't be allowed once. ``asks`` completes "may cell …",
    and ``all_of`` is what a lasting grant lets pass. ``arguments`` are a call's, encoded, and
    ``tool`` what is called; it sends the keys ``carries`` along.
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
    carries: tuple[str, ...] = ()


def of_call(call: Call) -> ApprovalRequest | None:
    """Return what a call asks for; None where its arguments are no data that can be shown.

    What is shown of them takes ``with_lines``: most calls are decided without.
    """
    tool, encoded = call.tool, bytes(call.arguments)
    try:
        _decode(encoded)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return None
    name = exact(clip(tool.name, _NAME))
    keys = "".join(f"\0{key}" for key in call.carries)
    return ApprovalRequest(
        of="call",
        subjects=(tool.name,),
        sha256=hashlib.sha256(tool.name.encode() + b"\0" + encoded + keys.encode()).hexdigest(),
        asks=f"call {name}?",
        all_of=f"each call of {name}, whatever its arguments",
        whole=len(encoded) <= MOST_BYTES,
        arguments=encoded,
        tool=tool,
        carries=call.carries,
    )


def with_lines(wanted: ApprovalRequest) -> ApprovalRequest:
    """Return a request with what is shown of it: up to a tenth of a second's work for a call's."""
    if wanted.tool is None:
        return wanted
    whole, tables = wanted.whole, list[ShownTable]()
    lines = [f"  it carries your key {key}, which the cell does not see" for key in wanted.carries]
    try:
        arguments, tables = _decode(wanted.arguments)
        lines += _argument_lines(wanted.tool, arguments)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        whole = False  # nested deeper than this can follow, where ``of_call`` just could
    whole = whole and len(lines) <= MOST_LINES and all(one.whole for one in tables)
    shown = lines if whole else _ends(lines, len(wanted.arguments), wanted.sha256)
    return replace(wanted, shown=tuple(shown), whole=whole)


def _ends(lines: Sequence[str], size: int, digest: str) -> Iterator[str]:
    if len(lines) <= MOST_LINES:
        yield from lines
    else:
        yield from lines[:_HEAD]
        yield f"  … {len(lines) - _HEAD - _TAIL:,} more lines …"
        yield from lines[-_TAIL:]
    yield f"  It is too long to be shown whole: {size:,} bytes, request {digest[:16]}."
    yield "  So it can't be allowed by itself."


_Arguments = tuple[list[Any], dict[str, Any]]
_RawArguments = tuple[list[msgspec.Raw], dict[str, msgspec.Raw]]
_split: Final = msgspec.msgpack.Decoder(_RawArguments).decode
#: The first bytes of msgpack's extensions with 8, 16 and 32 bits of length.
_EXTENSIONS: Final = (b"\xc7", b"\xc8", b"\xc9")


def _decode(encoded: bytes) -> tuple[list[tuple[int | str, Any]], list[ShownTable]]:
    """Return a call's arguments by position or name, and the tables in them.

    Of what is too long to be shown whole it is only the arguments that are tables. Raises
    msgspec.MsgspecError, RecursionError, ValueError.
    """
    tables = list[ShownTable]()

    def table(code: int, content: memoryview) -> ShownTable:
        tables.append(ShownTable(arrays.table_frame(code, content)))
        return tables[-1]

    if len(encoded) <= MOST_BYTES:
        args, kwargs = msgspec.msgpack.Decoder(_Arguments, ext_hook=table).decode(encoded)
        return [*enumerate(args), *kwargs.items()], tables
    raws, named = _split(encoded)
    decode = msgspec.msgpack.Decoder(ext_hook=table).decode
    each: list[tuple[int | str, msgspec.Raw]] = [*enumerate(raws), *named.items()]
    found = [(key, decode(raw)) for key, raw in each if bytes(memoryview(raw)[:1]) in _EXTENSIONS]
    return found, tables


def _argument_lines(tool: Tool, arguments: Iterable[tuple[int | str, Any]]) -> Iterator[str]:
    """Yield the lines of each argument."""
    names = [exact(one.name) for one in tool.parameters if one.kind in _POSITIONAL]
    rest = [exact(one.name) for one in tool.parameters if one.kind == _REST]
    for key, value in arguments:
        if isinstance(key, int):
            beyond = f"{rest[0]}[{key - len(names)}]" if rest else f"argument {key + 1}"
            name, secret = names[key] if key < len(names) else beyond, is_secret_at(tool, key)
        else:
            plain = key.isascii() and key.isidentifier() and len(key) <= _NAME
            name, secret = key if plain else exact(repr(key)), is_secret_named(tool, key)
        yield from _shown(name, value, secret=secret)


def _shown(name: str, value: Any, *, secret: bool) -> Iterator[str]:
    if secret:
        yield f"  {name} = {MASK}, kept out of sight: the tool calls it secret"
        return
    if isinstance(value, ShownTable):
        (head, _), *parts = value.parts()
        yield from laid_out(name, exact(head))
        for begins, items in parts:
            yield from _listed(begins, [exact(one) for one in items])
        yield from letters("".join(item for _, items in parts for item in items))
        return
    text = repr(value)
    yield from laid_out(name, exact(text))
    yield from letters(text)


def _listed(begins: str, items: Sequence[str], indent: str = "    ") -> Iterator[str]:
    """Yield lines with all of the items: as many whole ones in each as there is room for."""
    room = _COLUMNS - len(_HANGING) - len(", ")
    line, start = begins, indent
    for number, item in enumerate(items, 1):
        if number > 1 and width(line) + width(item) > room:
            yield from broken(line.rstrip(" "), start, _HANGING, columns=_COLUMNS)
            line, start = "", _HANGING
        line += item if number == len(items) else f"{item}, "
    yield from broken(line, start, _HANGING, columns=_COLUMNS)


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

    Each file is shown by its name, or not all is shown ``whole``: its name is what other programs
    act on. Many new files stand there folder by folder, numbered ones as a series.
    """
    exactly = "".join(
        f"{one.kind}\0{one.name}\0{one.size}\0{digests.get(one.name, '')}\0" for one in changes
    )
    new = [one for one in changes if one.kind == "new"]
    users = list(islice(_file_lines(one for one in changes if one.kind != "new"), MOST_LINES + 1))
    lines = users + list(islice(_file_lines(new), MOST_LINES + 1))
    if len(lines) > MOST_LINES:
        lines = users + list(islice(_folder_lines(new), MOST_LINES + 1))
    return ApprovalRequest(
        of="keep",
        subjects=tuple(paths) or ("all",),
        sha256=hashlib.sha256(exactly.encode("utf-8", "surrogateescape")).hexdigest(),
        asks=f"keep {count(len(changes), 'staged file')}?",
        all_of="",
        shown=tuple(lines[:MOST_LINES]),
        whole=len(lines) <= MOST_LINES,
    )


def too_many(changes: Collection[Change]) -> str:
    """Return why keeping these can't be asked about at once, and what to do instead."""
    return (
        f"{count(len(changes), 'staged file')} can't be asked about at once: a question has "
        f"{MOST_LINES} lines, and names each file; `cellblock changes` in a terminal lists them. "
        "Keep fewer paths at once"
    )


def _file_lines(changes: Iterable[Change]) -> Iterator[str]:
    for one in changes:
        text = one.name if one.size is None else f"{one.name}, {size(one.size)}"
        yield from (*laid_out(one.kind, exact(text)), *letters(one.name))


def _folder_lines(changes: Iterable[Change]) -> Iterator[str]:
    """Yield lines with the names of files, folder by folder; no more than too many."""
    names, sizes = defaultdict[str, list[str]](list), Counter[str]()
    for one in changes:
        folder, _, name = one.name.rpartition("/")
        names[folder].append(name)
        sizes[folder] += one.size or 0
    for folder, within in sorted(names.items()):
        begins = f"new in {exact(folder)}/, {count(len(within), 'file')}, {size(sizes[folder])}: "
        items, room = list[str](), MOST_LINES * _COLUMNS
        for item in _in_series(within):
            items.append(item)
            room -= len(item)
            if room < 0:
                break
        yield from _listed(begins, items, indent="  ")
        if room < 0:  # however wide they are: not all of them are there
            yield from repeat("  …", MOST_LINES + 1)
            return
        yield from letters("".join(sorted(set(folder).union(*within))))


def _in_series(names: Iterable[str]) -> Iterator[str]:
    """Yield names as they are shown; three or more that are numbered one by one as a series."""
    series, last = list[str](), None
    for key in sorted(map(_numbered, names)):
        head, tail, digits, number = key
        if last != (head, tail, digits, number - 1):
            yield from _shown_series(series)
            series = []
        series.append(f"{head}{number:0{digits}}{tail}" if digits else head)
        last = key
    yield from _shown_series(series)


def _numbered(name: str) -> tuple[str, str, int, int]:
    """Return what is before and behind a name's last number, and its digits; these are 0 if none.

    In time by the name's length: a cell chose it.
    """
    end = max(map(name.rfind, _DIGITS)) + 1
    head = name[:end].rstrip(_DIGITS)
    digits = name[len(head) : end]
    return (head, name[end:], len(digits), int(digits)) if digits else (name, "", 0, 0)


def _shown_series(names: Sequence[str]) -> Iterator[str]:
    if len(names) < _LEAST_SERIES:
        yield from map(_shown_name, names)
    else:
        yield f"{_shown_name(names[0])} … {_shown_name(names[-1])} ({len(names):,})"


def _shown_name(name: str) -> str:
    """Return a name that can't be read as several, or as a series."""
    return exact(name if _PLAIN_NAME.fullmatch(name) else repr(name))
