"""Approvals: what a policy does not give by itself, and the user may allow when asked.

``wishes`` are what is asked for, exactly; ``answers`` what counts as one. ``asking`` puts one
question at a time, ``clerk`` decides who is asked at all, ``grants`` knows what was allowed before,
of which ``store`` keeps what was allowed for always. ``imports`` finds out what a cell would have
to be allowed.

Invariant: nothing that a guest says is an answer, and nothing is allowed that was not shown.
"""
