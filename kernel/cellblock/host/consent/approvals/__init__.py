"""Approvals: what a policy does not give by itself, and the user may allow when asked.

``request`` is what is asked for, exactly; ``prompt`` puts one question at a time and reads the
answer; ``approver`` decides whether anyone is asked at all, knows what was allowed before, and
finds out what a cell would have to be allowed; ``store`` keeps what was allowed for always.

Invariant: nothing that a guest says is an answer, and nothing is allowed that was not shown.
"""
