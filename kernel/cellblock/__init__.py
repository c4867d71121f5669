"""cellblock: a Jupyter kernel that enforces policy on every cell, and sandboxes for programs.

    from cellblock import Policy, Sandbox

    with Sandbox(Policy.preset("safe", timeout=10.0)) as sandbox:
        result = sandbox.execute("sum(range(10))")
        print(result.value)

``Sandbox`` runs cells; ``AsyncSandbox`` does so on an asyncio loop. Pools start each of many
sandboxes in milliseconds. ``execute`` returns a ``Result``. The exceptions are in
``cellblock.errors``.
"""

# Importing this package imports nothing else: kernels must start fast, and the guest must not have
# the host's modules. The names below are imported when they are first used. Type checkers and
# editors read them in ``__init__.pyi``.

__version__ = "0.1.0"
__all__ = [
    "ApprovalRequest",
    "Artifact",
    "AsyncSandbox",
    "AsyncSandboxPool",
    "CellError",
    "Change",
    "Denial",
    "Display",
    "File",
    "Image",
    "Output",
    "Policy",
    "Result",
    "Sandbox",
    "SandboxPool",
    "Stop",
    "ToolCall",
    "Usage",
    "Variable",
    "__version__",
]

_HOME = {
    "Artifact": "host.services.artifacts",
    "AsyncSandbox": "api.sandbox",
    "AsyncSandboxPool": "api.sandbox",
    "Change": "host.services.changes",
    "File": "host.services.exchange",
    "Image": "api.images",
    "Output": "host.cell.transcript",
    "Policy": "policy.model",
    "Sandbox": "api.blocking",
    "SandboxPool": "api.blocking",
    "ToolCall": "api.result_parts",
    "Usage": "host.session.types",
}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - as said above

    return getattr(import_module(f"{__name__}.{_HOME.get(name, 'api.results')}"), name)
