"""What the server answers with. `raw` is the whole answer, with fields that are newer than this package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Json = Mapping[str, Any]
EndKind = Literal["exited", "signalled", "timed_out", "oom_killed", "lost"]
Channel = Literal["stdout", "stderr", "pty"]


@dataclass(frozen=True)
class CommandEnd:
    """The one end of a command. `exit_code` is there if it exited, `signal` if one ended it."""

    kind: EndKind
    exit_code: int | None = None
    signal: str | None = None
    reason: str | None = None

    @classmethod
    def parse(cls, raw: Json) -> CommandEnd:
        return cls(raw["kind"], raw.get("exitCode"), raw.get("signal"), raw.get("reason"))


@dataclass(frozen=True)
class ExecResult:
    id: str
    exit_code: int
    """As a shell shows it: 128 and the signal for a command that a signal ended."""
    stdout: str
    stderr: str
    end: CommandEnd
    truncated: bool
    duration_ms: float
    denied: tuple[Json, ...]
    """What the network policy denied while it ran."""

    @classmethod
    def parse(cls, raw: Json) -> ExecResult:
        return cls(
            raw["id"],
            raw["exitCode"],
            raw["stdout"],
            raw["stderr"],
            CommandEnd.parse(raw["end"]),
            raw["truncated"],
            raw["durationMs"],
            tuple(raw.get("denied") or ()),
        )


@dataclass(frozen=True)
class ExecEvent:
    """One event of a stream: `started`, output with `data`, `gap`, or `end`."""

    type: Literal["started", "stdout", "stderr", "pty", "gap", "end"]
    id: str | None = None
    pid: int | None = None
    offset: int | None = None
    data: str = ""
    bytes: int = 0
    end: CommandEnd | None = None
    exit_code: int | None = None

    @classmethod
    def parse(cls, raw: Json) -> ExecEvent:
        return cls(
            raw["type"],
            raw.get("id"),
            raw.get("pid"),
            raw.get("offset"),
            raw.get("data", ""),
            raw.get("bytes", 0),
            CommandEnd.parse(raw["end"]) if "end" in raw else None,
            raw.get("exitCode"),
        )


@dataclass(frozen=True)
class FileInfo:
    name: str
    path: str
    type: Literal["file", "directory", "symlink", "fifo", "socket", "block", "char"]
    size: int
    mode: int
    uid: int
    gid: int
    modified_at_ms: int
    target: str | None

    @classmethod
    def parse(cls, raw: Json) -> FileInfo:
        return cls(
            raw["name"],
            raw["path"],
            raw["type"],
            raw["sizeBytes"],
            raw["mode"],
            raw["uid"],
            raw["gid"],
            raw["modifiedAtMs"],
            raw.get("target"),
        )


@dataclass(frozen=True)
class ExposedPort:
    port: int
    visibility: Literal["private", "public"]
    url: str
    open_url: str
    token: str | None

    @classmethod
    def parse(cls, raw: Json) -> ExposedPort:
        return cls(raw["port"], raw["visibility"], raw["url"], raw["openUrl"], raw.get("token"))


@dataclass(frozen=True)
class Snapshot:
    id: str
    sandbox: str
    name: str | None
    turn: int | None
    memory: bool
    quiet: bool
    bytes: int | None
    parent: str | None
    raw: Json = field(repr=False)

    @classmethod
    def parse(cls, raw: Json) -> Snapshot:
        return cls(
            raw["id"],
            raw["sandbox"],
            raw["name"],
            raw["turn"],
            raw["memory"],
            raw["quiet"],
            raw["bytes"],
            raw["parent"],
            raw,
        )


@dataclass(frozen=True)
class SandboxInfo:
    id: str
    name: str | None
    state: Literal["creating", "active", "paused", "stopped", "failed", "destroying"]
    workdir: str
    user: str
    template: str
    runtime: str | None
    labels: Mapping[str, str]
    turn: int
    paused_as: str | None
    ports: tuple[ExposedPort, ...]
    raw: Json = field(repr=False)

    @classmethod
    def parse(cls, raw: Json) -> SandboxInfo:
        return cls(
            raw["id"],
            raw["name"],
            raw["state"],
            raw["workdir"],
            raw["user"],
            raw["template"],
            raw["runtime"],
            raw["labels"],
            raw["turn"],
            raw["pausedAs"],
            tuple(ExposedPort.parse(port) for port in raw["ports"]),
            raw,
        )


@dataclass(frozen=True)
class RolledBack:
    sandbox: SandboxInfo
    kept: Snapshot | None
    """What was there before; a rollback to it undoes this one."""

    @classmethod
    def parse(cls, raw: Json) -> RolledBack:
        kept = raw["kept"]
        return cls(SandboxInfo.parse(raw["sandbox"]), None if kept is None else Snapshot.parse(kept))


@dataclass(frozen=True)
class FileChange:
    path: str
    change: Literal["added", "removed", "modified", "renamed"]
    origin: str | None
    """Where a renamed file was."""
    type: Literal["file", "directory", "symlink", "other"]

    @classmethod
    def parse(cls, raw: Json) -> FileChange:
        return cls(raw["path"], raw["change"], raw.get("from"), raw["type"])


@dataclass(frozen=True)
class ToolResult:
    tool: str
    tier: Literal[1, 2]
    content: tuple[Json, ...]
    structured: Json
    is_error: bool
    exit_code: int | None
    snapshot: str | None
    repeated: bool
    raw: Json = field(repr=False)

    @property
    def text(self) -> str:
        return "".join(block["text"] for block in self.content if block["type"] == "text")

    @classmethod
    def parse(cls, raw: Json) -> ToolResult:
        return cls(
            raw["tool"],
            raw["tier"],
            tuple(raw["content"]),
            raw["structured"],
            raw["isError"],
            raw.get("exitCode"),
            raw.get("snapshot"),
            raw["repeated"],
            raw,
        )
