"""A notebook that can be run: valid by nbformat's schema, and without an earlier run's outputs.

Its author is a stranger. `batch.files` parses the bytes, and this module makes cells of them that
can be run and written again. It also adds the cell that sets parameters, like papermill, and makes
the cells that are written, before and after they ran.
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
import json
import keyword
import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import fastjsonschema

from cellblock.batch.files import MAX_VALUES, UnreadableError, read_notebook
from cellblock.batch.verdict import MAX_FILE_BYTES
from cellblock.host.files import upgraded
from cellblock.host.output import gateway
from cellblock.host.output.text import Cleaner, TooLargeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from cellblock.api.results import Result


#: The minor version of the format from which on cells have ids.
WITH_IDS: Final = 5
_ID: Final = re.compile(r"[a-zA-Z0-9-_]{1,64}")
_MAX_DEPTH: Final = 64
_PYTHON: Final = "python"
_SKIP_TAG: Final = "skip-execution"
_RAISES_TAG: Final = "raises-exception"
#: Metadata that belongs to outputs, which are dropped, or that only Jupyter writes.
_DROPPED_METADATA: Final = ("widgets", "signature", "orig_nbformat", "orig_nbformat_minor")


class Cell:
    """A cell of a notebook, with its source in one string, and its old outputs separately.

    With the same tags as for nbclient, a cell is not run (``skip-execution``), or ``may_fail``
    (``raises-exception``).
    """

    def __init__(self, body: dict[str, Any], outputs: list[Any]) -> None:
        self.body = body
        self.outputs = outputs
        self.source: str = body["source"]
        self.tags: Sequence[Any] = body["metadata"].get("tags", ())
        self.is_code = body["cell_type"] == "code"
        self.runs = self.is_code and bool(self.source.strip()) and _SKIP_TAG not in self.tags
        self.may_fail = _RAISES_TAG in self.tags


@dataclass(frozen=True, slots=True)
class Notebook:
    """A valid notebook. Only the old outputs of its cells are not validated."""

    cells: tuple[Cell, ...]
    metadata: dict[str, Any]
    minor: int

    @property
    def language(self) -> str:
        """The language of the code, or Python if the metadata does not say."""
        spec, info = (self.metadata.get(key, {}) for key in ("kernelspec", "language_info"))
        return str(spec.get("language") or info.get("name") or _PYTHON)

    @property
    def is_python(self) -> bool:
        """Whether its language is Python, so that a guest can run it."""
        return self.language.lower() in (_PYTHON, "ipython", "python3")


def read(content: bytes) -> Notebook:
    """Return the notebook in a file's content. Raise UnreadableError.

    This may block for seconds, because a notebook of an older format is upgraded in another
    process.
    """
    document = read_notebook(content, upgraded, max_values=MAX_VALUES).document
    outputs = []
    for body in document["cells"]:
        old = body.pop("outputs", []) if body["cell_type"] == "code" else []
        outputs.append(old if type(old) is list else [])
    try:
        # Keep only values that can be written again: finite numbers, no lone surrogates, and
        # nothing nested too deeply.
        cleaner = Cleaner(nodes=MAX_VALUES, chars=MAX_FILE_BYTES, depth=_MAX_DEPTH)
        document = dict(cleaner.clean(document))
    except TooLargeError:
        raise UnreadableError("is nested too deeply, or holds too much") from None
    for body in document["cells"]:  # drop an earlier run's outputs, counts and times
        if body["cell_type"] == "code":
            body["outputs"], body["execution_count"] = [], None
        if type(body.get("metadata")) is dict:
            body["metadata"].pop("trusted", None)
            body["metadata"].pop(EXECUTION, None)
    minor = document.get("nbformat_minor")
    if type(minor) is not int or not minor >= 0:
        raise UnreadableError("does not say which minor format it has (nbformat_minor)")
    if minor >= WITH_IDS:
        _add_ids(document["cells"])
    else:  # some tools write ids all the same, and Jupyter runs such notebooks
        for body in document["cells"]:
            body.pop("id", None)
    try:
        _validator(min(minor, WITH_IDS))(document)
    except ValueError as error:  # fastjsonschema's exception is one
        raise UnreadableError(f"is not a valid notebook: {error}") from None
    metadata = {k: v for k, v in document["metadata"].items() if k not in _DROPPED_METADATA}
    return Notebook(tuple(map(Cell, document["cells"], outputs)), metadata, minor)


def _add_ids(bodies: list[dict[str, Any]]) -> None:
    """Give an id to cells without a valid id of their own. It depends only on the cell's place."""
    used_ids = set[str]()
    for number, body in enumerate(bodies, 1):
        name = body.get("id")
        if type(name) is not str or not _ID.fullmatch(name) or name in used_ids:
            name = body["id"] = _unused(
                f"cell-{number}", (f"-{n}" for n in itertools.count(1)), used_ids
            )
        used_ids.add(name)


def _unused(name: str, suffixes: Iterable[str], used_names: set[str]) -> str:
    """Return ``name``, or ``name`` with the first suffix by which it is not taken."""
    names = (name + suffix for suffix in itertools.chain([""], suffixes))
    return next(candidate for candidate in names if candidate not in used_names)


