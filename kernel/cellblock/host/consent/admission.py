"""Admission: decides which cells may run in a session, and reads the operator's templates.

A manifest that is written or taken back while a kernel runs counts from the next cell on. If the
manifest or the key can't be trusted any more, no cell runs until that is mended.

A folder of templates has a ``NAME.py`` and a ``NAME.schema.json`` for each. A name that a cell
gives is never made into a path: the folder is listed, and the name looked up in the list. Each file
is opened once, and the descriptor is judged.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cellblock.analysis import admission
from cellblock.analysis.admission import Admitted, Approved, Template, sha256
from cellblock.analysis.templates import StateError, definitions, entry, is_name, read_state
from cellblock.analysis.transform import parse
from cellblock.errors import AdmissionError
from cellblock.host.consent.store import check_own, of_cells, read_file
from cellblock.policy.paths import within

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from cellblock.analysis.admission import Ruling
    from cellblock.host.consent.store import Manifest, ManifestFile
    from cellblock.policy.model import Policy

_APPROVE_REMEDY: Final = (
    "Have it approved: cellblock approve NOTEBOOK, with this kernel's --policy."
)


class AdmissionGate:
    """The gate that each cell of a session passes.

    ``observe`` is called with what is admitted, and where that comes from, when it is first read
    and whenever it has changed.
    """

    def __init__(
        self,
        policy: Policy,
        project: Path,
        observe: Callable[[Admitted, str], None] = lambda _admitted, _source: None,
    ) -> None:
        self._policy = policy
        self._project = project
        self._observe = observe
        self._admitted = _without_cells(policy)
        self._place: ManifestFile | None = None
        #: The manifest that is in force.
        self._manifest: Manifest | None = None
        #: The source that was observed last.
        self._observed: str | None = None

    @property
    def is_open(self) -> bool:
        """Whether every cell and every user_expression is admitted."""
        return self._admitted.kind == "any"

    @property
    def templates(self) -> Mapping[str, Template]:
        """The templates by name. Its methods raise AdmissionError if they can't be read."""
        return self._admitted.templates

    def judge(self, raw: str) -> Ruling:
        """Decide about a cell. Raise AdmissionError if the manifest or templates can't be read."""
        if self._admitted.kind == "approved":
            self._read_manifest()
        elif self._admitted.kind == "template" and self._observed is None:
            self._put_in_force(f"{len(self._admitted.templates)} templates")
        return admission.judge(raw, self._admitted)

    def judge_expression(self, text: str) -> Ruling:
        """Decide about a user_expression, after its cell. Never raises."""
        return admission.judge_expression(text, self._admitted)

    def _read_manifest(self) -> None:
        """Admit the cells that the manifest has now. Raise AdmissionError."""
        if self._place is None:
            self._place = of_cells(self._policy, self._project)
        manifest = self._place.current()
        if manifest is not self._manifest:
            self._manifest = manifest
            self._admitted = replace(
                self._admitted, cells=approved(manifest), remedy=_APPROVE_REMEDY
            )
            self._put_in_force(f"{self._place.file}, number {manifest.serial}")

    def _put_in_force(self, source: str) -> None:
        if source != self._observed:
            self._observed = source
            self._observe(self._admitted, source)


def of_notebook(policy: Policy, notebook: Path) -> Admitted:
    """Return what may run of one notebook, for a check before it is published.

    Raise AdmissionError if a kernel would run none of it.
    """
    admitted = _without_cells(policy)
    if policy.admission != "approved":
        return admitted
    path = notebook.resolve()
    manifest = of_cells(policy, path.parent).read()
    return replace(admitted, cells=approved(manifest, path.name), remedy=_APPROVE_REMEDY)


def approved(manifest: Manifest, notebook: str | None = None) -> dict[str, Approved]:
    """Return the approved cells by their hash: of all notebooks, or of one."""
    return {
        sha256(cell.source): Approved(cell.source, record.subject, cell.number)
        for record in manifest.records
        if record.kind == "notebook" and notebook in (None, record.subject)
        for cell in record.cells
    }


