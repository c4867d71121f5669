"""What each cell of each lesson shows, by the cell's id; ``…`` stands for anything.

Of HTML and of drawings it is their source, of cards the plain text. A cell without an entry shows
nothing. What the first cell shows of gaps is the machine's, and left out.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import nbformat

ANSI = re.compile(r"\x1b\[[0-9;]*m")
_CARD = "application/vnd.cellblock."
_OURS = 'role="group" aria-label="'
_GAPS = "application/vnd.cellblock.enforcement+json"
_KINDS = ("application/vnd.jupyter.widget-view+json", "image/svg+xml", "image/png", "text/html")

DENIED = (
    "cellblock did not run this cell: 1 finding … line 1…Instead: {}…PolicyDenied: 1 finding: {}"
)
CLAIMS = {
    "admission": {
        "area": "area 28.27\n",
        "edge": "edge 18.85\n",
        "usage": "Usage: … cells…",
    },
    "api": {
        "result": "(True, 'adding\\n', '45')",
        "gaps": "landlock…\n",
        "denied": (
            "The cell was not run: 1 finding (policy safe).\n\nline 1: import-not-allowed: gc …\n"
            "    import gc\n\nThe operator can allow it, by …\n"
        ),
        "stopped": "timeout 0.5 s kept\n45\n",
        "tools": ("15.0\nprice ('tea',) {'pieces': 2} 7.0\nprice ('cake',) {'pieces': 2} 8.0\n"),
        "policy": "The cell failed: MemoryError…",
        "pool": "'Hello, Ada'\n'Hello, Grace'\n",
    },
    "approvals": {
        "once": "day,degrees\nmon,11.5\ntue,13.0\nwed,9.5\nthu,12.0\n\n",
        "session": "186",
        "unasked": ("lesson/measurements.csv 47\nlesson/orders.json 186\n/etc/passwd NotGranted\n"),
        "no": "ToolError: ops.write_file: NotApproved: you said no",
        "always": "[['day,degrees'], ['mon,11.5']]",
        "never": "…line 1…subprocess …PolicyDenied: 1 finding: …",
        "own": "'417 always'",
    },
    "audit": {
        "well": "45",
        "denied": "…line 1…socket…PolicyDenied: 1 finding: …",
        "fails": "ZeroDivisionError: division by zero",
        "policy": "…audit…",
    },
    "batch": {
        "check": (
            "lesson/sent/cy.ipynb:cell 1:1:8: import-not-allowed\n…\n"
            "1 finding in 1 of 3 files · policy safe\n"
        ),
        "run": "…passed          lesson/sent/ada.ipynb…3 notebooks: 1 passed, 1 denied, 1 timed out; …",
        "resume": "…3 notebooks: 1 passed, 1 denied, 1 timed out (1 of them in an earlier run); …",
        "look": ("ada.ipynb []\nbob.ipynb ['CellStopped']\ncy.ipynb ['PolicyDenied']\n"),
    },
    "branches": {
        "first": "3.17",
        "second": "On branch median. It goes on from raw.\nYour variables are as they were there.\n…",
        "unspoilt": "[3.0, 4.0, 15.9, 2.5]",
        "median": "3.5",
        "back": "On branch main.\nYour variables are as they were there.\n…",
        "own": "([3.0, 4.0, 2.5], 3.17)",
        "absent": "NameError: name 'largest' is not defined",
        "again": "On branch median.\n…",
        "there": "(3.5, 15.9)",
        "list": "On branch median.\nBranches: median, main.\nCheckpoints: raw.\n%branch NAME …",
        "drop": "On branch median.\nBranches: median.\nCheckpoints: raw.\n%branch NAME …",
        "kept": "3.5",
    },
    "dspy": {
        "asked": "'temperature'",
        "state": (
            "Say what a note of a weather station is about: instrument, weather or people.\n"
            "- The wind vane is stuck in the north. → instrument\n"
            "- Fog until ten. → weather\n"
            "- A school class came to visit. → people\n"
        ),
        "better": "'instrument'",
        "together": "['weather', 'instrument']",
        "beyond": "[llama3.2] the host carries no top_p\n[another] llm.chat: ValidationError: …\n",
        "again": "'instrument'",
        "left": "…llm: 16 of 20 calls and … of 20,000 tokens are left for this session.…",
        "out": "…1 file copied out\n  artifacts/sorter.json  … bytes  application/json",
    },
    "inputs": {
        "given": "ops.install: fetching roman …\nops.install: roman 5.2\n('Rome', 3)",
        "kept": "TypeError: …",
        "package": "'MMXXVI'",
        "asked": "ops.install: fetching inflection …\nops.install: inflection 0.5.1\n'2026th'",
        "other": "ToolError: ops.install: NotGranted: humanize: it is not in allow of [ops.install]",
        "report": "…cake…1 file copied out\n  artifacts/totals.csv  … bytes  text/csv",
        "out": "[Errno …] …: '/etc/passwd'\n",
    },
    "limits": {
        "hangs": (
            "cellblock stopped this cell: it ran longer than 1 s (timeout).\n"
            "It was interrupted: your variables are there, with what it did until then.\n…"
        ),
        "killed": (
            "cellblock stopped this cell: it ran longer than 1 s (timeout).\n"
            "Your variables are as they were before it.\nTo raise it, …CellStopped: …"
        ),
        "restored": "([3.1, 4.1, 5.9, 2.6], 3.925)",
        "memory": "MemoryError: [cellblock: under policy limits cells can't hold more memory than 256 MiB…",
        "undo": "Cell [6] is undone.\nYour variables are as they were before [6].\n…",
        "undone": "[3.1, 4.1, 5.9, 2.6]",
        "flood": "line 0\n…[cellblock left out … bytes of stdout here: …%output 9]\n…line 999\n",
        "kept": "Output kept on disk\n  cell 9, stdout, 8,890 bytes: %output 9",
        "usage": "Usage: 10 cells, …for number in…",
    },
    "llm": {
        "asked": "Rhine, Tiber, Akerselva\n",
        "known": "('llama3.2-2026', 'stop', …, 3)",
        "together": "{'Rome': 'Tiber', 'Oslo': 'Akerselva'}",
        "beyond": "ValidationError: …another…\nValidationError: …\n",
        "key": "…line 3…PolicyDenied: 1 finding: …",
        "left": "…llm(…llm: 17 of 20 calls and … of 20,000 tokens are left for this session.…",
    },
    "narrow": {
        "before": "…<table…Ada…",
        "narrowed": (
            "The policy is narrower from the next cell on\n  read_deny_paths …\n"
            "  timeout                    600 s → 10 s\n"
            "Your variables are kept, and cells run under the new limits.\n…"
        ),
        "denied": "[Errno …] …: 'lesson/private/stations.csv'\n",
        "rest": "…<table…thu…",
        "kept": "2",
        "wider": "…line 1…PolicyDenied: 1 finding: policy-only-narrows …",
    },
    "network": {
        "asked": "(200, 'text/csv', 'day,degrees')",
        "refused": "…\n…\n…\n",
        "connected": "200 b'day,degrees'\n",
        "library": "…<table…thu…",
        "unlisted": "<urlopen error [Errno …] …>\n<urlopen error [Errno …] …>\n",
        "narrowed": "The policy is narrower from the next cell on\n  network_access …",
        "cut": "<urlopen error [Errno …] …>\n",
    },
    "operations": {
        "denied": (
            "…line 1…ops.read_file…"
            'text = ops.read_file("lesson/measurements.csv")\n…PolicyDenied: 1 finding: …'
        ),
        "listed": "file    measurements.csv\nfile    orders.json\nfolder  private\nfolder  sent\n…",
        "read": "[['mon', '11.5'], ['tue', '13.0'], ['wed', '9.5'], ['thu', '12.0']]",
        "beyond": "NotGranted: /etc/passwd…\nNotGranted: …\nNotGranted: …\n",
        "written": "11",
        "together": "{'measurements.csv': 47, 'summary.txt': 11}",
        "other": "ToolError: ops.http: NotGranted: …[ops.http]…",
        "left": "…ops.write_file: … of 1,000,000 bytes are left for this session.…",
    },
    "output": {
        "table": "…<style…<table…13.0…",
        "figure": "<image/png>",
        "formula": "…$\\bar x…11.50$.",
        "remote": "<b>The text stays.</b>…cellblock left out…",
        "script": '…<iframe…sandbox="allow-scripts"…',
        "chart": '…<iframe…sandbox="allow-scripts"…',
        "widget": "<widget>",
        "cleaned": "<widget>",
    },
    "panel": {
        "degrees": "11.5",
        "denied": "…line 1…socket…PolicyDenied: 1 finding: …",
        "undo": "Cell […] is undone.\nYour variables are as they were before […].\n…",
        "after": "[11.5, 13.0, 9.5, 12.0]",
    },
    "templates": {
        "listed": "2 templates shipped\n  describe: …\n  table: …",
        "schema": "Template describe\n…maxItems…",
        "described": "{'count': 4,…'mean': 11.5,…",
        "table": "…| day | degrees |\n…\\<…b\\>tue…",
        "unfit": "…$.numbers[1]…PolicyDenied: 2 findings: template-state …",
        "code": "…PolicyDenied: 1 finding: not-a-template …",
    },
    "tools": {
        "listed": "5 tools of the policy's\n  python_version()\n…async latest(…publish(…",
        "called": "Python 3.…, and …% of the disk is free\n",
        "own": (
            "[{'day': '2026-06-03', 'degrees': 49.1},\n {'day': '2026-06-04', 'degrees': 53.6}]"
        ),
        "unfit": "ValidationError | …\n…readings…\n",
        "async": "'9 degrees warmer in the south'",
        "secret": "publish | PermissionError | that is not the password\n'12 degrees, 04 June'",
    },
    "tour": {
        "policy": "…",
        "ambient": "… in Auckland\nmean …, deviation …\n",
        "display": "…random walk…<svg…",
        "await": "[0, 1, 4, 9, 16]",
        "denied": "…2 findings…PolicyDenied: 2 findings: …",
        "disguised": "…PolicyDenied: 1 finding: name-not-allowed …",
        "kept": "(201, …)",
        "timeit": "… per loop …",
        "match": "['the origin',\n …]",
        "error": "ZeroDivisionError: division by zero",
    },
}


def shown(cell: nbformat.NotebookNode) -> str:
    """Return what a cell that ran shows."""
    return ANSI.sub("", "".join(map(_of, cell.outputs))).replace("\r\n", "\n")


def fits(claim: str, text: str) -> bool:
    """Say whether a text is what a claim says."""
    return bool(re.fullmatch(".*".join(map(re.escape, claim.split("…"))), text, re.DOTALL))


def _of(output: Any) -> str:
    if output.output_type == "stream":
        return str(output.text)
    if output.output_type == "error":
        return f"{output.ename}: {output.evalue}"
    data = output.data
    if _GAPS in data:
        return ""
    if any(kind.startswith(_CARD) for kind in data) or _OURS in data.get("text/html", ""):
        return str(data["text/plain"])
    for kind in _KINDS:
        if kind in data:
            return {"image/png": "<image/png>"}.get(kind) or (
                "<widget>" if "widget" in kind else str(data[kind])
            )
    return str(data.get("text/markdown") or data["text/plain"])
