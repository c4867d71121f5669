"""FRONT: many notebooks and scripts at once, for ``cellblock check``, ``run`` and ``learn``.

Invariant: the author of a file is a stranger. A file is read within bounds, what is wrong with it
is a result for that file and never the end of the command, and nothing of it reaches a terminal, a
CI runner or a report before its commands are made harmless (`report_formats.inert`).

The parts, in the order a checked file meets them:

- `files`: from PATHS to files, opened without following links; the one reader of notebooks, for
  check, run and cluster, and positions in their text; and the file of a report.
- `check`: a whole run of ``cellblock check``, and its processes with little time and memory each.
- `judge`: from the content of a file to its verdict, with the kernel's own analysis.
- `verdict`: the values that the parts exchange, the limits of a worker, the rules of check alone.
- `report_formats`: a report as text, JSON, SARIF and GitHub annotations.

`run` executes notebooks in guests of this process; `cluster` does the same on a Dask cluster.
`learn` proposes a policy for notebooks, from what check and runs refuse them.

This package may import everything below the fronts, and `api` and `jupyter.messages`. `judge`,
`files`, `verdict` and `report_formats` import neither host nor guest and start no process.
"""
