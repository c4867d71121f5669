"""FRONT: ``cellblock run``. Notebooks run in guests that are forks of one warm zygote.

Invariants: a notebook is hostile, whoever named it. It is read within bounds, its cells run in a
guest and nowhere else, and whatever is wrong with it is its own result, never the end of the run.
What is written of it passed the gateway that a kernel's output passes. When a notebook has ended,
only its result is held in memory.

The parts, in the order a notebook meets them:

- `runner`: the run as a whole: from PATHS to notebooks and the names of their output files, so many
  notebooks at once, signals; the folder that it writes to, out of which no name leads, with the run
  log that a resumed run reads; a line for each notebook, the summary, and JUnit XML.
- `notebook`: bytes to cells that can be run, through the one reader of `batch.files`.
- `document`: the notebook that is written, held as bytes, and the form of its file.
- `outputs`: outputs and widgets from what cells show, written into the document.
- `execution`: one notebook from its bytes to its result, with the options of the run, under its
  time limits, with the policy that it gets and a pool of warm guests for each policy.

`execution` knows no run and writes no file, so that `batch.cluster` uses it in workers as it is.
This package may import `batch`, `api`, `jupyter.messages` and what is below the fronts.
"""
