"""Data flow: which names a cell binds and reads, and whether it can be run again, from its source.

`Bindings` has the names that a cell would bind and those that it reads, to tell which later cells
need a refused one. It is approximate: names that ``exec`` or ``import *`` binds are not seen, and a
name that a function reads counts as read where the function is defined.

`RepeatableCells` judges whether a cell gives the same result when it is run again. A lost session
is restored from its last copy, and the cells after that are run again in it, without showing their
output (ADR 0027). That is right for a cell whose result only depends on the variables before it,
and wrong for one that asks for something that differs the next time. Use of files, processes,
threads and the operating system's random numbers is observed while a cell runs
(``guest.audit_hook``). Clocks and addresses of objects can't be, so the words of the cell's source
are looked at. That excludes more cells than necessary, since a word in a comment counts, too. A
clock that a library reads by itself is not seen.
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

#: Nodes whose bindings stay inside. Classes are among them, because the names that a class body
#: binds become attributes of the class.
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
#: Statements that read all their values before they bind names.
_READ_FIRST: Final = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr)


class Bindings:
    """The names that a cell binds at its top level, and those that it reads before binding them."""

    def __init__(self, source: str) -> None:
        self.bound = set[str]()
        self.read = set[str]()
        self._follow(source)

    def _follow(self, source: str) -> None:
        """Add the names in some source, and in code that magics in it carry."""
        try:
            statements = parse(source).body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return
        for statement in statements:
            if (code := code_of(statement)) is not None:
                self._follow(code)
                continue
            bound = set(_bound(statement))
            names = _read(statement)
            bound_first = set[str]() if isinstance(statement, _READ_FIRST) else bound
            self.read |= names - self.bound - bound_first
            self.bound |= bound


def _bound(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement binds in the scope that it is in."""
    nodes: list[ast.AST] = [statement]
    while nodes:
        node = nodes.pop()
        if name := _bound_by(node):
            yield name
        if not isinstance(node, _SCOPES):
            nodes += ast.iter_child_nodes(node)


def _bound_by(node: ast.AST) -> str:
    """Return the name that a node itself binds, "" for none."""
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
    """Return the names that a statement reads, without those that scopes within it bind."""
    names = set[str]()
    local = set[str]()
    nodes: list[tuple[ast.AST, bool]] = [(statement, False)]
    while nodes:
        node, inside = nodes.pop()
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                names.add(name)
            case ast.Name(id=name, ctx=ast.Del()) | ast.arg(arg=name) if inside:
                local.add(name)
            case ast.ExceptHandler(name=str(name)) if inside:
                local.add(name)
            case ast.AugAssign(target=ast.Name(id=name)):
                names.add(name)
            case _ if inside and (name := _bound_by(node)):
                local.add(name)
        inside = inside or isinstance(node, _SCOPES)
        nodes += ((child, inside) for child in ast.iter_child_nodes(node))
    return names - local


# --- whether a cell can be run again --------------------------------------------------------------

#: Words for clocks, addresses, the operating system's seeds and the state of files, and for
#: functions that read, write or wait without an audit event.
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
#: Names that only count if they are called, or called without arguments, or as ``time.time``.
#: Otherwise they are mostly names of columns.
_CALLS: Final = re.compile(
    r"\b(?:clock|time)\s*+\(|\btime\s*+\.\s*+time\b|\bseed\s*+\(\s*+(?:None\s*+)?\)"
)
_NAME: Final = re.compile(r"[^\W\d]\w*+")
#: Names that a cell binds and that may ask a clock when they are called: functions, classes, and
#: aliases of imports. The expression's time is bounded for each word: a cell must not cost the host
#: much (P14).
_BOUND: Final = re.compile(
    r"\b(?:def|class|as)[ \t]++([^\W\d]\w*+)"
    r"|\b([^\W\d]\w*+)[ \t]*+(?::[^=\n]{0,80}+)?+=[ \t]*+(?:lambda\b|partial\b)"
)
_UNCALLED: Final = re.compile(r"\b[^\W\d]\w*+(?=[ \t]*+(?:[,)\]}]|$))")
#: A name that a line assigns a clock to (``timer = time.time``, a table of functions).
_ASSIGNED: Final = re.compile(r"^[ \t]*+([^\W\d]\w*+)[ \t]*+(?::[^=\n]{0,80}+)?+=(?!=)")
_LONGEST_LINE: Final = 1_000
_IMPORTED: Final = re.compile(r"^[ \t]*+(?:from|import)\b", re.MULTILINE)
#: Characters of a cell, and names of functions, beyond which no cell counts as repeatable.
_MAX_CHARACTERS: Final = 20_000
_MAX_NAMES: Final = 1_000


class RepeatableCells:
    """A judge of which of a session's cells are repeatable. It is asked after each cell.

    It remembers functions that may ask a clock, since later cells may call them.
    """

    def __init__(self) -> None:
        #: The names of functions and classes of earlier cells that may ask a clock.
        self._functions = set[str]()

    def judge(self, source: str) -> bool:
        """Return whether a cell (its transformed source) gives the same result when run again."""
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
    """Return the name that a line assigns a function to which asks a clock, "" for none."""
    assignment = len(line) <= _LONGEST_LINE and _ASSIGNED.match(line)
    if not assignment or not ("lambda" in line or _UNCALLED.search(line)):
        return ""
    return assignment[1] if _CALLS.search(line) or set(_NAME.findall(line)) & _WORDS else ""
