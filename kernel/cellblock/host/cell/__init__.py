"""A cell as every front has it run: what is shown of it, and what it is answered with.

Invariant: nothing here knows of a protocol. Whatever is shown goes, cleaned and within bounds, to
a ``Publisher`` in the words of Jupyter's messages, from which a kernel makes messages, and others
make what they hand on.
"""
