"""The files that PATHS name, and the cells of notebooks; and writing the file of a report.

**Finding files.** In a folder, these are the notebooks (``.ipynb``) and scripts (``.py``), each
once and in a stable order. Hidden files and folders are left out, among them Jupyter's checkpoints
and version control. A path that is named itself is checked, or is a problem.

**Opening files.** The author of a checkout may have put a link in the place of a file or folder:
to something that only the user can read, or that should not be overwritten. So a file is opened
beneath the folder that was named, part by part, and no link is followed. A report isn't written
through a link either.

**Reading notebooks.** ``read_notebook`` is the one reader of notebooks, for check, run and cluster.
It reads them like nbformat, so that no other reader takes the same bytes for a different notebook.
Where two readers could differ, the notebook is refused: a key that occurs twice in an object, a
format that is not a number, a cell of an unknown type. JSON is what Python's ``json`` accepts,
including NaN. The reader is pure: notebooks of formats before 4 are upgraded by a function that the
caller hands in (`host.files.upgraded`, which runs nbformat in a process with limits).
"""

from __future__ import annotations

import errno
import io
import json
import os
import re
import tokenize
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import accumulate
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Final

from cellblock.batch.verdict import MAX_FILE_BYTES, FileKind, Problem
from cellblock.descriptors import closing, read_regular
from cellblock.render.text import clip, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


KINDS: Final = {".ipynb": FileKind.notebook, ".py": FileKind.script}
NOTHING_FOUND: Final = "there is no notebook or script there"
WRONG_KIND: Final = "neither a notebook (.ipynb) nor a script (.py)"
LINK: Final = "is a link, and links are not followed: name what it leads to"
NO_FILE: Final = "is not a regular file"
_READ_FLAGS: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_WRITE_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOCTTY | os.O_CLOEXEC
#: Folders whose links belong to the system, such as ``/dev/stdout``: these are followed.
_SYSTEM_FOLDERS: Final = ("/dev/", "/proc/")


class NoFileError(Exception):
    """The error for a path to check that is not a regular file. Its text continues a sentence."""


@dataclass(frozen=True, slots=True)
class File:
    """A file to check.

    ``root`` is the folder that was named, or the folder of the file that was named. ``shown`` is
    the path that messages have: relative to the current folder if the file lies in that.
    """

    path: Path
    shown: str
    kind: FileKind
    root: Path


def find(paths: Sequence[str], exclude: Sequence[str]) -> tuple[list[File], list[Problem]]:
    """Return the files that ``paths`` name, without excluded ones, and problems with paths.

    A path at which there is nothing to check is a problem, unless it is excluded.
    """
    files = dict[str, File]()
    problems = list[Problem]()
    for path in paths:
        problems_before = len(problems)
        beneath = list(_files_beneath(Path(path), problems, exclude))
        if (
            not beneath
            and len(problems) == problems_before
            and not _excluded(shown(Path(path)), exclude)
        ):
            problems.append(Problem(shown(Path(path)), NOTHING_FOUND))
        for found_file in beneath:
            # Two paths to the same name in the same folder are one file; two names are two files,
            # even if one is a link to the other.
            identity = f"{os.path.realpath(found_file.path.parent)}/{found_file.path.name}"
            files.setdefault(identity, found_file)
    return sorted(files.values(), key=lambda file: PurePath(file.shown).parts), problems


def absolute(path: str | Path) -> str:
    """Return an absolute, normalised path, without resolving links."""
    return os.path.normpath(Path(path).absolute())


def shown(path: Path) -> str:
    """Return a path as messages show it: relative to the current folder if it lies in that."""
    whole = absolute(path)
    current_folder = absolute("")
    if whole == current_folder or whole.startswith(current_folder.rstrip("/") + "/"):
        return os.path.relpath(whole, current_folder)
    return whole if path.is_absolute() else os.path.normpath(path)


