"""List the skipped tests of JUnit files; fail if one is of a backend or an escape.

python tools/skips.py FILE...

A skipped backend test is a gap in what was shown to hold, so CI counts it as a failure.
"""

from __future__ import annotations

import sys
from xml.etree import ElementTree as ET

NEVER_SKIPPED = ("tests.backends", "tests.escapes", "backends.", "escapes.")


def main(files: list[str]) -> int:
    """Print each skip with its reason; return the exit status."""
    wrong = 0
    for file in files:
        for case in ET.parse(file).iter("testcase"):  # noqa: S314  # pytest wrote it
            skipped = case.find("skipped")
            if skipped is None:
                continue
            module = case.get("classname", "")
            counts = module.startswith(NEVER_SKIPPED)
            wrong += counts
            mark = "must not be skipped" if counts else "skipped"
            print(f"{mark}: {module}::{case.get('name')}: {skipped.get('message')}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
