"""cellblock: a Jupyter kernel that enforces policy on every cell.

Importing this package imports nothing else: kernel start-up is measured, and the guest must
not see the host's modules.
"""

__version__ = "0.1.0"
