"""What a scripted model does in each framework, and where what it read goes.

These scripts run in a framework's own environment, in a folder that has the page's ``analyst.py``.
"""

import json

TASK = "Add up the amounts."
#: Tools and arguments, one call after the other; then the model says ``DONE``.
CALLS = [
    ("run_cell", {"code": "rows = ops.read_file('data/sales.csv').splitlines()[1:]"}),
    ("run_cell", {"code": "import subprocess"}),
    ("run_cell", {"code": "sum(float(row.split(',')[1]) for row in rows)"}),
    ("variables", {}),
]
DONE = "42.5"


def tell(answer, read):
    """Print what the agent answered, and what its model read of each call's result."""
    print(json.dumps({"answer": answer, "read": [str(one) for one in read]}))
