"""Requests for consent: what exactly is asked for, and the lines that show it.

A request is bound to its content by a hash. A call that its lines can't show whole can't be allowed
once, but only for the session or always, since those grants are for a tool whatever its arguments.
A request to keep files that can't be shown whole isn't put at all.
"""

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


#: The kinds of requests.
Of = Literal["call", "import", "keep", "start"]
#: The most lines that are shown of a request. If a call's arguments take more, so many of the first
#: and of the last are shown.
MOST_LINES: Final = 40
_HEAD, _TAIL = 12, 4
#: The most bytes of arguments that are shown whole.
MOST_BYTES: Final = 64 << 10
#: Characters of a name, and names of imports, in the question's first line.
_LONGEST_NAME: Final = 60
_MOST_NAMES: Final = 4
_COLUMNS: Final = 76
#: The least number of consecutively numbered names that are shown as a series.
_LEAST_SERIES: Final = 3
_DIGITS: Final = "0123456789"
_PLAIN_NAME: Final = re.compile(r"[^\s,…()'\"]+")
#: The start of a line that continues a list of columns, fields or names.
_HANGING_INDENT: Final = " " * 8
_POSITIONAL, _REST = (0, 1), 2


class ApprovalRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request for the user's consent.

    ``subjects`` are the names that a lasting grant is for; ``sha256`` is the hash of exactly this
    request. ``asks`` completes the question "may cell …", ``all_of`` says what a lasting grant
    allows. ``shown`` are the lines that describe the request; unless it is shown ``whole``, it
    can't be allowed once. Of a call, ``tool`` is what is called with the encoded ``arguments``, and
    ``carries`` are the credentials that it sends along.
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
    """Return the request of a call; None if its arguments can't be decoded.

    Its lines are added by ``with_lines``, which takes time; most calls are decided without them.
    """
    tool = call.tool
    encoded = bytes(call.arguments)
    try:
        _decode(encoded)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return None
    name = exact(clip(tool.name, _LONGEST_NAME))
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


def with_lines(approval_request: ApprovalRequest) -> ApprovalRequest:
    """Return a request with the lines that show it. For a call they take up to 0.1 s."""
    if approval_request.tool is None:
        return approval_request
    whole = approval_request.whole
    tables = list[ShownTable]()
    lines = [
        f"  it carries your key {key}, which the cell does not see"
        for key in approval_request.carries
    ]
    try:
        arguments, tables = _decode(approval_request.arguments)
        lines += _argument_lines(approval_request.tool, arguments)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        whole = False  # the nesting was just shallow enough for ``of_call``, but not for this
    whole = whole and len(lines) <= MOST_LINES and all(table.whole for table in tables)
    lines_shown = (
        lines
        if whole
        else _first_and_last(lines, len(approval_request.arguments), approval_request.sha256)
    )
    return replace(approval_request, shown=tuple(lines_shown), whole=whole)


def _first_and_last(lines: Sequence[str], size: int, digest: str) -> Iterator[str]:
    """Yield the first and last lines, and why the request can't be allowed once."""
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

    If they are too long to be shown whole, return only those arguments that are tables. Raises
    msgspec.MsgspecError, RecursionError, ValueError.
    """
    tables = list[ShownTable]()

    def table(code: int, content: memoryview) -> ShownTable:
        tables.append(ShownTable(arrays.table_frame(code, content)))
        return tables[-1]

    if len(encoded) <= MOST_BYTES:
        args, kwargs = msgspec.msgpack.Decoder(_Arguments, ext_hook=table).decode(encoded)
        return [*enumerate(args), *kwargs.items()], tables
    raws, named_raws = _split(encoded)
    decode = msgspec.msgpack.Decoder(ext_hook=table).decode
    items: list[tuple[int | str, msgspec.Raw]] = [*enumerate(raws), *named_raws.items()]
    only = [(key, decode(raw)) for key, raw in items if bytes(memoryview(raw)[:1]) in _EXTENSIONS]
    return only, tables


def _argument_lines(tool: Tool, arguments: Iterable[tuple[int | str, Any]]) -> Iterator[str]:
    """Yield the lines of each argument."""
    names = [exact(each.name) for each in tool.parameters if each.kind in _POSITIONAL]
    rest = [exact(each.name) for each in tool.parameters if each.kind == _REST]
    for key, value in arguments:
        if isinstance(key, int):
            beyond = f"{rest[0]}[{key - len(names)}]" if rest else f"argument {key + 1}"
            name, secret = names[key] if key < len(names) else beyond, is_secret_at(tool, key)
        else:
            plain = key.isascii() and key.isidentifier() and len(key) <= _LONGEST_NAME
            name, secret = key if plain else exact(repr(key)), is_secret_named(tool, key)
        yield from _lines_of_argument(name, value, secret=secret)


def _lines_of_argument(name: str, value: Any, *, secret: bool) -> Iterator[str]:
    """Yield the lines of one argument; a secret's value is masked."""
    if secret:
        yield f"  {name} = {MASK}, kept out of sight: the tool calls it secret"
        return
    if isinstance(value, ShownTable):
        (head, _), *sections = value.parts()
        yield from laid_out(name, exact(head))
        for start, items in sections:
            yield from _listed(start, [exact(item) for item in items])
        yield from letters("".join(item for _, items in sections for item in items))
        return
    text = repr(value)
    yield from laid_out(name, exact(text))
    yield from letters(text)


