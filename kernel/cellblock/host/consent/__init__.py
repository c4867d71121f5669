"""What the user allows beyond the policy.

``admission`` is of whole cells before they run, by a signed manifest; ``approvals`` are asked for
while a session runs.

Invariant: nothing that a guest says is an answer, and nothing is allowed that was not shown.
"""
