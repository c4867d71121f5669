"""An MCP server: a language model's cells, run in a sandbox under the operator's policy.

Invariant: one session is one sandbox; the model's arguments are data, bounded and checked, and
none of them makes the policy wider. What a cell, a file or a model said reaches the client cleaned
and bounded only. What takes consent is asked of the person at the client, never of the model.

- ``session``: one client's sandbox, its tools and resources, and what waits for a person's answer.
  It knows nothing of MCP's types, so that the sandbox starts while the SDK is imported;
- ``staged``: what each reply says of staged files;
- ``server``: the same as an MCP server of the official SDK's, and over stdio;
- ``access``: which requests over HTTP are let in, by token and names;
- ``settings``: where the server over HTTP listens, and its bounds: the defaults of options;
- ``http``: many sessions over streamable HTTP, behind it.

It imports ``api`` and below, and nothing of Jupyter's.
"""
