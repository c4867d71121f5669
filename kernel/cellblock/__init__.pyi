from cellblock.api.blocking import Sandbox, SandboxPool
from cellblock.api.images import Image
from cellblock.api.result_parts import ToolCall
from cellblock.api.results import (
    ApprovalRequest,
    CellError,
    Denial,
    Display,
    Result,
    Stop,
    Variable,
)
from cellblock.api.sandbox import AsyncSandbox, AsyncSandboxPool
from cellblock.host.cell.transcript import Output
from cellblock.host.services.artifacts import Artifact
from cellblock.host.services.changes import Change
from cellblock.host.services.exchange import File
from cellblock.host.session.types import Usage
from cellblock.policy.model import Policy

__version__: str
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
