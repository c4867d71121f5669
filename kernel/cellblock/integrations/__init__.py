"""Sandboxes behind the interfaces of agent frameworks: one module each, and an extra of its name.

- ``smolagents``: ``SandboxExecutor``, which a ``CodeAgent`` runs its code in;
- ``dspy``: ``SandboxInterpreter``, for modules such as ``dspy.RLM``;
- ``pydantic_ai``: ``SandboxToolset``, for an ``Agent``;
- ``langchain``: ``sandbox_tools``;
- ``code_sandboxes``: ``CellblockSandbox``, a provider of Datalayer's;
- ``agents``: what the first two share.

Each is a front over ``cellblock.Sandbox``: it decides nothing, and hands on what a sandbox says in
the framework's types. Tools of a framework run in the program, as tools of any sandbox do.
``cellblock.dspy`` is another thing: a language model for programs *in* cells.
"""