def _listed(start: str, items: Sequence[str], indent: str = "    ") -> Iterator[str]:
    """Yield lines with a text and all items after it: as many items in each line as fit whole."""
    room = _COLUMNS - len(_HANGING_INDENT) - len(", ")
    line = start
    margin = indent
    for number, item in enumerate(items, 1):
        if number > 1 and width(line) + width(item) > room:
            yield from broken(line.rstrip(" "), margin, _HANGING_INDENT, columns=_COLUMNS)
            line = ""
            margin = _HANGING_INDENT
        line += item if number == len(items) else f"{item}, "
    yield from broken(line, margin, _HANGING_INDENT, columns=_COLUMNS)


def of_imports(imports: Iterable[Import], sha256: str) -> ApprovalRequest:
    """Return the request of a cell to make these imports. ``sha256`` is the cell's hash."""
    listed = tuple(imports)
    lines = list[str]()
    for each in listed:
        form = "as it is" if each.kind == "package" else "by its public names"
        lines += laid_out(each.kind, exact(each.name))
        lines += wrap(f"{form}; {each.why}", indent="      ", columns=_COLUMNS)
        lines += letters(each.name)
    names = [exact(each.name) for each in listed]
    more = " and more" if len(names) > _MOST_NAMES else ""
    return ApprovalRequest(
        of="import",
        subjects=tuple(each.name for each in listed),
        sha256=hashlib.sha256("\0".join([sha256, *names]).encode()).hexdigest(),
        asks=f"import {', '.join(names[:_MOST_NAMES])}{more}?",
        all_of="in all cells",
        shown=tuple(lines),
    )


def of_start() -> ApprovalRequest:
    """Return the request for approval that a kernel makes before it starts with mode unsafe."""
    subject = "mode unsafe"
    return ApprovalRequest(
        of="start",
        subjects=(subject,),
        sha256=hashlib.sha256(subject.encode()).hexdigest(),
        asks=f"start with {subject}?",
        all_of="all that it runs",
        shown=("  the source of cells is not checked; all other limits stay as they are",),
    )


def of_keeping(
    changes: Sequence[Change], digests: Mapping[str, str], paths: Collection[str]
) -> ApprovalRequest:
    """Return the request to keep these changes.

    ``digests`` are of the staged files by name, ``paths`` those that the cell named. Each file must
    be shown by its name, or the request is not ``whole``: what a file does to other programs
    depends on its name. Many new files are shown folder by folder, numbered ones as a series.
    """
    exactly = "".join(
        f"{each.kind}\0{each.name}\0{each.size}\0{digests.get(each.name, '')}\0" for each in changes
    )
    new = [each for each in changes if each.kind == "new"]
    # The user's own files that change or are deleted come first, a line each.
    users = list(
        islice(_file_lines(each for each in changes if each.kind != "new"), MOST_LINES + 1)
    )
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
    """Return why one question can't ask about keeping all of these, and what to do instead."""
    return (
        f"{count(len(changes), 'staged file')} can't be asked about at once: a question has "
        f"{MOST_LINES} lines, and names each file; `cellblock changes` in a terminal lists them. "
        "Keep fewer paths at once"
    )


def _file_lines(changes: Iterable[Change]) -> Iterator[str]:
    for change in changes:
        text = change.name if change.size is None else f"{change.name}, {size(change.size)}"
        yield from (*laid_out(change.kind, exact(text)), *letters(change.name))


def _folder_lines(changes: Iterable[Change]) -> Iterator[str]:
    """Yield lines with the names of files, folder by folder.

    If the names need more than ``MOST_LINES`` lines, some names may be missing, but always more
    than ``MOST_LINES`` lines are yielded: by that the caller sees that it can't show all.
    """
    names = defaultdict[str, list[str]](list)
    sizes = Counter[str]()
    for change in changes:
        folder, _, name = change.name.rpartition("/")
        names[folder].append(name)
        sizes[folder] += change.size or 0
    for folder, within in sorted(names.items()):
        start = f"new in {exact(folder)}/, {count(len(within), 'file')}, {size(sizes[folder])}: "
        items = list[str]()
        room = MOST_LINES * _COLUMNS
        for item in _in_series(within):
            items.append(item)
            room -= len(item)
            if room < 0:
                break
        yield from _listed(start, items, indent="  ")
        if room < 0:  # some names are left out, so the lines must be too many in any case
            yield from repeat("  …", MOST_LINES + 1)
            return
        yield from letters("".join(sorted(set(folder).union(*within))))


def _in_series(names: Iterable[str]) -> Iterator[str]:
    """Yield names as they are shown; consecutively numbered ones, from three on, as a series."""
    series = list[str]()
    last = None
    for key in sorted(map(_numbered, names)):
        head, tail, digits, number = key
        if last != (head, tail, digits, number - 1):
            yield from _shown_series(series)
            series = []
        series.append(f"{head}{number:0{digits}}{tail}" if digits else head)
        last = key
    yield from _shown_series(series)


def _numbered(name: str) -> tuple[str, str, int, int]:
    """Split a name at its last number: the text before and after, the count of digits, the value.

    Without a number, the first text is the whole name, and count and value are 0. Takes linear
    time, without a regular expression, because a cell chose the name.
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
    """Return a name, quoted if it could be read as several names or as a series."""
    return exact(name if _PLAIN_NAME.fullmatch(name) else repr(name))
