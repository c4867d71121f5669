"""cellblock: a Jupyter kernel that enforces policy on every cell.

Importing this package imports nothing else: kernel start-up is measured, and the guest must
not see the host's modules. The names below are imported when they are first used; type checkers
read them in ``__init__.pyi``.
"""

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
    "Policy": "policy.model",
    "Sandbox": "api.blocking",
    "SandboxPool": "api.blocking",
    "Usage": "host.session.types",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - as said above

    return getattr(import_module(f"{__name__}.{_HOME.get(name, 'api.results')}"), name)
