"""Parameters as papermill sets them: by a cell behind the one that is tagged ``parameters``.

Source: papermill's ``parameterize_notebook``. Without such a tag cells find them in ``inputs``
alone, where they are in any case.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import keyword
import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cellblock.batch.verdict import LARGEST
from cellblock.host.files import UpgradeError, upgraded
from cellblock.host.output import gateway
from cellblock.host.output.text import Cleaner, TooLargeError
from cellblock.render.text import clip, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from cellblock.api.results import Result


# Bytes to a notebook: checked, within bounds, and without what an earlier run has shown.
#
# Read as nbformat reads it, by whose schema it is judged. Its author is a stranger.

_FORMAT: Final = 4
_CELL_TYPES: Final = ("code", "markdown", "raw")
#: From this minor version on cells have ids.
WITH_IDS: Final = 5
_ID: Final = re.compile(r"[a-zA-Z0-9-_]{1,64}")
#: Values that there may be: Python takes about 100 bytes for each while it reads.
MOST_VALUES: Final = 2_000_000
_DEEPEST: Final = 64
_LONGEST_WHY: Final = 200
_PYTHON: Final = "python"
_SKIP: Final = "skip-execution"
_RAISES: Final = "raises-exception"
#: What belongs to outputs that are not kept, or is Jupyter's to say.
_DROPPED: Final = ("widgets", "signature", "orig_nbformat", "orig_nbformat_minor")


class UnreadableError(Exception):
    """It is not a notebook that can be run; the text says why, in one line that can be shown."""

    def __init__(self, why: str) -> None:
        super().__init__(clip(visible(why), _LONGEST_WHY))


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell as it stands in the notebook, its source in one piece and its outputs apart."""

    body: dict[str, Any]
    outputs: list[Any]

    @property
    def source(self) -> str:
        """What is to be run."""
        return str(self.body["source"])

    @property
    def is_code(self) -> bool:
        """Whether it has outputs."""
        return bool(self.body["cell_type"] == "code")

    @property
    def runs(self) -> bool:
        """Whether it is to be run; as nbclient, by its tag too."""
        return self.is_code and bool(self.source.strip()) and _SKIP not in self.tags

    @property
    def may_fail(self) -> bool:
        """Whether it says of itself that it fails."""
        return _RAISES in self.tags

    @property
    def tags(self) -> list[Any]:
        """What its author calls it."""
        return list(self.body["metadata"].get("tags", ()))


@dataclass(frozen=True, slots=True)
class Notebook:
    """A notebook that is valid but for outputs: those are whatever stood there."""

    cells: tuple[Cell, ...]
    metadata: dict[str, Any]
    minor: int

    @property
    def language(self) -> str:
        """What it is written in, as far as it says."""
        spec, info = (self.metadata.get(key, {}) for key in ("kernelspec", "language_info"))
        return str(spec.get("language") or info.get("name") or _PYTHON)

    @property
    def is_python(self) -> bool:
        """Whether a guest can run it."""
        return self.language.lower() in (_PYTHON, "ipython", "python3")


def read(content: bytes) -> Notebook:
    """Return the notebook in a file's content. Raises UnreadableError."""
    text = _text(content)
    document = _current(_parsed(text), content)
    bodies = _bodies(document)
    outputs = [body.pop("outputs", []) if _is_code(body) else [] for body in bodies]
    document = _clean(document)
    minor = document.get("nbformat_minor")
    for number, body in enumerate(document["cells"], 1):
        _complete(body, number)
    if type(minor) is int and minor >= WITH_IDS:
        _give_ids(document["cells"])
    _check(document, minor)
    cells = map(Cell, document["cells"], map(_listed, outputs))
    return Notebook(tuple(cells), _own(document["metadata"]), document["nbformat_minor"])


def _text(content: bytes) -> str:
    if len(content) > LARGEST:
        raise UnreadableError(f"is larger than {LARGEST >> 20} MiB")
    # More than there are, as strings may hold them, too.
    if sum(map(content.count, (b",", b"[", b"{"))) > MOST_VALUES:
        raise UnreadableError(f"holds more than {MOST_VALUES:,} values")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise UnreadableError("is no UTF-8 text") from None


def _parsed(text: str) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise UnreadableError(f"is no JSON: {error.msg} ({where})") from None
    except ValueError as error:  # a number of thousands of digits
        raise UnreadableError(f"is no JSON that Python reads: {error}") from None
    except RecursionError:
        raise UnreadableError("is nested too deeply") from None
    if type(data) is not dict:
        raise UnreadableError("is no notebook: it is no JSON object")
    return data


