"""What the user allows beyond the policy.

Invariant: nothing that a guest says is an answer, and nothing is allowed that was not shown. What
is read from files counts only if the user's key vouches for it (manifests), or if it lies where the
operator said and nobody else can write (templates). What is missing, damaged or somebody else's
allows nothing.

- `store`: the signed manifests of all that was approved for good, and the key.

Admission, where only cells that were approved run, in the order in which it is met:

- `review`: what approving a notebook would change; approving it.
- `admission`: decides about a cell as it comes; also templates, which a cell may name.
- `template_schema`: validates the values that a template takes.

Approvals, which a user is asked for while a session runs:

- `approver`: decides whether anyone is asked, knows what was allowed before, and finds out what a
  cell would have to be allowed; puts one question at a time and reads the answer.
- `request`: what is asked for, exactly; `shown_tables`, how a table among it is shown.
- `grants`: what was allowed before, for a cell, the session or always.

May import what the host may, but of ``host.session`` only ``types``.
"""
