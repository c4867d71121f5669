"""A run as JUnit XML, as CI servers read it: a test case for each notebook.

Source: the schema of Jenkins' xUnit plugin, which GitLab and others take, too.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Final
from xml.etree import ElementTree as ET

from cellblock.batch.formats.inert import inert
from cellblock.batch.run.fate import Fate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cellblock.batch.run.fate import Record

#: Fates that are the notebook's doing, and those that are not a test's failure but its end.
_FAILURES: Final = frozenset({Fate.failed, Fate.denied})
_SKIPPED: Final = frozenset({Fate.skipped, Fate.interrupted})
#: Characters that XML 1.0 can't carry, whatever they are written as.
_ILLEGAL: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(records: Sequence[Record], seconds: float) -> str:
    """Return the report. A CI runner that is shown it finds no command in it."""
    kinds = Counter(map(_element, records))
    counts = {
        "tests": str(len(records)),
        "failures": str(kinds["failure"]),
        "errors": str(kinds["error"]),
        "skipped": str(kinds["skipped"]),
        "time": f"{seconds:.3f}",
    }
    root = ET.Element("testsuites", {"name": "cellblock run", **counts})
    suite = ET.SubElement(root, "testsuite", {"name": "cellblock run", **counts})
    for record in records:
        _case(suite, record)
    ET.indent(root)
    return inert(ET.tostring(root, encoding="unicode", xml_declaration=False)) + "\n"


def _case(suite: ET.Element, record: Record) -> None:
    folder, _, name = _legal(record.notebook).rpartition("/")
    about = {"classname": folder or ".", "name": name, "time": f"{record.seconds:.3f}"}
    case = ET.SubElement(suite, "testcase", about)
    if (kind := _element(record)) is None:
        return
    where = f"cell {record.cell}: " if record.cell else ""
    text = _legal(record.reason)
    message = where + (text.splitlines() or [""])[0]
    told = ET.SubElement(case, kind, {"message": message, "type": record.fate.replace(" ", "-")})
    told.text = text


def _element(record: Record) -> str | None:
    if record.fate is Fate.passed:
        return None
    if record.fate in _FAILURES:
        return "failure"
    return "skipped" if record.fate in _SKIPPED else "error"


def _legal(text: str) -> str:
    return _ILLEGAL.sub("\N{REPLACEMENT CHARACTER}", text)