def read(file: File) -> bytes:
    """Return the content of a regular file, at most one byte more than `MAX_FILE_BYTES`.

    Raise NoFileError if the path leads through a link below its root, or to another kind of file.
    Raise OSError if it can't be read.
    """
    *folders, name = file.path.relative_to(file.root).parts
    folder_fd = os.open(file.root, _FOLDER_FLAGS)
    try:
        for folder in folders:
            below = os.open(folder, _FOLDER_FLAGS | os.O_NOFOLLOW, dir_fd=folder_fd)
            os.close(folder_fd)
            folder_fd = below
        descriptor = os.open(name, _READ_FLAGS, dir_fd=folder_fd)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise NoFileError(LINK) from None
        raise
    finally:
        os.close(folder_fd)
    with closing(descriptor):
        content = read_regular(descriptor, MAX_FILE_BYTES + 1)
    if content is None:
        raise NoFileError(NO_FILE)
    return content


def write_report(path: Path, text: str) -> None:
    """Write the file of a report, with lone surrogates escaped. Raise OSError."""
    follows = absolute(path).startswith(_SYSTEM_FOLDERS)
    try:
        descriptor = os.open(path, _WRITE_FLAGS if follows else _WRITE_FLAGS | os.O_NOFOLLOW, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "it is a link, and links are not followed") from None
        raise
    with os.fdopen(descriptor, "wb") as file:
        file.write(text.encode("utf-8", "backslashreplace"))


def _files_beneath(path: Path, problems: list[Problem], exclude: Sequence[str]) -> Iterator[File]:
    """Yield the files that a path names, unless they are excluded. Add to ``problems``."""
    if path.is_dir():
        yield from _walk(path, problems, exclude)
    elif not os.path.lexists(path):
        problems.append(Problem(shown(path), "no such file or folder"))
    elif path.suffix.lower() not in KINDS:
        problems.append(Problem(shown(path), WRONG_KIND))
    elif not _excluded(shown(path), exclude):
        yield File(path, shown(path), KINDS[path.suffix.lower()], path.parent)


def _walk(folder: Path, problems: list[Problem], exclude: Sequence[str]) -> Iterator[File]:
    """Yield the notebooks and scripts in a folder and its subfolders."""

    def on_error(error: OSError) -> None:
        path = shown(Path(os.fsdecode(error.filename)))
        problems.append(Problem(path, f"can't be listed: {error.strerror}"))

    def included(names: list[str]) -> list[str]:
        visible_names = (name for name in sorted(names) if name[0] != ".")
        return [name for name in visible_names if not _excluded(shown(current / name), exclude)]

    for root, folders, names in os.walk(folder, onerror=on_error):
        current = Path(root)
        folders[:] = included(folders)
        for name in included([name for name in names if PurePath(name).suffix.lower() in KINDS]):
            path = current / name
            yield File(path, shown(path), KINDS[path.suffix.lower()], folder)


def _excluded(name: str, exclude: Sequence[str]) -> bool:
    """Return whether a pattern matches the path, a folder above it, or the name of either."""
    parts = PurePath(name).parts
    paths = ["/".join(parts[: depth + 1]) for depth in range(len(parts))]
    return any(fnmatchcase(text, pattern) for pattern in exclude for text in (*paths, *parts))


# --- notebooks and scripts ------------------------------------------------------------------------

#: Values in a notebook, for callers whose memory nothing else bounds: while it parses, Python takes
#: about 100 bytes for each.
MAX_VALUES: Final = 2_000_000
_FORMAT: Final = 4
_CELL_TYPES: Final = frozenset({"code", "markdown", "raw"})
#: The declared encodings of scripts that UTF-8 decodes like Python does.
_UTF8_NAMES: Final = frozenset({"ascii", "us-ascii", "utf-8", "utf-8-sig"})
#: Characters of the text of an UnreadableError.
_MAX_REASON: Final = 200


