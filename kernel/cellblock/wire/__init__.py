"""BOUNDARY between host and guest: frames and messages.

Invariant: every byte from the guest is hostile. A frame is bounded before it is read, and decoded
strictly into one of the types in ``messages``. Whatever does not fit is a ``WireError``, which ends
the guest and costs the kernel nothing.

- ``frames`` cuts a byte stream into frames, and bounds and decodes them;
- ``messages`` has the types;
- ``values`` encodes the data of tool calls and variables, ``arrays`` arrays and tables in them;
- ``marks`` says in which order a guest wrote to its pipes.

The guest imports this package, so it may import only the standard library, msgspec and
``cellblock.errors``. (``arrays`` uses numpy, pandas, polars, pyarrow and Pillow if they are there.)
"""
