"""HOSTILE once confined: everything that runs in the zygote and in the guests forked from it.

Invariant: nothing here has a secret, and the host relies on nothing that it is told from here,
except its type and size. Of cellblock only ``analysis``, ``wire``, ``descriptors`` and ``errors``
are imported, besides msgspec, IPython and the standard library: no pydantic, no zmq, no ipykernel.

    host ── starts ──> reaper ── forks ──> zygote ── forks ──> guest ── forks ──> copies that wait
                                             └────── forks ──> mounter

In the order in which they run:

- Before anything large is imported: ``container_entry`` receives the zygote's descriptors in a
  container; ``reaper`` ends guests when host or zygote end; ``mounter`` is a process that may still
  mount when the zygote no longer may (with ``mounting``).
- ``zygote`` imports, prepares and forks. It runs no user code, and takes the locks of its guests
  before it imports what a policy names. Its ``Gatekeeper`` answers the calls that guests' gates
  stop.
- ``setup`` prepares what guests share (``library_patches``, ``guards``, ``shell``), and turns a
  fork into a guest, which takes its locks (``confine``) and serves one session. A guest may also
  only try its locks (``probes``) and end.
- ``server`` answers requests from the ``channel``; subshells answer some in other threads.
  ``runner`` runs a cell in the ``shell``, on the event loop of ``loop``. ``output`` sends what it
  shows, ``tracebacks`` prepares its errors, ``inspection`` looks names up. ``snapshots`` forks
  copies that wait, ``reserve`` sets memory aside for when a cell has taken all.
- What cells expect of ipykernel and IPython: ``kernel`` (ipykernel's objects and modules),
  ``launch`` (how Jupyter started the kernel), ``shell_escapes`` (``!command``), ``pip`` (``pip
  install``), ``children`` (``os.wait`` without copies), ``import_path`` (``sys.path`` if cells need
  approval), ``traceback_colours``.
- Explanations of failures, for the host: ``not_there`` (files that cells look for in vain),
  ``failed_programs`` (paths on a failed program's command line).
- ``host_services`` calls the host; ``images`` makes pictures smaller for language models.
- The language layer: ``rewriting`` changes a cell's syntax tree, ``guards`` and ``replacements``
  act at run time, ``audit_hook`` is the last defence. ``violations`` has their exceptions, and
  exempts our own calls from the audit hook. ``installed`` says where packages are.
"""
