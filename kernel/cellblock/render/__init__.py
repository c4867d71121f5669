"""PURE: findings, gaps and outcomes in, mime bundles out.

Invariant: whatever text comes in (source excerpts, module names, policy values) leaves escaped,
with control, bidirectional and invisible characters spelled out. Nothing here reads a file, an
environment variable or a clock, and no card refers to anything remote.

One module per card: ``denial``, ``gaps``, ``policy_table``, ``stopped``, ``problem``.
"""
