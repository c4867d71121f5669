"""A cell as every front has it run: what is shown of it, and what it is answered with.

Invariant: whatever is shown passes the output gateway and the cell's quota, and nothing here knows
a protocol: it goes to a ``Publisher`` in the words of Jupyter's messages, from which a kernel
makes messages, and a sandbox what it hands on.

In the order they are met:

- ``cell``: ``Front``, where cells come in, and ``CellRun``, one cell until its reply.
- ``outputs``: what the guest shows; ``quota``, how much of it; ``withheld``, what no front end was
  shown; ``comms``, widgets' messages; ``publishing``, the Protocols of what shows them.
- ``transcript``: what is seen of a cell once all that was published is applied, for fronts that
  keep it: a ``Result``, a notebook.
- ``output_log``: the whole text of cells that overflowed, for ``%output``.
- ``status``: cards and tables about the session itself; ``written``, what a cell wrote that its
  reader is told of.
- ``refusals``: what the OS layer refused a cell, and what would allow it; ``lacking``, in words,
  what a session lacks after a copy took over.

May import what the host may, but of ``host.session`` only ``types``, ``history`` and the type of a
config; is imported by fronts and by ``host.session``.
"""
