"""BOUNDARY between host and guest: frames and messages.

Invariant: every byte from the guest is hostile. A frame is bounded before it is read, decoded
strictly into one of the types in ``messages`` and nothing else; whatever does not fit is a
``WireError``, which costs the guest its life and the kernel nothing.

``frames`` cuts and checks bytes, ``messages`` has the types, ``values`` what crosses in calls of
tools, ``arrays`` arrays and tables, ``marks`` what says
in which order a guest wrote to its pipes. Only the standard library, msgspec and
``cellblock.errors`` may be imported here: the guest imports this package.
(``arrays`` uses the libraries whose arrays and tables there are, where they are installed.)
"""
