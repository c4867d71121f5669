"""Paths and hosts on the command line of a failed program, which the policy may have kept from it.

A cell sees no exception if ``!cat /data/x`` fails, only a status. The program's text is not read,
as it could be anybody's. So the guest looks at the command line: if the cell itself started the
program, each path that can't be used here is sent as ``NotThere``, once, and the host decides
whether the policy is the reason. A shell gives the status of the last program of a pipeline only,
so the paths of a pipeline are looked at in any case.

If the program uses a network, the address that it was given is sent too, each time.

``setup`` calls ``watch`` once, where there is no language layer.
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

#: Most paths that a session sends, and that one command sends.
_MOST, _FEW = 500, 3
_LONGEST: Final = 1_000
#: Most characters and words of a command that are looked at.
_LONGEST_COMMAND, _MOST_WORDS = 20_000, 1_000
#: Frames that are looked at for the cell that started the program.
_DEEPEST: Final = 40
#: Programs that make, change or remove their arguments.
_WRITERS: Final = frozenset(
    ("cp", "install", "ln", "mkdir", "mv", "rm", "rmdir", "tee", "touch", "truncate", "unlink")
)
_PIPE: Final = re.compile(r"(?<!\|)\|(?!\|)")
#: A path within code on the command line, as in ``python -c "open('/data/x')"``.
_QUOTED: Final = re.compile(r"""['"]([/~][^'"\s]*)['"]""")
_MAGIC: Final = re.compile(r"[*?\[]")
#: Programs that do nothing without a network.
_NETWORK_PROGRAMS: Final = frozenset(
    ("curl", "dig", "ftp", "host", "nc", "nslookup", "ping", "sftp", "ssh", "telnet", "wget")
)
#: Commands of git that need a network.
_GIT_COMMANDS: Final = frozenset(("clone", "fetch", "ls-remote", "pull", "push"))
#: Programs that take an address for a text, and return a status if they don't find the text.
_COMPARE: Final = frozenset(
    ("[", "awk", "cmp", "diff", "egrep", "expr", "fgrep", "grep", "jq", "rg", "sed", "test")
)
_URL: Final = re.compile(
    r"\b([a-z][a-z0-9+.-]*)://(?:[^/@\s]*@)?(\[[0-9a-f:]+\]|[^/:?#\s\[\]]+)(?::(\d+))?",
    re.IGNORECASE,
)
#: A host that is reached by ssh, as scp and git write it.
_BY_SSH: Final = re.compile(r"[\w.-]+@([\w.-]+)(?::\D.*)?\Z")
#: By the scheme of a URL: the port, if the URL names none.
_PORTS: Final = {"ftp": 21, "git": 9418, "http": 80, "https": 443, "postgresql": 5432, "ssh": 22}
#: Source files whose frames are skipped on the way up the stack to the code that started a program:
#: they carry out ``!`` and ``subprocess``.
_STARTERS: Final = re.compile(r"/(?:IPython/.*|cellblock/guest/\w+|subprocess|os)\.py\Z")


def watch(tell: Tell) -> Callable[[BaseException], None]:
    """Call ``tell`` for the paths of programs that fail, from now on.

    Return a function that must be called with each error that is shown: that of a failed ``%%bash``
    has the command.
    """
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

    popen._handle_exitstatus = handle_exitstatus  # noqa: SLF001
    os.system = system_and_report

    def on_error(error: BaseException) -> None:
        # Bytes are the text of a ``%%bash`` cell, which IPython writes to the program's input.
        if type(error) is subprocess.CalledProcessError and type(error.cmd) is bytes:
            report(error.cmd, from_cell=True)

    return on_error


def _is_pipeline(command: Any) -> bool:
    """Return whether a command is a pipeline, whose status says only how its last program ended."""
    return type(command) is str and _PIPE.search(command[:_LONGEST_COMMAND]) is not None


def _reports(tell: Tell) -> Callable[..., None]:
    """Return the function that sends the paths and addresses of a failed command."""
    sent = set[str]()
    guest = os.getpid()
    addresses_left = itertools.count(_MOST, -1)

    def report(command: Any, *, from_cell: bool = False) -> None:
        with contextlib.suppress(Exception):  # the command is a cell's object, and may raise
            # A process that a cell forked can't reach the host.
            if os.getpid() != guest or is_exempt() or len(sent) >= _MOST:
                return
            if from_cell or _is_started_by_cell():
                for message in islice(_unusable(command, sent), _FEW):
                    sent.add(message.name)
                    tell(message)
                for address in dict.fromkeys(islice(_addresses(command), _FEW)):
                    if next(addresses_left) > 0:
                        tell(messages.NotThere(kind="address", name=encodable(address)[:_LONGEST]))

    return report


def _unusable(command: Any, sent: set[str]) -> Iterator[messages.NotThere]:
    """Yield the paths of a command that can't be used here, except those ``sent`` before."""
    for word, writes in _words(command):
        is_path = "/" in word or word.startswith("~")
        path = os.path.abspath(os.path.expandvars(os.path.expanduser(word)))
        if magic := _MAGIC.search(path):
            path = os.path.dirname(path[: magic.start()])
        if path not in sent and (writes or not run_exempt(_is_readable, path)):
            yield messages.NotThere(
                kind="argument" if is_path else "word",
                name=encodable(path)[:_LONGEST],
                seen=run_exempt(os.path.lexists, path),
                writes=writes,
            )


