"""HOSTILE once confined: everything that runs in the zygote and in the guests forked from it.

Invariant: nothing here holds a secret, and nothing the host does depends on what is reported
from here beyond its type and size. Of cellblock only ``analysis``, ``wire``, ``descriptors`` and
``errors`` are imported, beside them msgspec, IPython and the standard library: no pydantic, no zmq,
no ipykernel.

In the order in which they are met:

- ``container_entry`` and ``reaper`` run before anything of weight is imported, and so does
  ``mounter``, a process that may mount where a zygote no longer may (``mounting``).
- ``zygote`` imports, prepares and forks. It never runs a user's byte, and is under its guests'
  locks before it imports what a policy names. Its ``Gatekeeper`` answers the calls that guests'
  gates stop.
- ``setup`` is what a zygote prepares (``library_patches``, ``guards``, ``shell``) and
  how a fork becomes a guest: it confines itself (``confine``) and serves one session. A guest that
  only tries its locks is ``probes``.
- ``server`` takes one request after the other from the ``channel``, and its subshells take some
  beside it; ``runner`` runs a cell, on ``loop``; ``output`` sends what it shows, ``tracebacks``
  what went wrong; ``inspection`` looks names up. ``snapshots`` forks copies that wait,
  ``reserve`` sets memory aside for a cell that makes room.
- What cells expect of ipykernel and IPython: ``kernel``, what libraries find of ipykernel;
  ``launch``, how Jupyter started the kernel; ``shell_escapes``, ``!command``; ``pip``, ``pip
  install``; ``children``, ``os.wait`` without copies; ``import_path``, ``sys.path`` where cells are
  admitted; ``traceback_colours``, made once.
- What explains a failure: ``not_there``, what cells look for in vain; ``failed_programs``, paths on
  a failed program's command line.
- ``host_services`` calls the host; ``images`` makes pictures smaller for language models.
- The language layer: ``rewriting`` of a cell's tree, ``guards`` and ``replacements`` at run time,
  ``audit_hook`` last. ``violations`` has the exceptions that these raise, and our own code's calls
  that the audit hook permits; ``installed`` is where packages are.
"""
