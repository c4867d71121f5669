"""Sandboxes: cells from a program, under the policy and the locks that a kernel has.

``AsyncSandbox`` is a session's front on an asyncio loop; ``Sandbox`` runs one in a thread. What a
cell meets is the kernel's own way of running it (``host.cell``). Users import from ``cellblock``.
"""
