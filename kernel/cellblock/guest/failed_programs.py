"""Paths and hosts on the command line of a program that failed: cells see no error of the policy's.

``!cat /data/x`` ends with a status, and what it prints could be anybody's text: nothing is read of
it. Of a pipeline only the last program has a status, so the paths of one count in any case. The
host is told of those that can't be used here, each once, if the cell itself started the program;
whether the policy keeps them away the host decides.

Of a program that uses a network the host is told the address that it was given, each time.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import re
import shlex
import stat
import subprocess
import sys
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from cellblock.guest.audit_hook import roots
from cellblock.guest.output import encodable
from cellblock.guest.violations import is_exempt, run_exempt
from cellblock.wire import messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    Tell = Callable[[messages.NotThere], None]

#: Paths that a session tells of, and of one command.
_MOST, _FEW = 500, 3
_LONGEST: Final = 1_000
#: Characters of a command, and words, that are looked at.
_LONGEST_COMMAND, _MOST_WORDS = 20_000, 1_000
#: Frames between the end of a program and the cell that started it.
_DEEPEST: Final = 40
#: Programs whose arguments are made, changed or removed.
_WRITERS: Final = frozenset(
    ("cp", "install", "ln", "mkdir", "mv", "rm", "rmdir", "tee", "touch", "truncate", "unlink")
)
_PIPE: Final = re.compile(r"(?<!\|)\|(?!\|)")
#: A path in a program's own text, as in ``python -c "open('/data/x')"``.
_QUOTED: Final = re.compile(r"""['"]([/~][^'"\s]*)['"]""")
_MAGIC: Final = re.compile(r"[*?\[]")
#: Programs that do nothing without a network.
_OF_NETWORK: Final = frozenset(
    ("curl", "dig", "ftp", "host", "nc", "nslookup", "ping", "sftp", "ssh", "telnet", "wget")
)
#: What git needs one for.
_OF_GIT: Final = frozenset(("clone", "fetch", "ls-remote", "pull", "push"))
#: Programs to which an address is a text, and which end with a status where they don't find it.
_COMPARE: Final = frozenset(
    ("[", "awk", "cmp", "diff", "egrep", "expr", "fgrep", "grep", "jq", "rg", "sed", "test")
)
_URL: Final = re.compile(
    r"\b([a-z][a-z0-9+.-]*)://(?:[^/@\s]*@)?(\[[0-9a-f:]+\]|[^/:?#\s\[\]]+)(?::(\d+))?",
    re.IGNORECASE,
)
#: As scp and git write a host that is reached by ssh.
_BY_SSH: Final = re.compile(r"[\w.-]+@([\w.-]+)(?::\D.*)?\Z")
#: The port of a URL that names none.
_PORTS: Final = {"ftp": 21, "git": 9418, "http": 80, "https": 443, "postgresql": 5432, "ssh": 22}
#: Between a cell and the program: how ``!`` and ``subprocess`` start it.
_STARTERS: Final = re.compile(r"/(?:IPython/.*|cellblock/guest/\w+|subprocess|os)\.py\Z")


def watch(tell: Tell) -> Callable[[BaseException], None]:
    """Tell of programs that fail, from now on; return what also takes the error of ``%%bash``."""
    report = _reports(tell)
    popen: Any = subprocess.Popen
    handle, system = popen._handle_exitstatus, os.system  # noqa: SLF001 - where each status arrives

    @functools.wraps(handle)
    def handle_exitstatus(process: Any, *args: Any, **options: Any) -> None:
        handle(process, *args, **options)
        status = process.returncode or 0
        if status > 0 or (status == 0 and _is_pipeline(process.args)):
            report(process.args)

    @functools.wraps(system)
    def system_and_report(command: Any) -> int:
        status = system(command)
        if status:
            report(command)
        return status

    popen._handle_exitstatus, os.system = handle_exitstatus, system_and_report  # noqa: SLF001

    def on_error(error: BaseException) -> None:
        # The text of the cell, which IPython writes to the program's input.
        if type(error) is subprocess.CalledProcessError and type(error.cmd) is bytes:
            report(error.cmd, from_cell=True)

    return on_error


def _is_pipeline(command: Any) -> bool:
    """Whether a shell says how the last program of several ended, and not how the others did."""
    return type(command) is str and _PIPE.search(command[:_LONGEST_COMMAND]) is not None


def _reports(tell: Tell) -> Callable[..., None]:
    told, guest, left = set[str](), os.getpid(), itertools.count(_MOST, -1)

    def report(command: Any, *, from_cell: bool = False) -> None:
        with contextlib.suppress(Exception):  # what a cell gave may raise at every touch
            # A process that a cell forked has no line to the host.
            if os.getpid() != guest or is_exempt() or len(told) >= _MOST:
                return
            if from_cell or _is_started_by_cell():
                for message in islice(_unusable(command, told), _FEW):
                    told.add(message.name)
                    tell(message)
                for address in dict.fromkeys(islice(_addresses(command), _FEW)):
                    if next(left) > 0:
                        tell(messages.NotThere(kind="address", name=encodable(address)[:_LONGEST]))

    return report


def _unusable(command: Any, told: set[str]) -> Iterator[messages.NotThere]:
    """Yield the paths of a command that can't be used here, and are not yet ``told``."""
    for word, writes in _words(command):
        is_path = "/" in word or word.startswith("~")
        path = os.path.abspath(os.path.expandvars(os.path.expanduser(word)))
        if magic := _MAGIC.search(path):
            path = os.path.dirname(path[: magic.start()])
        if path not in told and (writes or not run_exempt(_is_readable, path)):
            yield messages.NotThere(
                kind="argument" if is_path else "word",
                name=encodable(path)[:_LONGEST],
                seen=run_exempt(os.path.lexists, path),
                writes=writes,
            )


