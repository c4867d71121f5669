"""TRUSTED: owns the policy and everything that decides.

Invariant: the host never runs a cell's code, never imports what a cell names, and never sends a
source to a guest that its own analysis has not passed. What comes back is data: typed by the wire,
bounded here, and shown only through ``host.output``.

Packages in here import each other; no module imports one that imports it. The front page of a
package says what it imports of the others.
"""
