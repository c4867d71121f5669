"""The guests' processes: starting them, talking to them, and ending them for certain.

Invariant: a process is signalled only through a pidfd that was checked, and no guest outlives its
host.

``spawn`` starts a zygote before anything else is imported; ``wrapping_cache`` remembers what goes
around it. ``zygote`` and ``zygotes`` talk to zygotes, ``process`` is one guest and its socket;
``supervisor`` decides which guest serves, and replaces one that has ended. ``worker_process`` is a
confined helper of the host's own; ``own_process`` is what host and helpers do to themselves.
"""
