"""Language models for cells: the host asks them, with a key that no cell and no guest has.

Invariant: a cell names a model of the policy and gives texts; the host sends nothing else. What a
call may cost is reserved before it is made.

- ``provider``: in the host. The tools that cells see, the validation of what they ask, the
  session's quota, and the provider that has a worker ask.
- ``client``: in the worker, which alone knows the key; imports openai, so the host never does.

What goes between the two is data. Both build on ``tools``.
"""
