"""A notebook as it is run: read, valid by nbformat's schema, and without what an earlier run left.

Its author is a stranger. `batch.files` reads the bytes; here they become cells that can be run
and written again. Also here: the cell that sets parameters, as papermill adds it, and what is
written of a cell before and after it ran.
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


#: From this minor version on cells have ids.
WITH_IDS: Final = 5
_ID: Final = re.compile(r"[a-zA-Z0-9-_]{1,64}")
_MAX_DEPTH: Final = 64
_PYTHON: Final = "python"
_SKIP_TAG: Final = "skip-execution"
_RAISES_TAG: Final = "raises-exception"
#: Metadata that belongs to outputs that are not kept, or is Jupyter's to write.
_DROPPED_METADATA: Final = ("widgets", "signature", "orig_nbformat", "orig_nbformat_minor")


class Cell:
    """A cell as it stands in the notebook, with its source in one piece and its outputs apart.

    As with nbclient, a tag can say that it is not run, another that it ``may_fail``.
    """

    def __init__(self, body: dict[str, Any], outputs: list[Any]) -> None:
        self.body, self.outputs = body, outputs
        self.source: str = body["source"]
        self.tags: Sequence[Any] = body["metadata"].get("tags", ())
        self.is_code = body["cell_type"] == "code"
        self.runs = self.is_code and bool(self.source.strip()) and _SKIP_TAG not in self.tags
        self.may_fail = _RAISES_TAG in self.tags


@dataclass(frozen=True, slots=True)
class Notebook:
    """A notebook that is valid, but for the outputs of its cells: those are whatever was there."""

    cells: tuple[Cell, ...]
    metadata: dict[str, Any]
    minor: int

    @property
    def language(self) -> str:
        """The language of its code, as far as it says."""
        spec, info = (self.metadata.get(key, {}) for key in ("kernelspec", "language_info"))
        return str(spec.get("language") or info.get("name") or _PYTHON)

    @property
    def is_python(self) -> bool:
        """Whether a guest can run it."""
        return self.language.lower() in (_PYTHON, "ipython", "python3")


def read(content: bytes) -> Notebook:
    """Return the notebook in a file's content. Raise UnreadableError.

    This may block for seconds: a notebook of an older format is upgraded in another process.
    """
    document = read_notebook(content, upgraded, max_values=MAX_VALUES).document
    outputs = []
    for body in document["cells"]:
        found = body.pop("outputs", []) if body["cell_type"] == "code" else []
        outputs.append(found if type(found) is list else [])
    try:
        # What can be written again: finite numbers, no lone surrogates, not too deep.
        cleaner = Cleaner(nodes=MAX_VALUES, chars=MAX_FILE_BYTES, depth=_MAX_DEPTH)
        document = dict(cleaner.clean(document))
    except TooLargeError:
        raise UnreadableError("is nested too deeply, or holds too much") from None
    for body in document["cells"]:  # what an earlier run has left goes
        if body["cell_type"] == "code":
            body["outputs"], body["execution_count"] = [], None
        if type(body.get("metadata")) is dict:
            body["metadata"].pop("trusted", None)
            body["metadata"].pop(EXECUTION, None)
    minor = document.get("nbformat_minor")
    if type(minor) is not int or not minor >= 0:
        raise UnreadableError("says no number of a minor format (nbformat_minor)")
    if minor >= WITH_IDS:
        _add_ids(document["cells"])
    else:  # some tools write them there, and Jupyter runs the notebook
        for body in document["cells"]:
            body.pop("id", None)
    try:
        _validator(min(minor, WITH_IDS))(document)
    except ValueError as error:  # it is fastjsonschema's
        raise UnreadableError(f"is no valid notebook: {error}") from None
    metadata = {k: v for k, v in document["metadata"].items() if k not in _DROPPED_METADATA}
    return Notebook(tuple(map(Cell, document["cells"], outputs)), metadata, minor)


def _add_ids(bodies: list[dict[str, Any]]) -> None:
    """Give cells without an id of their own one that depends on their place alone."""
    seen = set[str]()
    for number, body in enumerate(bodies, 1):
        name = body.get("id")
        if type(name) is not str or not _ID.fullmatch(name) or name in seen:
            name = body["id"] = _unused(
                f"cell-{number}", (f"-{n}" for n in itertools.count(1)), seen
            )
        seen.add(name)


def _unused(name: str, suffixes: Iterable[str], taken: set[str]) -> str:
    """Return a name that is not taken: this one, or this one with a suffix."""
    names = (name + suffix for suffix in itertools.chain([""], suffixes))
    return next(one for one in names if one not in taken)


@functools.cache
def _validator(minor: int) -> Callable[[Any], Any]:
    """Return a function that raises for what nbformat's schema of this format does not allow.

    nbformat itself is not imported: where jsonschema's formats are installed, which come with
    Jupyter's server, that takes seconds.
    """
    spec = importlib.util.find_spec("nbformat")
    (folder,) = (spec and spec.submodule_search_locations) or ("",)
    schema = json.loads(Path(folder, "v4", f"nbformat.v4.{minor}.schema.json").read_bytes())
    found: Callable[[Any], Any] = fastjsonschema.compile(schema)
    return found


def warm_up() -> None:
    """Compile the schema of most notebooks before the first one is read."""
    _validator(WITH_IDS)


# --- parameters: a cell after the one that is tagged ``parameters``, as papermill adds it ---------
# Source: papermill's ``parameterize_notebook``. Without such a tag cells find parameters in
# ``inputs`` alone, where they are in any case.

_PARAMETERS_TAG: Final = "parameters"
_INJECTED_TAG: Final = "injected-parameters"
#: Characters of a value that is written out; a longer one is taken from ``inputs``.
_MAX_VALUE: Final = 1_000


def with_parameters(notebook: Notebook, parameters: Mapping[str, Any]) -> Notebook:
    """Return a notebook with a cell that sets the parameters whose names Python can use.

    It replaces the one that an earlier run has added.
    """
    lines = [
        f"{name} = {_expression(name, value)}"
        for name, value in parameters.items()
        if name.isidentifier() and not keyword.iskeyword(name)
    ]
    cells, place = notebook.cells, None
    for number, cell in enumerate(cells):
        if cell.is_code and _INJECTED_TAG in cell.tags:
            place = number, number + 1
            break
        if place is None and cell.is_code and _PARAMETERS_TAG in cell.tags:
            place = number + 1, number + 1
    if not lines or place is None:
        return notebook
    body: dict[str, Any] = {
        "cell_type": "code",
        "source": "\n".join(["# Parameters", *lines]),
        "metadata": {"tags": [_INJECTED_TAG]},
        "outputs": [],
        "execution_count": None,
    }
    if notebook.minor >= WITH_IDS:
        taken = {cell.body["id"] for cell in cells}
        body["id"] = _unused(_INJECTED_TAG, ("-" * n for n in itertools.count(1)), taken)
    return replace(notebook, cells=(*cells[: place[0]], Cell(body, []), *cells[place[1] :]))


def _expression(name: str, value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_VALUE else f"inputs[{name!r}]"


# --- what is written of a cell before and after it ran --------------------------------------------

#: The key in a cell's metadata with the times at which it ran.
EXECUTION: Final = "execution"
#: Outputs of one cell that are kept from an earlier run.
_MAX_OLD_OUTPUTS: Final = 1_000
_JSON_TYPES: Final = ("application/json", "+json")


def cell_before_run(cell: Cell, display: str) -> dict[str, Any]:
    """Return a cell as it is written before the notebook runs.

    A cell that will not run keeps its outputs, cleaned as a guest's are under this ``display``.
    """
    if cell.outputs and not cell.runs:
        return cell.body | {"outputs": clean_outputs(cell.outputs, display)}
    return cell.body


def cell_after_run(cell: Cell, result: Result, times: tuple[str, str]) -> dict[str, Any]:
    """Return a cell that ran, without its outputs; its times have nbclient's names."""
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
    """Return what may be shown of outputs in a file under a policy's ``display``."""
    show = gateway.for_display(display)
    made = (_clean_output(one, show) for one in list(outputs)[:_MAX_OLD_OUTPUTS])
    return [one for one in made if one is not None]


