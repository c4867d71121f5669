"""One cell, from its request to its reply: the part that a kernel and a sandbox share.

Invariant: everything shown passes the output gateway and the cell's quota. Nothing here knows a
protocol: outputs go to a ``Publisher`` as the type and content of a Jupyter message. A kernel
sends the message on iopub; a sandbox keeps it for the cell's ``Result``.

In reading order:

- ``cell``: ``Front``, which takes cells, and ``CellRun``, one cell until its reply.
- ``outputs``: passes on what the guest shows. ``quota`` bounds it, ``withheld`` counts what no
  front end was shown, ``comms`` handles the messages of widgets, and ``publishing`` has the
  Protocols that fronts implement to show outputs.
- ``transcript``: applies published outputs to each other, for fronts that keep the result: a
  ``Result``, a notebook.
- ``output_log``: keeps the whole text of cells that showed too much, for ``%output``.
- ``status``: makes the cards and tables about the session itself. ``written`` looks for files that
  a cell wrote and its user should hear of.
- ``refusals``: judges whether the policy was behind a call that failed, and what would allow it.
  ``lacking`` lists what a session lacks after a copy took over.

May import what the host may, but of ``host.session`` only ``types``, ``history`` and the type of a
config. Imported by fronts and by ``host.session``.
"""
