"""A session's admission: what may run is looked up anew when it has changed on disk.

A manifest that is written while a kernel runs counts from the next cell on, and so does one that is
taken back. What can't be trusted any more, the key too, stops every cell until it is mended.
"""

from __future__ import annotations

import ast
import os
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cellblock.analysis import admission
from cellblock.analysis.admission import Admitted, Template
from cellblock.analysis.template_rules import definitions
from cellblock.analysis.templates import StateError, entry, is_name, read_state
from cellblock.analysis.transform import parse
from cellblock.errors import AdmissionError
from cellblock.host.consent import manifest
from cellblock.policy.paths import within

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from cellblock.analysis.admission import Ruling
    from cellblock.host.consent.manifest import Place
    from cellblock.policy.model import Policy


#: Nanoseconds in which a file that was just written may be written once more unseen.
_UNSEEN: Final = 100_000_000
_REMEDY: Final = "Have it approved: cellblock approve NOTEBOOK, with this kernel's --policy."
Known = tuple[int, int, int, int]


class Gate:
    """Decides about cells. ``told`` hears what is in force: when that is read, and when it changes.

    It gets that, and where it is from.
    """

    def __init__(
        self, policy: Policy, project: Path, told: Callable[[Admitted, str], None] | None = None
    ) -> None:
        self._policy, self._project = policy, project
        self._tell = told or (lambda _admitted, _source: None)
        self._admitted = _without_cells(policy)
        self._place: Place | None = None
        #: The manifest's and the key's files as they were when they were read; None where they
        #: have to be.
        self._known: tuple[Known, Known] | None = None
        self._told: str | None = None

    @property
    def is_open(self) -> bool:
        """Whether every cell is admitted, and expressions beside cells are."""
        return self._admitted.kind == "any"

    @property
    def templates(self) -> Mapping[str, Template]:
        """The templates by name. Looking into it raises AdmissionError where they can't be read."""
        return self._admitted.templates

    def judge(self, raw: str) -> Ruling:
        """Decide about a cell. Raises AdmissionError where nothing can be decided."""
        if self._admitted.kind == "approved":
            self._see_to_manifest()
        elif self._admitted.kind == "template" and self._told is None:
            self._in_force(f"{len(self._admitted.templates)} templates")
        return admission.judge(raw, self._admitted)

    def judge_expression(self, text: str) -> Ruling:
        """Decide about a user_expression, after its cell. Never raises."""
        return admission.judge_expression(text, self._admitted)

    def _see_to_manifest(self) -> None:
        """Have the cells be those that the manifest has now. Raises AdmissionError."""
        from cellblock.host.consent import manifest  # noqa: PLC0415 - few kernels ask

        if self._place is None:
            self._place = manifest.Place(self._policy, self._project)
        key = _seen(self._place.key)
        if self._known is not None and self._known == (_seen(self._place.file), key):
            return
        self._known = None
        found, status = self._place.read()
        cells = manifest.approved(found)
        self._admitted = replace(self._admitted, cells=cells, remedy=_REMEDY)
        # The key as it was before it was read: one that was exchanged since is seen by the next.
        if key is not None and time.time_ns() - max(status.st_ctime_ns, key[-1]) > _UNSEEN:
            self._known = _of(status), key
        self._in_force(f"{self._place.file}, number {found.serial}")

    def _in_force(self, source: str) -> None:
        if source != self._told:
            self._told = source
            self._tell(self._admitted, source)


class Shipped(Mapping[str, "Template"]):
    """The templates in some folders, read when somebody first asks for one."""

    def __init__(self, folders: tuple[str, ...]) -> None:
        self._folders = folders
        self._found: dict[str, Template] | None = None

    def _read(self) -> dict[str, Template]:
        if self._found is None:
            self._found = load(self._folders)
        return self._found

    def __getitem__(self, name: str) -> Template:
        return self._read()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())


def of_notebook(policy: Policy, notebook: Path) -> Admitted:
    """Return what may run of one notebook: for those who check it before it is published.

    Raises AdmissionError where a kernel would run nothing.
    """
    admitted = _without_cells(policy)
    if policy.admission != "approved":
        return admitted
    from cellblock.host.consent import manifest  # noqa: PLC0415 - as above

    path = notebook.resolve()
    found, _ = manifest.Place(policy, path.parent).read()
    return replace(admitted, cells=manifest.approved(found, path.name), remedy=_REMEDY)


