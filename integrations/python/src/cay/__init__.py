"""Client of Cay: sandboxes, their commands, files, snapshots and network.

    with Sandbox.create() as sandbox:
        print(sandbox.exec("python3 --version").stdout)

`AsyncSandbox` has the same verbs for asyncio.
"""

from .aio import AsyncSandbox
from .errors import ERROR_CODES, CayError
from .models import (
    CommandEnd,
    ExecEvent,
    ExecResult,
    ExposedPort,
    FileChange,
    FileInfo,
    RolledBack,
    SandboxInfo,
    Snapshot,
    ToolResult,
)
from .sandbox import Sandbox

__all__ = [
    "ERROR_CODES",
    "AsyncSandbox",
    "CayError",
    "CommandEnd",
    "ExecEvent",
    "ExecResult",
    "ExposedPort",
    "FileChange",
    "FileInfo",
    "RolledBack",
    "Sandbox",
    "SandboxInfo",
    "Snapshot",
    "ToolResult",
]
