"""The processes that run cells: how they are started, spoken to, replaced and ended for certain.

Invariant: a process is signalled only through a pidfd that was checked, and no guest outlives its
host.

The parts, in the order in which a start meets them:

- ``spawn``: starts a zygote before anything else is imported, and closes the host's own process to
  others
- ``zygote``: one zygote's control socket; a session's own zygote, or one that several share
- ``process``: one guest, its channel and its process; ``pipes``: its stdout and stderr, in the
  order in which text was written
- ``supervisor``: provides a session with guests, and replaces a lost one; ``spare``: a guest that
  imports modules ahead of the first cell
- ``background``: processes that make a file for later sessions: matplotlib's list of fonts, and
  Vega, the library of altair's charts
- ``byte_code``: one more of these, which has Python keep byte code of what guests had to compile
- ``held_up``: a thread that ends whatever keeps the host waiting in a read of a guest's pipe
- ``worker_process``: worker processes of the host, for tools and for the network

The package may import ``wire``, ``policy``, ``errors``, ``descriptors``, ``guest.installed`` (which
says where packages are), and other packages of the host. ``spawn`` imports only what Python has
loaded anyway.
"""