@functools.cache
def _validator(minor: int) -> Callable[[Any], Any]:
    """Return a function that raises ValueError for a notebook that is invalid in this format.

    The schema is nbformat's. nbformat itself is not imported: that takes seconds if jsonschema's
    formats are installed, which come with Jupyter's server.
    """
    spec = importlib.util.find_spec("nbformat")
    (folder,) = (spec and spec.submodule_search_locations) or ("",)
    schema = json.loads(Path(folder, "v4", f"nbformat.v4.{minor}.schema.json").read_bytes())
    validate: Callable[[Any], Any] = fastjsonschema.compile(schema)
    return validate


def warm_up() -> None:
    """Compile the schema that most notebooks have, before the first notebook is read."""
    _validator(WITH_IDS)


# --- parameters: a cell after the one that is tagged ``parameters``, as papermill adds it ---------
# Source: papermill's ``parameterize_notebook``. If no cell has the tag, none is added. Cells find
# the parameters in ``inputs`` in any case.

_PARAMETERS_TAG: Final = "parameters"
_INJECTED_TAG: Final = "injected-parameters"
#: Characters of a value that is written as a literal; a longer value is taken from ``inputs``.
_MAX_VALUE: Final = 1_000


def with_parameters(notebook: Notebook, parameters: Mapping[str, Any]) -> Notebook:
    """Return a notebook with a cell that sets the parameters whose names are valid in Python.

    The cell replaces one that an earlier run has added.
    """
    lines = [
        f"{name} = {_expression(name, value)}"
        for name, value in parameters.items()
        if name.isidentifier() and not keyword.iskeyword(name)
    ]
    cells = notebook.cells
    cell_range = None  # the range of cells that the new cell replaces: one, or none
    for number, cell in enumerate(cells):
        if cell.is_code and _INJECTED_TAG in cell.tags:
            cell_range = number, number + 1
            break
        if cell_range is None and cell.is_code and _PARAMETERS_TAG in cell.tags:
            cell_range = number + 1, number + 1
    if not lines or cell_range is None:
        return notebook
    body: dict[str, Any] = {
        "cell_type": "code",
        "source": "\n".join(["# Parameters", *lines]),
        "metadata": {"tags": [_INJECTED_TAG]},
        "outputs": [],
        "execution_count": None,
    }
    if notebook.minor >= WITH_IDS:
        used_ids = {cell.body["id"] for cell in cells}
        body["id"] = _unused(_INJECTED_TAG, ("-" * n for n in itertools.count(1)), used_ids)
    return replace(
        notebook, cells=(*cells[: cell_range[0]], Cell(body, []), *cells[cell_range[1] :])
    )


def _expression(name: str, value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_VALUE else f"inputs[{name!r}]"


# --- the cells that are written, before and after they ran ----------------------------------------

#: The key in a cell's metadata that has the times at which the cell ran.
EXECUTION: Final = "execution"
#: Old outputs that are kept of a cell that does not run.
_MAX_OLD_OUTPUTS: Final = 1_000
_JSON_TYPES: Final = ("application/json", "+json")


def cell_before_run(cell: Cell, display: str) -> dict[str, Any]:
    """Return a cell as it is written before the notebook runs.

    A cell that won't run keeps its outputs, cleaned like a guest's under the policy's ``display``.
    """
    if cell.outputs and not cell.runs:
        return cell.body | {"outputs": clean_outputs(cell.outputs, display)}
    return cell.body


def cell_after_run(cell: Cell, result: Result, times: tuple[str, str]) -> dict[str, Any]:
    """Return a cell that ran, without its outputs. ``times`` are when it began and ended.

    The metadata has them under the names that nbclient uses.
    """
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
    """Return the time in the form that messages and notebooks use."""
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


def clean_outputs(outputs: Iterable[Any], display: str) -> list[dict[str, Any]]:
    """Return outputs from a notebook's file, cleaned under a policy's ``display``.

    Invalid outputs are left out.
    """
    show = gateway.for_display(display)
    cleaned = (_clean_output(output, show) for output in list(outputs)[:_MAX_OLD_OUTPUTS])
    return [output for output in cleaned if output is not None]


def _clean_output(output: Any, show: gateway.Show) -> dict[str, Any] | None:
    """Return an output cleaned by the gateway, or None if it is not a valid output."""
    if type(output) is not dict:
        return None
    kind = output.get("output_type")
    match kind:
        case "stream":
            name = "stderr" if output.get("name") == "stderr" else "stdout"
            text = gateway.clean_stream(_in_one_piece(output.get("text")))
            return {"output_type": kind, "name": name, "text": text}
        case "error":
            parts = (output.get("ename"), output.get("evalue"), output.get("traceback"))
            return {"output_type": kind, **gateway.clean_error(*parts)}
        case "display_data" | "execute_result":
            data = output.get("data")
            data = data if type(data) is dict else {}
            bundle = {
                k: v if k.endswith(_JSON_TYPES) else _in_one_piece(v) for k, v in data.items()
            }
            cleaned = {"output_type": kind, "data": show(bundle)}
            cleaned["metadata"] = gateway.clean_metadata(output.get("metadata"))
            if kind == "display_data":
                return cleaned
            count = output.get("execution_count")
            valid = type(count) is int and 0 <= count < 1 << 31
            return cleaned | {"execution_count": count if valid else None}
    return None


def _in_one_piece(text: Any) -> Any:
    """Return a text as one string if it is a list of lines; other values unchanged."""
    if type(text) is list and all(type(line) is str for line in text):
        return "".join(text)
    return text