def _addresses(command: Any) -> Iterator[str]:
    """Yield what programs of a command were to connect to: a host and port, or empty if unknown."""
    for program, *words in _programs(command):
        name = os.path.basename(program)
        if name in _COMPARE or (name == "git" and _OF_GIT.isdisjoint(words[:_FEW])):
            continue
        found = [address for word in words if (address := _address_in(word))]
        yield from found or [""] * (name == "git" or name in _OF_NETWORK)


def _address_in(word: str) -> str:
    """Return the host and port that a word names; empty where it names none, or no port of it."""
    if url := _URL.search(word):
        port = url[3] or _PORTS.get(url[1].lower())
        return f"{url[2]}:{port}" if port else ""
    found = _BY_SSH.match(word)
    return f"{found[1]}:22" if found else ""


def _programs(command: Any) -> Iterator[list[str]]:
    """Yield the words of each program that a command starts, as far as that can be told."""
    if not isinstance(command, str | bytes | os.PathLike):
        arguments = [os.fsdecode(each) for each in command[:_MOST_WORDS]]
        # Where a shell was started by name, its command is one word.
        scripts = [each for each in arguments[1:] if any(map(str.isspace, each))]
        yield [each for each in arguments if each not in scripts]
        for script in scripts:
            yield from _programs(script)
        return
    for line in os.fsdecode(command)[:_LONGEST_COMMAND].splitlines():
        words = list[str]()
        for token in (*_tokens(line), ";"):
            if token.strip(";|&()"):
                words += [token] if words or "=" not in token else []
            elif words:
                yield words
                words = []


def _words(command: Any) -> Iterator[tuple[str, bool]]:
    """Yield words that may be paths, and whether the program was to write there."""
    if isinstance(command, str | bytes | os.PathLike):
        yield from _words_of_script(os.fsdecode(command))
        return
    arguments = [os.fsdecode(each) for each in command[:_MOST_WORDS]]
    writes = bool(arguments) and os.path.basename(arguments[0]) in _WRITERS
    for each in arguments:
        yield from ((word, writes) for word in _as_paths(each))
        if any(map(str.isspace, each)):  # of a shell that was started by name
            yield from _words_of_script(each)


def _words_of_script(text: str) -> Iterator[tuple[str, bool]]:
    for line in text[:_LONGEST_COMMAND].splitlines():
        yield from _words_of_line(_tokens(line))


def _tokens(line: str) -> list[str]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        tokens = list(lexer)
    except ValueError:  # a quotation that goes on
        tokens = line.split()
    return tokens[:_MOST_WORDS]


def _words_of_line(tokens: Iterable[str]) -> Iterator[tuple[str, bool]]:
    program, redirects = "", False
    for token in tokens:
        if not token.strip(";|&()"):
            program, redirects = "", False
        elif not token.strip("<>"):
            redirects = ">" in token
        else:
            if not program and "=" not in token:
                program = os.path.basename(token)
            writes = redirects or program in _WRITERS
            yield from ((word, writes) for word in _as_paths(token))
            redirects = False


def _as_paths(token: str) -> Iterator[str]:
    """Yield a word, or what stands behind ``--option=``; an option alone is none."""
    yield from _QUOTED.findall(token)
    if not token.startswith("-"):
        yield token
    elif "=" in token:
        yield token.partition("=")[2]


def _is_readable(path: str) -> bool:
    try:
        kind = stat.S_IFMT(os.stat(path).st_mode)
        if kind not in (stat.S_IFDIR, stat.S_IFREG):
            return True  # to open a pipe or a device may do something
        os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    except (OSError, ValueError):
        return False
    return True


def _is_started_by_cell() -> bool:
    frame, installed = sys._getframe(1), roots()  # noqa: SLF001 - as inspect does
    for _ in range(_DEEPEST):
        if (above := frame.f_back) is None:
            return False
        frame = above
        name = frame.f_code.co_filename
        if not _STARTERS.search(name):
            return not name.startswith((*installed, "<frozen "))
    return False
