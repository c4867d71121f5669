"""Consent: what the user allows beyond the policy.

Invariant: nothing that a guest writes counts as an answer, and nothing is allowed that was not
shown. A file counts only if the user's key signed it (manifests), or if it is in the operator's
folder where nobody else can write (templates). A file that is missing, damaged or somebody else's
allows nothing.

- `store`: the signed manifests of everything that was approved for good, and the key.

Admission, under policies that run approved cells or templates only, in the order of its steps:

- `review`: shows what approving a notebook would change, and approves it.
- `admission`: decides about each cell, and reads the templates that a cell may name.
- `template_schema`: validates the values that a cell gives a template.

Approvals, which a user is asked for while a session runs:

- `approver`: finds the imports that a cell would need, decides whether the user must be asked, puts
  one question at a time and reads the answer.
- `request`: what exactly is asked for; `shown_tables` shows a table in it.
- `grants`: what was allowed before, for a cell, the session or always.

May import what the host may, but of ``host.session`` only ``types``.
"""
