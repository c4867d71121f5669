"""Templates on disk: a folder holds ``NAME.py`` and ``NAME.schema.json`` for each.

Names are never made into paths: a folder is listed, and what is in it is found by name. Files are
opened once and judged by what was opened.
"""

from __future__ import annotations

import ast
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cellblock.analysis.admission import Template
from cellblock.analysis.definitions import definitions
from cellblock.analysis.state import StateError, read_state
from cellblock.analysis.templates import entry, is_name
from cellblock.analysis.transform import parse
from cellblock.errors import AdmissionError
from cellblock.host.admission import files
from cellblock.policy.paths import within

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

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
        files.check_own(folder, folder.stat())
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
    from cellblock.host.admission.schema import checker  # noqa: PLC0415 - slow to import

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
        content, status = files.read(Path(real), MOST_BYTES, what="it", remedy=_REPLACE)
    except FileNotFoundError:
        remedy = "Each template is a NAME.py and a NAME.schema.json."
        raise _wrong(path, "there is no such file", remedy) from None
    files.check_own(path, status)
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise _wrong(path, "it is not UTF-8", "Write it in UTF-8.") from None


def _wrong(path: Path, message: str, remedy: str) -> AdmissionError:
    return AdmissionError(message, file=str(path), key="templates.folders", remedy=remedy)
