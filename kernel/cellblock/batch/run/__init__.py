"""FRONT: ``cellblock run``. Notebooks run in guests that are forked from one warm zygote.

Invariants: a notebook is hostile, whoever named it. It is read within bounds, its cells run only in
a guest, and anything wrong with it is a result of its own, never the end of the run. All output
that is written to its file has passed the gateway, as a kernel's output has. When a notebook has
ended, only its result stays in memory.

The parts, in the order in which a notebook meets them:

- `runner`: the run as a whole: the notebooks that PATHS name and their output files, running
  several at once, signals; the output folder, which no name leads out of, and the run log, which a
  resumed run reads; a line for each notebook, the summary, and JUnit XML.
- `notebook`: from bytes to cells that can be run, by the one reader of `batch.files`.
- `document`: the notebook that is written, held as bytes, and the form of its file.
- `outputs`: the outputs and widgets that cells show, written into the document.
- `execution`: one notebook from its bytes to its result: its policy, a pool of warm guests for each
  policy, and its time limits.

`execution` knows nothing of a run and writes no file, so `batch.cluster` uses it unchanged in
workers. This package may import `batch`, `api`, `jupyter.messages` and everything below the fronts.
"""