def _current(data: dict[str, Any], content: bytes) -> dict[str, Any]:
    """Return it in today's format."""
    major = data.get("nbformat", 1)
    if type(major) is not int:
        raise UnreadableError("says no number of a format (nbformat)")
    if major > _FORMAT:
        raise UnreadableError(f"is of format {major}, and formats up to {_FORMAT} are known")
    if major == _FORMAT:
        return data
    try:
        return _parsed(_text(upgraded(content)))
    except UpgradeError:
        raise UnreadableError("is of an older format, and nbformat can't read it") from None


def _bodies(document: dict[str, Any]) -> list[dict[str, Any]]:
    cells = document.get("cells")
    if type(cells) is not list:
        raise UnreadableError("is no notebook: it has no list of cells")
    for number, cell in enumerate(cells, 1):
        if type(cell) is not dict or cell.get("cell_type") not in _CELL_TYPES:
            raise UnreadableError(f"has a cell of no known type: cell {number}")
    return cells


def _is_code(body: dict[str, Any]) -> bool:
    return body.get("cell_type") == "code"


def _clean(document: dict[str, Any]) -> dict[str, Any]:
    """Return it as what can be written again: finite numbers, whole letters, not too deep."""
    try:
        return dict(Cleaner(nodes=MOST_VALUES, chars=LARGEST, depth=_DEEPEST).clean(document))
    except TooLargeError:
        raise UnreadableError("is nested too deeply, or holds too much") from None


def _complete(body: dict[str, Any], number: int) -> None:
    """Put a cell's texts together, and see to it that a code cell has nothing of a run."""
    source = body.get("source")
    if type(source) is list and all(type(part) is str for part in source):
        body["source"] = "".join(source)
    elif type(source) is not str:
        raise UnreadableError(f"has a cell without text as its source: cell {number}")
    if _is_code(body):
        body["outputs"], body["execution_count"] = [], None
    metadata = body.get("metadata")
    if type(metadata) is dict:
        metadata.pop("trusted", None)
        metadata.pop("execution", None)


def _give_ids(bodies: list[dict[str, Any]]) -> None:
    """Name cells that have no name of their own."""
    seen = set[str]()
    for number, body in enumerate(bodies, 1):
        name = body.get("id")
        if type(name) is not str or not _ID.fullmatch(name) or name in seen:
            name = next(n for k in range(len(bodies) + 1) if (n := _name(number, k)) not in seen)
            body["id"] = name
        seen.add(name)


def _name(number: int, again: int) -> str:
    return f"cell-{number}-{again}" if again else f"cell-{number}"


@functools.cache
def _validate(minor: int) -> Callable[[Any], Any]:
    """Return what judges a notebook, by the schema of nbformat's that goes with its format.

    nbformat itself is not imported: where jsonschema's formats are installed, which come with
    Jupyter's server, that takes seconds.
    """
    import fastjsonschema  # noqa: PLC0415 - while a zygote prepares

    spec = importlib.util.find_spec("nbformat")
    (folder,) = (spec and spec.submodule_search_locations) or ("",)
    schema = json.loads(Path(folder, "v4", f"nbformat.v4.{minor}.schema.json").read_bytes())
    found: Callable[[Any], Any] = fastjsonschema.compile(schema)
    return found


def warm_up() -> None:
    """Have ready what judges most notebooks, before the first one is read."""
    _validate(WITH_IDS)


def _check(document: dict[str, Any], minor: Any) -> None:
    """Raise UnreadableError for what nbformat's schema does not allow."""
    if type(minor) is not int or not minor >= 0:
        raise UnreadableError("says no number of a minor format (nbformat_minor)")
    try:
        _validate(min(minor, WITH_IDS))(document)
    except ValueError as error:  # it is fastjsonschema's
        raise UnreadableError(f"is no valid notebook: {error}") from None


def _listed(outputs: Any) -> list[Any]:
    return outputs if type(outputs) is list else []


def _own(metadata: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in metadata.items() if key not in _DROPPED}


_TAG: Final = "parameters"
_INJECTED: Final = "injected-parameters"
#: Characters of a value that is written out; a longer one is taken from ``inputs``.
_LONGEST: Final = 1_000


def with_parameters(notebook: Notebook, parameters: Mapping[str, Any]) -> Notebook:
    """Return a notebook in which a cell sets the parameters that can be names in Python.

    One that an earlier run has put there is replaced.
    """
    source = _source(parameters)
    begin, end = _place(notebook.cells)
    if not source or not end:
        return notebook
    cells = (*notebook.cells[:begin], _cell(notebook, source), *notebook.cells[end:])
    return replace(notebook, cells=cells)


