"""Say in a few lines how a notebook that ran under cellblock went.

python tools/summary.py NOTEBOOK.ipynb

All of it is read from the notebook's outputs; what they don't tell is reported as not told.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

DENIAL = "application/vnd.cellblock.denial+json"
ENFORCEMENT = "application/vnd.cellblock.enforcement+json"
OUTCOME = "application/vnd.cellblock.outcome+json"
POLICY = "application/vnd.cellblock.policy+json"


def summary(notebook: dict[str, Any]) -> list[str]:
    """Return the summary's lines."""
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    outputs = [output for cell in cells for output in cell["outputs"]]
    shown = {mime: _of(outputs, mime) for mime in (DENIAL, ENFORCEMENT, OUTCOME, POLICY)}
    errors = sum(output["output_type"] == "error" for output in outputs)
    reached = sum(cell["execution_count"] is not None for cell in cells)
    denied = len(shown[DENIAL])
    reports = shown[POLICY] + shown[ENFORCEMENT]
    return [
        f"cells    {reached} of {len(cells)} ran or were refused",
        f"denied   {denied}",
        f"stopped  {len(shown[OUTCOME])}",
        f"errors   {errors - denied} of the cells' own",
        f"policy   {_policy(reports)}",
        f"backend  {_backend(reports)}",
        *_gaps(reports),
    ]


def _of(outputs: list[dict[str, Any]], mime: str) -> list[dict[str, Any]]:
    return [output["data"][mime] for output in outputs if mime in output.get("data", {})]


def _policy(reports: list[dict[str, Any]]) -> str:
    for report in reports:
        policy = report["policy"]
        return str(policy["name"] if isinstance(policy, dict) else policy)
    return "not told: the notebook has no %policy cell and no gap was shown"


def _backend(reports: list[dict[str, Any]]) -> str:
    for report in reports:
        policy = report["policy"]
        found = report.get("backend") or (policy.get("backend") if isinstance(policy, dict) else "")
        if found:
            return str(found)
    return "not told"


def _gaps(reports: list[dict[str, Any]]) -> list[str]:
    if not reports:
        return ["gaps     none shown"]
    gaps = reports[0]["gaps"]
    lines = [f"gaps     {len(gaps) or 'none: everything in the policy is enforced here'}"]
    return lines + [f"         {gap['capability']}: {gap['consequence']}" for gap in gaps]


if __name__ == "__main__":
    print("\n".join(summary(json.loads(Path(sys.argv[1]).read_text("utf-8")))))
