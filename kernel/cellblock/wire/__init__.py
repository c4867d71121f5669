"""BOUNDARY between host and guest: frames and messages.

Invariant: every byte from the guest is hostile. A frame is bounded before it is read, decoded
strictly into one of the types in ``messages`` and nothing else; whatever does not fit is a
``WireError``, which costs the guest its life and the kernel nothing.

Only the standard library and msgspec may be imported here: the guest imports this package.
"""