def _place(cells: Sequence[Cell]) -> tuple[int, int]:
    """Return what the cell takes the place of, from and to; (0, 0) where there is no place."""
    for number, cell in enumerate(cells):
        if cell.is_code and _INJECTED in cell.tags:
            return number, number + 1
    found = [n for n, cell in enumerate(cells, 1) if cell.is_code and _TAG in cell.tags]
    return (found[0], found[0]) if found else (0, 0)


def _source(parameters: Mapping[str, Any]) -> str:
    lines = [
        f"{name} = {_written(name, value)}"
        for name, value in parameters.items()
        if name.isidentifier() and not keyword.iskeyword(name)
    ]
    return "\n".join(["# Parameters", *lines]) if lines else ""


def _written(name: str, value: Any) -> str:
    """Return JSON's value as an expression."""
    text = repr(value)
    return text if len(text) <= _LONGEST else f"inputs[{name!r}]"


def _cell(notebook: Notebook, source: str) -> Cell:
    body: dict[str, Any] = {
        "cell_type": "code",
        "source": source,
        "metadata": {"tags": [_INJECTED]},
        "outputs": [],
        "execution_count": None,
    }
    if notebook.minor >= WITH_IDS:
        taken = {cell.body["id"] for cell in notebook.cells}
        names = (f"{_INJECTED}{'-' * n}" for n in range(len(taken) + 1))
        body["id"] = next(name for name in names if name not in taken)
    return Cell(body, [])


# Outputs that stood in a notebook already: of cells that are not run, cleaned as a guest's are.

#: Of one cell; more are no outputs that anybody looked at.
_MOST: Final = 1_000
_JSON: Final = ("application/json", "+json")


def cleaned(outputs: Iterable[Any], display: str) -> list[dict[str, Any]]:
    """Return what may be shown of them under a policy's ``display``; the rest is left out."""
    show = gateway.for_display(display)
    made = (_cleaned(one, show) for one in list(outputs)[:_MOST] if type(one) is dict)
    return [one for one in made if one is not None]


def _cleaned(one: dict[str, Any], show: gateway.Show) -> dict[str, Any] | None:
    kind = one.get("output_type")
    match kind:
        case "stream":
            name = "stderr" if one.get("name") == "stderr" else "stdout"
            return {
                "output_type": kind,
                "name": name,
                "text": gateway.clean_stream(_whole(one.get("text"))),
            }
        case "error":
            parts = (one.get("ename"), one.get("evalue"), one.get("traceback"))
            return {"output_type": kind, **gateway.clean_error(*parts)}
        case "display_data" | "execute_result":
            made = {"output_type": kind, "data": show(_bundle(one.get("data")))}
            made["metadata"] = gateway.clean_metadata(one.get("metadata"))
            return made if kind == "display_data" else made | {"execution_count": _count(one)}
    return None


def _bundle(data: Any) -> dict[str, Any]:
    if type(data) is not dict:
        return {}
    return {k: v if k.endswith(_JSON) else _whole(v) for k, v in data.items()}


def _whole(text: Any) -> Any:
    """Return a text that is written in lines in one piece."""
    if type(text) is list and all(type(line) is str for line in text):
        return "".join(text)
    return text


def _count(one: dict[str, Any]) -> int | None:
    count = one.get("execution_count")
    return count if type(count) is int and 0 <= count < 1 << 31 else None


# A cell as it is written: before it ran, and after.

#: Where a cell's metadata says when it ran.
EXECUTION: Final = "execution"


def before(cell: Cell, display: str) -> dict[str, Any]:
    """Return a cell as it is written before it runs; one that will not keeps its outputs."""
    if cell.outputs and not cell.runs:
        return cell.body | {"outputs": cleaned(cell.outputs, display)}
    return cell.body


def after(cell: Cell, result: Result, times: tuple[str, str]) -> dict[str, Any]:
    """Return a cell that ran, without its outputs; times under nbclient's names."""
    began, ended = times
    execution = {
        "iopub.status.busy": began,
        "iopub.execute_input": began,
        "iopub.status.idle": ended,
        "shell.execute_reply": ended,
    }
    metadata = cell.body["metadata"] | {EXECUTION: execution}
    return cell.body | {"metadata": metadata, "execution_count": result.execution_count}


def now() -> str:
    """Return the time as it stands in messages and in notebooks."""
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")
