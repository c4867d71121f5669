"""From PATHS to the notebooks that are run, and the file in DIR that each is written to.

A notebook in the current folder keeps its path from there; any other keeps its whole path. So no
two meet in one file, however they are called.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import msgspec

from cellblock import __version__
from cellblock.batch import check
from cellblock.batch.run.state import OWN
from cellblock.batch.verdict import LARGEST, Kind, Problem
from cellblock.errors import InputError
from cellblock.host.session import history
from cellblock.policy.paths import within
from cellblock.render.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


_OPEN: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


_NONE: Final = "no notebook is there"
_OTHER: Final = "only notebooks are run (.ipynb)"
#: What is said of paths, where scripts are no use.
_WORDS: Final = {check.NOTHING: _NONE, check.NEITHER: _OTHER}


@dataclass(frozen=True, slots=True)
class Planned:
    """A notebook to run. ``output`` is its file's name in DIR; ``named`` one that PATHS name."""

    path: Path
    output: str
    name: str
    named: bool

    @property
    def artifacts(self) -> str:
        """The folder in DIR that files of its cells are copied to."""
        return os.path.splitext(self.output)[0] + ".artifacts"  # noqa: PTH122 - a name in DIR


@dataclass(frozen=True, slots=True)
class Plan:
    """The notebooks of a run, in a stable order, and what is wrong with PATHS."""

    notebooks: tuple[Planned, ...]
    problems: tuple[Problem, ...]


def plan(paths: Sequence[str], output_dir: Path, exclude: Sequence[str] = ()) -> Plan:
    """Return what ``paths`` name, but for what an earlier run has written to ``output_dir``."""
    found, told = check.find(paths, exclude)
    problems = [Problem(one.path, _WORDS.get(one.message, one.message)) for one in told]
    folder, given = os.path.realpath(output_dir), {_absolute(path) for path in paths}
    written = not any(within(os.path.realpath(path), folder) for path in paths)
    planned = dict[str, Planned]()
    for file in found:
        where = _absolute(file.path)
        if file.kind is not Kind.notebook:
            if where in given:
                problems.append(Problem(file.shown, _OTHER))
            continue
        if written and within(os.path.realpath(file.path), folder):
            continue
        one = Planned(file.path, _output(file), visible(file.shown), where in given)
        problems += _clashes(one, folder, planned)
        planned[one.output] = one
    if not planned and not problems:
        problems.append(Problem(" ".join(paths), _NONE))
    return Plan(tuple(planned.values()), tuple(problems))


def _absolute(path: str | Path) -> str:
    return os.path.abspath(path)  # noqa: PTH100 - resolves no links


def _output(file: check.File) -> str:
    """Return a file's name in DIR; in there ``.cellblock`` is the run's own."""
    path = Path(file.shown)
    outside = path.is_absolute() or path.parts[0] in {"..", OWN}
    return _absolute(file.path).lstrip("/") if outside else file.shown


def _clashes(one: Planned, folder: str, planned: dict[str, Planned]) -> Iterator[Problem]:
    """Yield why a notebook's file can't be written without loss."""
    other = planned.get(one.output)
    if other is not None:
        yield Problem(one.name, f"would be written to the same file as {other.name}")
    if os.path.realpath(Path(folder, one.output)) == os.path.realpath(one.path):
        yield Problem(one.name, "would be overwritten: name another --output-dir")


def read(planned: Planned) -> bytes:
    """Return a notebook's content, one byte more than `LARGEST` at most. Raises OSError.

    A link is followed where it was named: one that lies in a folder may lead anywhere.
    """
    descriptor = os.open(planned.path, _OPEN if planned.named else _OPEN | os.O_NOFOLLOW)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        return file.read(LARGEST + 1)


# What a run is told, besides its policy: the same for each of its notebooks.


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """How notebooks are run; seconds, where there is a limit. It can be sent to other processes."""

    parameters: dict[str, Any] = {}
    allow_errors: bool = False
    #: Of a whole notebook, and of each cell where the policy does not allow fewer.
    timeout: float | None = None
    cell_timeout: float | None = None
    #: Whether cells say when they ran.
    timing: bool = True

    def key(self, content: bytes, digest: str) -> str:
        """Return what a notebook and its terms are known by under a policy of that digest.

        Equal ones would be run in the same way: a resumed run does not.
        """
        told = msgspec.structs.asdict(self)
        known = [__version__, hashlib.sha256(content).hexdigest(), digest, told]
        return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()


# ``-p NAME VALUE``, ``-p NAME=VALUE`` and ``--input FILE``: what cells find in ``inputs``.

_OPTIONS: Final = ("-p", "--parameter")


def joined(arguments: Sequence[str]) -> list[str]:
    """Return a command line with ``-p NAME VALUE`` as ``-p NAME=VALUE``."""
    made, rest = list[str](), list(arguments)
    while rest:
        made.append(rest.pop(0))
        if made[-1] == "--":
            return made + rest
        if made[-1] in _OPTIONS and len(rest) > 1 and "=" not in rest[0]:
            made.append(f"{rest.pop(0)}={rest.pop(0)}")
    return made


def parameters(
    given: Sequence[str], files: Sequence[str], written: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the values: of the files, in order, then those given by name. Raises InputError.

    A value that is JSON is what it says; any other is a text. ``written`` are folders that cells
    may write: see ``inputs.from_file``.
    """
    values = dict[str, Any]()
    for file in files:
        values |= {name: json.loads(one) for name, one in history.from_file(file, written).items()}
    for one in given:
        name, is_one, text = one.partition("=")
        if not is_one or not name:
            remedy = "Write -p NAME=VALUE, or -p NAME VALUE."
            raise InputError("no name and value", file="-p", key="", value=repr(one), remedy=remedy)
        values[name] = _value(text)
    history.encoded(values, source="-p")
    return values


def _value(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return text


def _no_constant(text: str) -> NoReturn:
    raise ValueError(text)