class UnreadableError(Exception):
    """The error for a file that is not a valid notebook or script.

    ``why`` continues a sentence about the file, or about its cell number ``cell`` if that is not 0.
    ``str`` of the error continues a sentence about the file in any case, in one line that can be
    shown. ``line`` counts from 1 and ``column`` from 0, as in a finding.
    """

    def __init__(
        self,
        why: str,
        *,
        line: int = 1,
        column: int | None = None,
        cell: int = 0,
        about_file: str = "",
    ) -> None:
        self.why = why
        self.line = line
        self.column = column or 0
        self.cell = cell
        position = f": cell {cell}" if cell else ""
        position += "" if column is None else f" (line {line}, column {column + 1})"
        super().__init__(clip(visible(about_file or why), _MAX_REASON - len(position)) + position)


@dataclass(frozen=True, slots=True)
class NotebookFile:
    """A notebook of format 4 as parsed JSON.

    It has a list of cells of known types, and the source of each is one string. ``text`` is the
    file's text, or "" if the notebook was upgraded from an older format.
    """

    document: dict[str, Any]
    text: str

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata of the notebook."""
        metadata: dict[str, Any] = self.document.get("metadata", {})
        return metadata

    @property
    def code_cells(self) -> list[tuple[int, str]]:
        """The number and source of each code cell. Numbers count cells of all types, from 1."""
        return [
            (number, cell["source"])
            for number, cell in enumerate(self.document["cells"], 1)
            if cell["cell_type"] == "code"
        ]


def read_notebook(
    content: bytes, upgrade: Callable[[bytes], bytes], *, max_values: int | None = None
) -> NotebookFile:
    """Return the notebook in a file's content.

    ``upgrade`` returns a notebook of an older format in format 4, or raises ValueError.
    ``max_values`` bounds the number of values in the notebook, for callers whose memory nothing
    else bounds.

    Raises:
        UnreadableError: it is not a notebook, or exceeds a bound.
        MemoryError: it takes more memory than there is.

    """
    text = _decode(content, max_values)
    document = _parse(text)
    major = document.get("nbformat", 1)
    if type(major) is not int:
        raise UnreadableError("does not say which format it has (nbformat)")
    if major > _FORMAT:
        raise UnreadableError(f"has format {major}, and cellblock reads formats up to {_FORMAT}")
    if major < _FORMAT:
        try:
            content, text = upgrade(content), ""
        except ValueError:
            raise UnreadableError("has an older format, and nbformat can't convert it") from None
        document = _parse(_decode(content, max_values))
    cells = document.get("cells")
    if type(cells) is not list:
        raise UnreadableError("is not a notebook: it has no list of cells")
    if type(document.get("metadata", {})) is not dict:
        raise UnreadableError("is not a notebook: its metadata is not a JSON object")
    for number, cell in enumerate(cells, 1):
        _check_cell(cell, number)
    return NotebookFile(document, text)


def read_script(content: bytes) -> str:
    """Return a script's text as Python reads it. Raise UnreadableError."""
    try:
        declared, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
    except (LookupError, SyntaxError) as error:
        raise UnreadableError(f"is not text: {error.args[0]}") from None
    if declared not in _UTF8_NAMES:
        raise UnreadableError(f"declares the encoding {declared}, and only UTF-8 is read")
    return _decode(content.removeprefix(b"\xef\xbb\xbf"))


def _decode(content: bytes, max_values: int | None = None) -> str:
    if len(content) > MAX_FILE_BYTES:
        raise UnreadableError(f"is larger than {MAX_FILE_BYTES >> 20} MiB")
    # Counted before parsing, as an upper bound: strings may have these characters too.
    if max_values is not None and sum(map(content.count, (b",", b"[", b"{"))) > max_values:
        raise UnreadableError(f"holds more than {max_values:,} values")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UnreadableError("is not UTF-8 text", line=line) from None