def _without_cells(policy: Policy) -> Admitted:
    """Return what a policy admits before any manifest is read."""
    listed = policy.mode != "safe" or "template" in policy.magics
    return Admitted(
        policy.admission,
        templates=Shipped(policy.templates.folders),
        calls=listed or policy.admission != "any",
    )


def _of(status: os.stat_result) -> Known:
    return (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _seen(file: Path) -> Known | None:
    try:
        return _of(os.stat(file, follow_symlinks=False))  # noqa: PTH116 - for each cell
    except OSError:
        return None


# Templates on disk: a folder holds ``NAME.py`` and ``NAME.schema.json`` for each.
#
# Names are never made into paths: a folder is listed, and what is in it is found by name. Files
# are opened once and judged by what was opened.

MOST_TEMPLATES: Final = 500
MOST_BYTES: Final = 1 << 20
#: Characters of what is told of a template.
_MOST_DOC: Final = 300
_SCHEMA: Final = ".schema.json"
_REPLACE: Final = "Put a file in its place."


def load(folders: Iterable[str]) -> dict[str, Template]:
    """Return the templates of all folders by name.

    Raises AdmissionError for a folder that is not there, a file that is not what it should be, or
    a name that two folders have.
    """
    found: dict[str, Template] = {}
    for folder in folders:
        for template in _in_folder(Path(folder)):
            if template.name in found:
                message = f"another folder has a template {template.name!r}, too"
                raise _wrong(Path(folder, f"{template.name}.py"), message, "Rename one.")
            found[template.name] = template
        if len(found) > MOST_TEMPLATES:
            raise _wrong(Path(folder), f"more than {MOST_TEMPLATES} templates", "Remove some.")
    return found


def _in_folder(folder: Path) -> Iterator[Template]:
    try:
        names = sorted(os.listdir(folder))  # noqa: PTH208 - names are what is wanted
        manifest.check_own(folder, folder.stat())
    except OSError as exc:
        remedy = "Make it, or take it out of templates.folders."
        raise _wrong(folder, f"can't be read: {exc.strerror}", remedy) from None
    for name in names:
        stem, dot, ending = name.rpartition(".")
        if ending == "py" and dot and not name.startswith((".", "_")):
            if not is_name(stem):
                remedy = "Begin it with a small letter; small letters, digits, - and _ may follow."
                raise _wrong(folder / name, "not a template's name", remedy)
            yield _template(folder, stem)


def _template(folder: Path, name: str) -> Template:
    source = _text(folder, f"{name}.py")
    schema = _schema(folder, f"{name}{_SCHEMA}")
    file = folder / f"{name}.py"
    for finding in (*definitions(source), *entry(source)):
        message = f"line {finding.line}: {finding.subject} {finding.why}"
        raise _wrong(file, message, finding.remedy)
    from cellblock.host.consent.template_schema import checker  # noqa: PLC0415 - slow to import

    check = checker(schema, str(folder / f"{name}{_SCHEMA}"))
    return Template(name, source, schema, check, _doc(source))


def _doc(source: str) -> str:
    doc = ast.get_docstring(parse(source)) or ""
    return doc.partition("\n")[0][:_MOST_DOC]


def _schema(folder: Path, name: str) -> Any:
    try:
        schema = read_state(_text(folder, name))
    except StateError as exc:
        message = f"line {exc.line}: {exc.message}"
        raise _wrong(folder / name, message, "Mend it there.") from None
    if isinstance(schema, dict):
        return schema
    raise _wrong(folder / name, "not a JSON schema: no object", "Mend it there.")


def _text(folder: Path, name: str) -> str:
    """Return a file's text. A link is followed where it stays in the folder, as config maps' do."""
    path, root = folder / name, os.path.realpath(folder)
    real = os.path.realpath(path)
    if not within(real, root):
        raise _wrong(path, f"a link leads out of the folder, to {real}", _REPLACE)
    try:
        content, status = manifest.read_file(Path(real), MOST_BYTES, what="it", remedy=_REPLACE)
    except FileNotFoundError:
        remedy = "Each template is a NAME.py and a NAME.schema.json."
        raise _wrong(path, "there is no such file", remedy) from None
    manifest.check_own(path, status)
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise _wrong(path, "it is not UTF-8", "Write it in UTF-8.") from None


def _wrong(path: Path, message: str, remedy: str) -> AdmissionError:
    return AdmissionError(message, file=str(path), key="templates.folders", remedy=remedy)