def _addresses(command: Any) -> Iterator[str]:
    """Yield the address that each program of a command was given, or empty if not known."""
    for program, *words in _programs(command):
        name = os.path.basename(program)
        is_local_git = name == "git" and _GIT_COMMANDS.isdisjoint(words[:_FEW])
        if name in _COMPARE or is_local_git:
            continue
        addresses = [address for word in words if (address := _address_in(word))]
        yield from addresses or [""] * (name == "git" or name in _NETWORK_PROGRAMS)


def _address_in(word: str) -> str:
    """Return the host and port that a word names, or empty if either is missing."""
    if url := _URL.search(word):
        port = url[3] or _PORTS.get(url[1].lower())
        return f"{url[2]}:{port}" if port else ""
    match = _BY_SSH.match(word)
    return f"{match[1]}:22" if match else ""


def _programs(command: Any) -> Iterator[list[str]]:
    """Yield the words of each program that a command starts, as far as the guest can tell."""
    if not isinstance(command, str | bytes | os.PathLike):
        arguments = [os.fsdecode(argument) for argument in command[:_MOST_WORDS]]
        # If a shell was started by name, its command is one word.
        scripts = [argument for argument in arguments[1:] if any(map(str.isspace, argument))]
        yield [argument for argument in arguments if argument not in scripts]
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
    """Yield each word of a command that may be a path, and whether the program would write it."""
    if isinstance(command, str | bytes | os.PathLike):
        yield from _words_of_script(os.fsdecode(command))
        return
    arguments = [os.fsdecode(argument) for argument in command[:_MOST_WORDS]]
    writes = bool(arguments) and os.path.basename(arguments[0]) in _WRITERS
    for argument in arguments:
        yield from ((word, writes) for word in _as_paths(argument))
        if any(map(str.isspace, argument)):  # may be a script, as in ["sh", "-c", "cat /data/x"]
            yield from _words_of_script(argument)


def _words_of_script(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the same for the text of a shell script."""
    for line in text[:_LONGEST_COMMAND].splitlines():
        yield from _words_of_line(_tokens(line))


def _tokens(line: str) -> list[str]:
    """Return the tokens of a line of a shell script."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        tokens = list(lexer)
    except ValueError:  # a quotation that goes on in the next line
        tokens = line.split()
    return tokens[:_MOST_WORDS]


def _words_of_line(tokens: Iterable[str]) -> Iterator[tuple[str, bool]]:
    """Yield the same for a line of a script, which may have several commands and redirections."""
    program = ""
    redirects = False
    for token in tokens:
        if not token.strip(";|&()"):
            program = ""
            redirects = False
        elif not token.strip("<>"):
            redirects = ">" in token
        else:
            if not program and "=" not in token:
                program = os.path.basename(token)
            writes = redirects or program in _WRITERS
            yield from ((word, writes) for word in _as_paths(token))
            redirects = False


def _as_paths(token: str) -> Iterator[str]:
    """Yield what may be a path in a word: the word itself, or the value behind ``--option=``."""
    yield from _QUOTED.findall(token)
    if not token.startswith("-"):
        yield token
    elif "=" in token:
        yield token.partition("=")[2]


def _is_readable(path: str) -> bool:
    try:
        kind = stat.S_IFMT(os.stat(path).st_mode)
        if kind not in (stat.S_IFDIR, stat.S_IFREG):
            return True  # not tried: opening a pipe or a device may have an effect
        os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    except (OSError, ValueError):
        return False
    return True


def _is_started_by_cell() -> bool:
    """Return whether a cell's own code started the program, and not a library."""
    frame = sys._getframe(1)  # noqa: SLF001 - as inspect does
    installed = roots()
    for _ in range(_DEEPEST):
        if (above := frame.f_back) is None:
            return False
        frame = above
        name = frame.f_code.co_filename
        if not _STARTERS.search(name):
            return not name.startswith((*installed, "<frozen "))
    return False