def _parse(text: str) -> dict[str, Any]:
    try:
        data = json.loads(text, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        why = f"is not JSON: {error.msg}"
        raise UnreadableError(why, line=error.lineno, column=error.colno - 1) from None
    except ValueError as error:  # a number of thousands of digits
        raise UnreadableError(f"is not JSON that Python can read: {error}") from None
    except RecursionError:
        raise UnreadableError("is nested too deeply") from None
    if type(data) is not dict:
        raise UnreadableError("is not a notebook: it is not a JSON object")
    return data


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object. Raise UnreadableError if it has a key twice: readers differ then."""
    members = dict(pairs)
    if len(members) == len(pairs):
        return members
    keys = Counter(key for key, _ in pairs)
    duplicate = keys.most_common(1)[0][0][:40]
    raise UnreadableError(f'has the key "{duplicate}" twice in one object')


def _check_cell(cell: Any, number: int) -> None:
    """Join a cell's source into one string. Raise UnreadableError if it is not a valid cell."""
    kind = cell.get("cell_type") if type(cell) is dict else None
    if type(kind) is not str or kind not in _CELL_TYPES:
        raise UnreadableError(
            "is of no known type", cell=number, about_file="has a cell of no known type"
        )
    source = cell.get("source")
    if type(source) is list and all(type(part) is str for part in source):
        source = cell["source"] = "".join(source)
    if type(source) is not str:
        raise UnreadableError(
            "has no text as its source",
            cell=number,
            about_file="has a cell without text as its source",
        )


# --- positions in a notebook's text ---------------------------------------------------------------
# Positions are needed only if there are findings, and then the text is known to be valid JSON. So
# nothing is checked here.

#: A bracket, or a string, which is a key if a colon follows. The possessive quantifiers never try a
#: character again, so that a long string takes no memory.
_TOKEN: Final = re.compile(r'("(?:[^"\\]++|\\.)*+")([ \t\n\r]*+:)?|[][{}]')
_LINE_END: Final = re.compile(r"\r\n|\r|\n")


def _strings(text: str) -> Iterator[tuple[tuple[str | int, ...], bool, re.Match[str]]]:
    """Yield each string of a JSON text, with its path and whether it is a key.

    A path has the keys and item numbers from the outermost value to the string; a key is the last
    part of its own path. Item numbers grow within a list, but only strings and containers count.
    """
    path = list[str | int]()
    for token in _TOKEN.finditer(text):
        closes = token[0] in "]}"
        is_key = token[2] is not None
        if closes:
            path.pop()
        elif path and not is_key and isinstance(path[-1], int):
            path[-1] += 1
        if token[0] in "[{":
            path.append(0 if token[0] == "[" else "")
        elif is_key:
            path[-1] = json.loads(token[1])
        if token[1]:
            yield tuple(path), is_key, token


class CellLines:
    """The places of the cells' lines in the text of a notebook of format 4."""

    def __init__(self, text: str) -> None:
        #: For each cell, the strings of its source, each with its line in the text.
        self._cells: dict[int | str, list[tuple[int, str]]] = {}
        line = 1
        counted = 0
        for path, is_key, token in _strings(text):
            if not is_key and path[::2][:2] == ("cells", "source"):
                line += text.count("\n", counted, token.start())
                counted = token.start()
                self._cells.setdefault(path[1], []).append((line, json.loads(token[1])))

    def file_line(self, cell: int, line: int) -> int:
        """Return the line in the file of a cell's line, or 0 if unknown. Lines count from 1."""
        parts = self._cells.get(cell)
        if not parts:
            return 0
        ends = list(accumulate(len(text) for _, text in parts))
        source = "".join(text for _, text in parts)
        starts = [0, *(match.end() for match in _LINE_END.finditer(source))]
        start = starts[min(line, len(starts)) - 1]
        return parts[min(bisect_right(ends, start), len(parts) - 1)][0]


def key_position(text: str, keys: Sequence[str]) -> tuple[int, int, int]:
    """Return the line of the innermost of nested ``keys`` that the text has, and its columns.

    Lines count from 1. If the text is empty or has none of the keys, the position is its start.
    """
    position = (1, 0, 1)
    depth = 0
    for path, is_key, token in _strings(text):
        if is_key and len(path) > depth and path == tuple(keys[: len(path)]):
            start, end = token.span(1)
            begins = text.rfind("\n", 0, start) + 1
            position = text.count("\n", 0, start) + 1, start - begins, end - begins
            depth = len(path)
    return position
