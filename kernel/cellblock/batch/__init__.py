"""FRONT: many notebooks and scripts at once, for ``cellblock check``, ``run`` and ``learn``.

Invariant: the author of a file is a stranger. A file is read within bounds. Anything wrong with it
is a result for that file and never ends the command. No text of a file reaches a terminal, a CI
runner or a report before the commands in it are made harmless (`report_formats.inert`).

The parts, in the order in which a checked file meets them:

- `files`: finding the files that PATHS name, and opening them without following links; the one
  reader of notebooks, for check, run and cluster; positions in a notebook's text; writing the file
  of a report.
- `check`: a whole run of ``cellblock check``, and its worker processes, which have little time and
  memory each.
- `judge`: the verdict on the content of a file, by the kernel's own analysis.
- `verdict`: the values that the parts exchange, the limits of a worker, and the rules that only
  check has.
- `report_formats`: a report as text, JSON, SARIF and GitHub annotations.

`run` executes notebooks in guests of this process; `cluster` does so on a Dask cluster. `learn`
proposes a policy for notebooks, from what check and runs refuse them.

This package may import everything below the fronts, and `api` and `jupyter.messages`. `judge`,
`files`, `verdict` and `report_formats` import neither host nor guest, and start no process.
"""
