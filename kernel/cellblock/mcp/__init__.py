"""An MCP server: it runs a language model's cells in a sandbox under the operator's policy.

Invariant: each session has one sandbox. The model's arguments are data: they are bounded and
checked, and none of them makes the policy wider. Text of a cell, a file or a model reaches the
client only cleaned and bounded. Approvals are asked of the person at the client, never of the
model.

- ``session``: one client's sandbox, the tools and resources over it, and the questions to a person.
  It uses no types of the SDK's, so that the sandbox can start while the SDK is imported;
- ``staged``: the lines of a reply on staged files;
- ``server``: a session as a server of the official SDK, and that server over stdio;
- ``access``: which HTTP requests are let in, by token and names;
- ``settings``: the address and bounds of the server over HTTP, and the defaults of its options;
- ``http``: many sessions over streamable HTTP.

It imports ``api`` and the packages below it, but not ``jupyter``.
"""
