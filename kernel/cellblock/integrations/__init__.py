"""Sandboxes behind the interfaces of agent frameworks: one module each, and an extra of its name.

- ``smolagents``: ``SandboxExecutor``, which a ``CodeAgent`` runs its code in;
- ``dspy``: ``SandboxInterpreter``, for modules such as ``dspy.RLM``;
- ``pydantic_ai``: ``SandboxToolset``, for an ``Agent``;
- ``langchain``: ``sandbox_tools``;
- ``code_sandboxes``: ``CellblockSandbox``, a provider for Datalayer's code-sandboxes;
- ``agents``: the base of the first two, and the texts for models that several share.

Each is a front over ``cellblock.Sandbox``: it decides nothing, and returns a sandbox's results in
the framework's types. A framework's tools run in the program, like the tools of any sandbox. Don't
confuse this package with ``cellblock.dspy``, a language model for programs *in* cells.
"""