def _without_cells(policy: Policy) -> Admitted:
    """Return what a policy admits before any manifest is read."""
    listed = policy.mode != "safe" or "template" in policy.magics
    return Admitted(
        policy.admission,
        templates=FolderTemplates(policy.templates.folders),
        calls=listed or policy.admission != "any",
    )


# --- templates on disk ----------------------------------------------------------------------------

MOST_TEMPLATES: Final = 500
MOST_BYTES: Final = 1 << 20
#: Characters that are shown of a template's docstring.
_MOST_DOC: Final = 300
_REPLACE_REMEDY: Final = "Put a file in its place."


class FolderTemplates(Mapping[str, Template]):
    """The templates in some folders, which are read when the first is looked up."""

    def __init__(self, folders: tuple[str, ...]) -> None:
        self._folders = folders
        self._found: dict[str, Template] | None = None

    def _templates(self) -> dict[str, Template]:
        if self._found is None:
            self._found = load(self._folders)
        return self._found

    def __getitem__(self, name: str) -> Template:
        return self._templates()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._templates())

    def __len__(self) -> int:
        return len(self._templates())


def load(folders: Iterable[str]) -> dict[str, Template]:
    """Return the templates of all folders by name.

    Raise AdmissionError for a folder that does not exist, a file that is not a template or schema,
    or a name that two folders have.
    """
    templates: dict[str, Template] = {}
    for folder in map(Path, folders):
        try:
            names = sorted(path.name for path in folder.iterdir())
            check_own(folder, folder.stat())
        except OSError as exc:
            remedy = "Make it, or take it out of templates.folders."
            raise _wrong(folder, f"can't be read: {exc.strerror}", remedy) from None
        for file in names:
            name, dot, ending = file.rpartition(".")
            if ending != "py" or not dot or file.startswith((".", "_")):
                continue
            if not is_name(name):
                remedy = "Begin it with a small letter; small letters, digits, - and _ may follow."
                raise _wrong(folder / file, "not a template's name", remedy)
            template = _template(folder, name)
            if name in templates:
                message = f"another folder has a template {name!r}, too"
                raise _wrong(folder / file, message, "Rename one.")
            templates[name] = template
        if len(templates) > MOST_TEMPLATES:
            raise _wrong(folder, f"more than {MOST_TEMPLATES} templates", "Remove some.")
    return templates


def _template(folder: Path, name: str) -> Template:
    """Read a template and its schema. Raise AdmissionError."""
    source = _text(folder, f"{name}.py")
    file = folder / f"{name}.schema.json"
    try:
        schema: Any = read_state(_text(folder, file.name))
    except StateError as exc:
        message = f"line {exc.line}: {exc.message}"
        raise _wrong(file, message, "Mend it there.") from None
    if not isinstance(schema, dict):
        raise _wrong(file, "not a JSON schema: no object", "Mend it there.")
    for finding in (*definitions(source), *entry(source)):
        message = f"line {finding.line}: {finding.subject} {finding.why}"
        raise _wrong(folder / f"{name}.py", message, finding.remedy)
    # jsonschema is slow to import, and few policies have templates.
    from cellblock.host.consent.template_schema import checker  # noqa: PLC0415 - see above

    doc = ast.get_docstring(parse(source)) or ""
    summary = doc.partition("\n")[0][:_MOST_DOC]
    return Template(name, source, schema, checker(schema, str(file)), summary)


def _text(folder: Path, name: str) -> str:
    """Return a file's text. Raise AdmissionError.

    A link is followed if it stays in the folder: Kubernetes makes such links for config maps.
    """
    path, root = folder / name, os.path.realpath(folder)
    real = os.path.realpath(path)
    if not within(real, root):
        raise _wrong(path, f"a link leads out of the folder, to {real}", _REPLACE_REMEDY)
    try:
        content, status = read_file(Path(real), MOST_BYTES, what="it", remedy=_REPLACE_REMEDY)
    except FileNotFoundError:
        remedy = "Each template is a NAME.py and a NAME.schema.json."
        raise _wrong(path, "there is no such file", remedy) from None
    check_own(path, status)
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise _wrong(path, "it is not UTF-8", "Write it in UTF-8.") from None


def _wrong(path: Path, message: str, remedy: str) -> AdmissionError:
    return AdmissionError(message, file=str(path), key="templates.folders", remedy=remedy)
