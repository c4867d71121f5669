"""The processes that run cells: how they are started, spoken to, replaced and ended for certain.

Invariant: a process is signalled only through a pidfd that was checked, and no guest outlives its
host.

The parts, in the order in which a start meets them:

- ``spawn``: starts a zygote before anything else is imported, in what went around the last one, and
  closes the host to others.
- ``zygote``: one zygote's control socket; a session's own, or one that several share.
- ``process``: one guest, its channel and its output; ``pipes``, its stdout and stderr, in the order
  in which text was written.
- ``supervisor``: which guest serves a session, and where the next one comes from; ``spare``, one
  that imports ahead.
- ``background``: processes that make a file for later sessions, while the kernel goes on:
  matplotlib's list of fonts, and Vega, the library of altair's charts.
- ``byte_code``: one more, which has Python keep byte code of what guests had to compile.
- ``held_up``: a thread that ends what keeps the host waiting in a read of a guest's pipe.
- ``worker_process``: confined helpers of the host's own, for tools and for the network.

May import ``wire``, ``policy``, ``errors``, ``descriptors``, where ``guest.installed`` says that
packages are, and other packages of the host; ``spawn`` only what is loaded at once.
"""
