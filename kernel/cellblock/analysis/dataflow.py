"""What a cell does with names, told from its source alone.

`Bindings` says which it would bind, and which it reads: for cells that come after a refused one.
Only roughly: what ``exec`` or ``import *`` binds is not seen, and a name that a function reads
counts where the function is defined.

`RepeatableCells` says which come out the same when they are run a second time, as far as their
words say it. A killed session is brought back from its last copy, and the cells since are run again
there, unheard (ADR 0148). That is right for a cell whose result follows from the variables before
it. Not so where it asks what is different the next time. Files that it uses, processes, threads and
random numbers of the operating system's are seen while it runs (``guest.audit_hook``); clocks and
the addresses of objects can't be, so the cell's own words are looked at. More cells are taken out
than need be: a word in a comment counts, too. Not seen is a clock that a library looks at by
itself.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from cellblock.analysis.findings import word_set
from cellblock.analysis.magics import code_of
from cellblock.analysis.transform import parse

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Nodes with names of their own; what is in a class is its attribute.
_SCOPES: Final = (
    ast.AsyncFunctionDef,
    ast.ClassDef,
    ast.DictComp,
    ast.FunctionDef,
    ast.GeneratorExp,
    ast.Lambda,
    ast.ListComp,
    ast.SetComp,
)
#: Statements in which values are read before names are bound.
_READ_FIRST: Final = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr)


class Bindings:
    """The names that a cell binds at its top level, and those that it reads before it does."""

    def __init__(self, source: str) -> None:
        self.bound, self.read = set[str](), set[str]()
        self._follow(source)

    def _follow(self, source: str) -> None:
        try:
            statements = parse(source).body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return
        for statement in statements:
            if (code := code_of(statement)) is not None:
                self._follow(code)
                continue
            bound, read = set(_bound(statement)), _read(statement)
            own = set[str]() if isinstance(statement, _READ_FIRST) else bound
            self.read |= read - self.bound - own
            self.bound |= bound


def _bound(statement: ast.stmt) -> Iterator[str]:
    nodes: list[ast.AST] = [statement]
    while nodes:
        node = nodes.pop()
        if name := _bound_by(node):
            yield name
        if not isinstance(node, _SCOPES):
            nodes += ast.iter_child_nodes(node)


def _bound_by(node: ast.AST) -> str:
    """Return the name that a node by itself binds; "" for none."""
    match node:
        case (
            ast.Name(id=name, ctx=ast.Store())
            | ast.FunctionDef(name=name)
            | ast.AsyncFunctionDef(name=name)
            | ast.ClassDef(name=name)
            | ast.MatchAs(name=str(name))
            | ast.MatchStar(name=str(name))
            | ast.MatchMapping(rest=str(name))
        ):
            return name
        case ast.alias(name=name, asname=alias) if name != "*":
            return alias or name.partition(".")[0]
    return ""


def _read(statement: ast.stmt) -> set[str]:
    read, local = set[str](), set[str]()
    nodes: list[tuple[ast.AST, bool]] = [(statement, False)]
    while nodes:
        node, inside = nodes.pop()
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                read.add(name)
            case ast.Name(id=name, ctx=ast.Del()) | ast.arg(arg=name) if inside:
                local.add(name)
            case ast.ExceptHandler(name=str(name)) if inside:
                local.add(name)
            case ast.AugAssign(target=ast.Name(id=name)):
                read.add(name)
            case _ if inside and (name := _bound_by(node)):
                local.add(name)
        inside = inside or isinstance(node, _SCOPES)
        nodes += ((part, inside) for part in ast.iter_child_nodes(node))
    return read - local


# --- whether a cell can be run again --------------------------------------------------------------

#: Words that ask a clock, for an address, for a seed of the operating system's or about files; and
#: what reads, writes or waits where no event tells of it.
_WORDS: Final = word_set("""
    access asctime cffi clock_gettime communicate cryptography ctime ctypes CURRENT_TIMESTAMP
    current_timestamp default_timer exists formatdate get_native_id getatime getctime getmtime
    getpid getrandom getrusage getsize glob gmtime h5py hash id is_dir is_file is_mount is_symlink
    isdir isfile lexists localtime lstat make_msgid memmap mmap monotonic monotonic_ns native_id now
    OSFile perf_counter perf_counter_ns polars poll Popen process_time process_time_ns psutil
    pyarrow RAND_bytes Random randomblob readline readlines recv recvfrom rglob samefile
    shared_memory stat stdin stdout strftime thread_time time_ns timeit times to_feather to_hdf
    to_orc to_parquet today utcnow uuid1 which
""")
#: These do where they are called, or called with nothing, and the clock of that name as a value;
#: otherwise they are names of columns.
_CALLS: Final = re.compile(
    r"\b(?:clock|time)\s*+\(|\btime\s*+\.\s*+time\b|\bseed\s*+\(\s*+(?:None\s*+)?\)"
)
_NAME: Final = re.compile(r"[^\W\d]\w*+")
#: What a cell binds that may ask for it: functions, classes, and names for what it imports. No
#: more is looked at for each word than a line has: a cell must not cost the host (P14).
_BOUND: Final = re.compile(
    r"\b(?:def|class|as)[ \t]++([^\W\d]\w*+)"
    r"|\b([^\W\d]\w*+)[ \t]*+(?::[^=\n]{0,80}+)?+=[ \t]*+(?:lambda\b|partial\b)"
)
_UNCALLED: Final = re.compile(r"\b[^\W\d]\w*+(?=[ \t]*+(?:[,)\]}]|$))")
#: A name for what a line says of a clock (``timer = time.time``, a table of functions).
_ASSIGNED: Final = re.compile(r"^[ \t]*+([^\W\d]\w*+)[ \t]*+(?::[^=\n]{0,80}+)?+=(?!=)")
_LONGEST_LINE: Final = 1_000
_IMPORTED: Final = re.compile(r"^[ \t]*+(?:from|import)\b", re.MULTILINE)
#: Characters of a cell, and names of functions, beyond which nothing is said to come out the same.
_MAX_CHARACTERS: Final = 20_000
_MAX_NAMES: Final = 1_000


class RepeatableCells:
    """Judges the cells of one session, each after it ran: a function of one may be another's."""

    def __init__(self) -> None:
        #: Functions and classes of cells that may ask a clock.
        self._functions = set[str]()

    def judge(self, source: str) -> bool:
        """Return whether ``source``, transformed, says of itself that it comes out the same."""
        if len(source) > _MAX_CHARACTERS or len(self._functions) > _MAX_NAMES:
            return False
        names = set(_NAME.findall(source))
        aliased = "as" in names and _IMPORTED.search(source) and names & {"clock", "time"}
        if _CALLS.search(source) or aliased or names & _WORDS or names & self._functions:
            self._functions.update(filter(None, sum(_BOUND.findall(source), ())))
            self._functions.update(filter(None, map(_keeps_clock, source.splitlines())))
            return False
        return True


def _keeps_clock(line: str) -> str:
    """Return the name that a line gives to what asks a clock when it is called; "" for none."""
    assigned = len(line) <= _LONGEST_LINE and _ASSIGNED.match(line)
    if not assigned or not ("lambda" in line or _UNCALLED.search(line)):
        return ""
    return assigned[1] if _CALLS.search(line) or set(_NAME.findall(line)) & _WORDS else ""
