"""What a run gets: from PATHS to notebooks and their output files, options, and parameters.

A notebook in the current folder keeps its path from there as its name in DIR; any other keeps its
whole path. So no two are written to one file, however they are called.
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
from cellblock.batch import files
from cellblock.batch.verdict import MAX_FILE_BYTES, FileKind, Problem
from cellblock.errors import InputError
from cellblock.host.session.history import encode_inputs, inputs_from_file
from cellblock.policy.paths import within
from cellblock.render.text import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

#: The subfolder of DIR with the run's own files: journals, the run log, files not complete yet.
OWN: Final = ".cellblock"
#: What ``--changes`` takes besides a folder.
KEEP: Final = "keep"
DROP: Final = "drop"
_OPEN: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NO_NOTEBOOK: Final = "no notebook is there"
_NOT_NOTEBOOK: Final = "only notebooks are run (.ipynb)"
#: What is said instead of the messages of `files.find`, as scripts can't be run.
_MESSAGES: Final = {files.NOTHING_FOUND: _NO_NOTEBOOK, files.WRONG_KIND: _NOT_NOTEBOOK}


@dataclass(frozen=True, slots=True)
class PlannedNotebook:
    """A notebook to run.

    ``output`` is the name of its file in DIR, ``name`` what it is called, ``named`` whether PATHS
    name it, and not a folder above it.
    """

    path: Path
    output: str
    name: str
    named: bool

    @property
    def artifacts(self) -> str:
        """The folder in DIR that files of its cells are copied to."""
        return self.output.rpartition(".")[0] + ".artifacts"


@dataclass(frozen=True, slots=True)
class Plan:
    """The notebooks of a run, in a stable order, and what is wrong with PATHS."""

    notebooks: tuple[PlannedNotebook, ...]
    problems: tuple[Problem, ...]


def plan(paths: Sequence[str], output_dir: Path, exclude: Sequence[str] = ()) -> Plan:
    """Return what ``paths`` name, without what an earlier run has written to ``output_dir``."""
    found, problems = files.find(paths, exclude)
    problems = [Problem(one.path, _MESSAGES.get(one.message, one.message)) for one in problems]
    folder, given = os.path.realpath(output_dir), {files.absolute(path) for path in paths}
    skips_outputs = not any(within(os.path.realpath(path), folder) for path in paths)
    planned = dict[str, PlannedNotebook]()
    for file in found:
        path, real = files.absolute(file.path), os.path.realpath(file.path)
        if file.kind is not FileKind.notebook:
            problems += [Problem(file.shown, _NOT_NOTEBOOK)] if path in given else []
            continue
        if skips_outputs and within(real, folder):
            continue
        shown = Path(file.shown)
        outside = shown.is_absolute() or shown.parts[0] in {"..", OWN}
        output = path.lstrip("/") if outside else file.shown
        one = PlannedNotebook(file.path, output, visible(file.shown), path in given)
        if (other := planned.get(output)) is not None:
            what = f"would be written to the same file as {other.name}"
            problems.append(Problem(one.name, what))
        if os.path.realpath(Path(folder, output)) == real:
            problems.append(Problem(one.name, "would be overwritten: name another --output-dir"))
        planned[output] = one
    if not planned and not problems:
        problems.append(Problem(" ".join(paths), _NO_NOTEBOOK))
    return Plan(tuple(planned.values()), tuple(problems))


def read(planned: PlannedNotebook) -> bytes:
    """Return a notebook's content, at most one byte more than `MAX_FILE_BYTES`. Raise OSError.

    A link is followed if it was named. One that lies in a folder may lead anywhere.
    """
    descriptor = os.open(planned.path, _OPEN if planned.named else _OPEN | os.O_NOFOLLOW)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        return file.read(MAX_FILE_BYTES + 1)


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How all notebooks of a run are run; sent to workers of a cluster. Timeouts are in seconds.

    ``timeout`` is for a whole notebook. ``cell_timeout`` is for each cell, where the policy does
    not allow less. ``timing`` says whether the times at which cells ran are written. ``changes`` is
    what becomes of what a notebook that passed has staged: ``keep``, ``drop``, or a folder for it;
    empty, it is staged for a week, like that of a notebook that did not pass.
    """

    parameters: dict[str, Any] = {}
    allow_errors: bool = False
    timeout: float | None = None
    cell_timeout: float | None = None
    timing: bool = True
    changes: str = ""

    def changes_folder(self, planned: PlannedNotebook) -> str:
        """Return the folder for what a notebook staged; empty if that is not written to one."""
        own = self.changes in {"", KEEP, DROP}
        return "" if own else f"{self.changes}/{planned.output.rpartition('.')[0]}.changes"

    def key(self, content: bytes, policy_digest: str) -> str:
        """Return a hash of a notebook and how it is run.

        A notebook with the same key would be run in the same way, so a resumed run skips it.
        """
        options = msgspec.structs.asdict(self)
        if self.changes in {"", DROP}:  # the notebook's file is the same
            del options["changes"]
        known = [__version__, hashlib.sha256(content).hexdigest(), policy_digest, options]
        return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()


# --- parameters: what cells find in ``inputs`` ----------------------------------------------------


def join_parameters(arguments: Sequence[str]) -> list[str]:
    """Return a command line with ``-p NAME VALUE`` as ``-p NAME=VALUE``."""
    made, rest = list[str](), list(arguments)
    while rest:
        made.append(rest.pop(0))
        if made[-1] == "--":
            return made + rest
        if made[-1] in ("-p", "--parameter") and len(rest) > 1 and "=" not in rest[0]:
            made.append(f"{rest.pop(0)}={rest.pop(0)}")
    return made


def parameters(
    given: Sequence[str], files: Sequence[str], writable: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the values in the JSON ``files``, in order, then those ``given`` as NAME=VALUE.

    A value that is JSON is parsed; any other is a string. ``writable`` are folders that cells may
    write: see `inputs_from_file`. Raise InputError.
    """
    values = dict[str, Any]()
    for file in files:
        values |= {name: json.loads(one) for name, one in inputs_from_file(file, writable).items()}
    for one in given:
        name, has_value, text = one.partition("=")
        if not has_value or not name:
            remedy = "Write -p NAME=VALUE, or -p NAME VALUE."
            raise InputError("no name and value", file="-p", key="", value=repr(one), remedy=remedy)
        values[name] = _parameter(text)
    encode_inputs(values, source="-p")
    return values


def _parameter(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return text


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(text)
