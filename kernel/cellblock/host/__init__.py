"""TRUSTED: owns the policy and everything that decides.

Invariant: the host never runs a cell's code, never imports what a cell names, and never sends a
source to a guest that its own analysis has not passed. What comes back is data: typed by the wire,
bounded here, and shown only through ``host.output``.

- ``session``: one user's cells; ``cell`` and ``output``: what a cell shows, and what of that is let
  through;
- ``guests``: the processes; ``state`` and ``snapshots``: which of them is the guest, and its
  copies; ``limits``: what ends a request;
- ``services``: what the host does for cells; ``consent``: what was approved; ``audit``: the log;
- ``probes``: runs the suite of probes in guests that never serve;
- ``reactor``: the Protocol of the loop that a session lives in;
- ``threads``: work in folders that cells write to, each piece in a thread of its own;
- ``files``, ``sparse``: files of the host, and files that have holes.

Packages in here import each other; no module imports one that imports it. The front page of a
package says what it imports of the others.
"""
