"""FRONT: ``cellblock run``. Notebooks in guests that are forks of one warm zygote.

Invariants: a notebook is hostile, whoever named it. It is read within bounds, its cells run in a
guest and nowhere else, and whatever is wrong with it is its own fate, never the run's end. What is
written of it passed the gateway that a kernel's output passes. Nothing of a notebook is held once
it has ended but its record.
"""