def _clean_output(one: Any, show: gateway.Show) -> dict[str, Any] | None:
    if type(one) is not dict:
        return None
    kind = one.get("output_type")
    match kind:
        case "stream":
            name = "stderr" if one.get("name") == "stderr" else "stdout"
            text = gateway.clean_stream(_in_one_piece(one.get("text")))
            return {"output_type": kind, "name": name, "text": text}
        case "error":
            parts = (one.get("ename"), one.get("evalue"), one.get("traceback"))
            return {"output_type": kind, **gateway.clean_error(*parts)}
        case "display_data" | "execute_result":
            data = one.get("data")
            data = data if type(data) is dict else {}
            bundle = {
                k: v if k.endswith(_JSON_TYPES) else _in_one_piece(v) for k, v in data.items()
            }
            made = {"output_type": kind, "data": show(bundle)}
            made["metadata"] = gateway.clean_metadata(one.get("metadata"))
            if kind == "display_data":
                return made
            count = one.get("execution_count")
            valid = type(count) is int and 0 <= count < 1 << 31
            return made | {"execution_count": count if valid else None}
    return None


def _in_one_piece(text: Any) -> Any:
    """Return a text that is written as a list of lines as one string."""
    if type(text) is list and all(type(line) is str for line in text):
        return "".join(text)
    return text
