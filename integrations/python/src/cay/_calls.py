"""Every verb of the API as a description of one request, without sending it.

`Sandbox` and `AsyncSandbox` send the same descriptions, so that neither knows more than the other.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from .models import (
    ExecResult,
    ExposedPort,
    FileInfo,
    RolledBack,
    SandboxInfo,
    Snapshot,
    ToolResult,
)

T = TypeVar("T")
Command = str | Sequence[str]
SnapshotRef = str | int
QueryValue = str | int | bool | Sequence[str] | None

USUAL_S = 60.0
"""How long an ordinary answer may take."""
LONG_S = 600.0
"""How long a create, a snapshot or an archive may take."""
SLACK_S = 30.0
"""How much later than a command's own timeout its answer may come."""


@dataclass(frozen=True)
class Call(Generic[T]):
    method: str
    path: str
    parse: Callable[[bytes], T]
    body: object = None
    content: bytes | None = None
    query: Mapping[str, QueryValue] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float | None = USUAL_S
    """None waits for ever."""


def _nothing(_: bytes) -> None:
    return None


def _whole(body: bytes) -> bytes:
    return body


def _as(parse: Callable[[Mapping[str, Any]], T]) -> Callable[[bytes], T]:
    return lambda body: parse(json.loads(body))


def _any(body: bytes) -> Any:
    return json.loads(body) if body else None


def some(**fields: Any) -> dict[str, Any]:
    """The fields that were given."""
    return {name: value for name, value in fields.items() if value is not None}


def at(sandbox: str, rest: str = "") -> str:
    return f"/v1/sandboxes/{quote(sandbox, safe='')}{rest}"


def command_of(command: Command) -> dict[str, Any]:
    return {"shell": command} if isinstance(command, str) else {"argv": list(command)}


def _keyed(key: str | None) -> dict[str, str]:
    return {} if key is None else {"idempotency-key": key}


def create(request: Mapping[str, Any], idempotency_key: str | None) -> Call[SandboxInfo]:
    return Call(
        "POST",
        "/v1/sandboxes",
        _as(SandboxInfo.parse),
        dict(request),
        headers=_keyed(idempotency_key),
        timeout_s=LONG_S,
    )


def get(sandbox: str) -> Call[SandboxInfo]:
    return Call("GET", at(sandbox), _as(SandboxInfo.parse))


def list_page(labels: Mapping[str, str], state: str | None, cursor: str | None) -> Call[Any]:
    label = [f"{key}={value}" for key, value in labels.items()]
    query: dict[str, QueryValue] = {"label": label, "state": state, "cursor": cursor}
    return Call("GET", "/v1/sandboxes", _any, query=query)


def remove(sandbox: str) -> Call[None]:
    return Call("DELETE", at(sandbox), _nothing, timeout_s=LONG_S)


def verb(sandbox: str, name: str, body: Mapping[str, Any] | None = None) -> Call[SandboxInfo]:
    """`start`, `stop`, `pause`, `resume`, `lease`."""
    return Call("POST", at(sandbox, f"/{name}"), _as(SandboxInfo.parse), body, timeout_s=LONG_S)


def update(sandbox: str, changes: Mapping[str, Any]) -> Call[SandboxInfo]:
    return Call("PATCH", at(sandbox), _as(SandboxInfo.parse), dict(changes))


def exec_(sandbox: str, body: Mapping[str, Any], key: str | None) -> Call[ExecResult]:
    timeout_ms = body.get("timeoutMs")
    timeout_s = None if timeout_ms is None else timeout_ms / 1000 + SLACK_S
    return Call(
        "POST",
        at(sandbox, "/exec"),
        _as(ExecResult.parse),
        dict(body),
        headers=_keyed(key),
        timeout_s=timeout_s,
    )


def stream(sandbox: str, body: Mapping[str, Any], key: str | None) -> Call[bytes]:
    # An empty line comes at least every 30 seconds from a stream that is alive.
    return Call(
        "POST", at(sandbox, "/exec"), _whole, dict(body), headers=_keyed(key), timeout_s=2 * USUAL_S
    )


def launch(sandbox: str, body: Mapping[str, Any], key: str | None) -> Call[Any]:
    return Call("POST", at(sandbox, "/commands"), _any, dict(body), headers=_keyed(key))


def stdin(sandbox: str, command: str, data: bytes, close: bool) -> Call[None]:
    return Call(
        "POST",
        at(sandbox, f"/commands/{quote(command, safe='')}/stdin"),
        _nothing,
        content=data,
        query={"close": close},
        timeout_s=LONG_S,
    )


def output(sandbox: str, command: str, offset: int, encoding: str) -> Call[bytes]:
    path = at(sandbox, f"/commands/{quote(command, safe='')}/output")
    return Call("GET", path, _whole, query={"offset": offset, "encoding": encoding}, timeout_s=2 * USUAL_S)


def signal(sandbox: str, command: str, name: str) -> Call[None]:
    path = at(sandbox, f"/commands/{quote(command, safe='')}/signal")
    return Call("POST", path, _nothing, {"signal": name})


def read(
    sandbox: str, path: str, user: str | None, offset: int | None, length: int | None
) -> Call[bytes]:
    headers = {}
    if offset is not None or length is not None:
        end = "" if length is None else str((offset or 0) + length - 1)
        headers["range"] = f"bytes={offset or 0}-{end}"
    query = some(path=path, user=user)
    return Call("GET", at(sandbox, "/files"), _whole, query=query, headers=headers, timeout_s=LONG_S)


def write(
    sandbox: str, path: str, content: bytes, user: str | None, mode: int | None, append: bool
) -> Call[FileInfo]:
    query = some(
        path=path,
        user=user,
        mode=None if mode is None else f"{mode:o}",
        append=append or None,
    )
    return Call(
        "PUT", at(sandbox, "/files"), _as(FileInfo.parse), content=content, query=query, timeout_s=LONG_S
    )


def stat(sandbox: str, path: str, user: str | None, follow: bool) -> Call[FileInfo]:
    query = some(path=path, user=user, follow=follow)
    return Call("GET", at(sandbox, "/files/stat"), _as(FileInfo.parse), query=query)


def list_files(sandbox: str, path: str, user: str | None, depth: int | None) -> Call[bytes]:
    return Call("GET", at(sandbox, "/files/list"), _whole, query=some(path=path, user=user, depth=depth))


def remove_file(sandbox: str, path: str, user: str | None, recursive: bool) -> Call[None]:
    query = some(path=path, user=user, recursive=recursive or None)
    return Call("DELETE", at(sandbox, "/files"), _nothing, query=query)


def file_verb(sandbox: str, name: str, **fields: Any) -> Call[None]:
    """`mkdir`, `move`, `chmod`, `chown`, `symlink`."""
    return Call("POST", at(sandbox, f"/files/{name}"), _nothing, some(**fields))


def download(sandbox: str, path: str, user: str | None) -> Call[bytes]:
    query = some(path=path, user=user)
    return Call("GET", at(sandbox, "/files/tar"), _whole, query=query, timeout_s=LONG_S)


def upload(sandbox: str, path: str, tar: bytes, user: str | None) -> Call[None]:
    return Call(
        "PUT",
        at(sandbox, "/files/tar"),
        _nothing,
        content=tar,
        query=some(path=path, user=user),
        headers={"content-type": "application/x-tar"},
        timeout_s=LONG_S,
    )


def take(sandbox: str, kind: str, body: Mapping[str, Any]) -> Call[Snapshot]:
    """`snapshots` or `turns`."""
    return Call("POST", at(sandbox, f"/{kind}"), _as(Snapshot.parse), dict(body), timeout_s=LONG_S)


def snapshot_page(sandbox: str, cursor: str | None) -> Call[Any]:
    return Call("GET", at(sandbox, "/snapshots"), _any, query={"cursor": cursor})


def remove_snapshot(snapshot: str) -> Call[None]:
    return Call("DELETE", f"/v1/snapshots/{quote(snapshot, safe='')}", _nothing)


def rollback(sandbox: str, to: SnapshotRef, memory: bool, force: bool) -> Call[RolledBack]:
    body = {"to": to, "memory": memory, "force": force}
    return Call("POST", at(sandbox, "/rollback"), _as(RolledBack.parse), body, timeout_s=LONG_S)


def fork(sandbox: str, body: Mapping[str, Any], key: str | None) -> Call[list[SandboxInfo]]:
    def parse(answer: bytes) -> list[SandboxInfo]:
        return [SandboxInfo.parse(one) for one in json.loads(answer)["sandboxes"]]

    return Call("POST", at(sandbox, "/fork"), parse, dict(body), headers=_keyed(key), timeout_s=LONG_S)


def diff(
    sandbox: str, origin: SnapshotRef, to: SnapshotRef, paths: Sequence[str], form: str | None
) -> Call[bytes]:
    query: dict[str, QueryValue] = {"from": origin, "to": to, "path": paths, "format": form}
    return Call("GET", at(sandbox, "/diff"), _whole, query=query, timeout_s=LONG_S)


def tool(sandbox: str, name: str, body: Mapping[str, Any]) -> Call[ToolResult]:
    timeout_ms = body.get("timeoutMs")
    return Call(
        "POST",
        at(sandbox, f"/tools/{quote(name, safe='')}"),
        _as(ToolResult.parse),
        dict(body),
        timeout_s=None if timeout_ms is None else timeout_ms / 1000 + SLACK_S,
    )


def tools(dialect: str | None, form: str | None) -> Call[Any]:
    return Call("GET", "/v1/tools", _any, query={"dialect": dialect, "format": form})


def network(sandbox: str, policy: object | None) -> Call[Any]:
    """Reads the policy, or sets it."""
    if policy is None:
        return Call("GET", at(sandbox, "/network"), _any)
    return Call("PUT", at(sandbox, "/network"), _any, {"policy": policy})


def network_rules(sandbox: str, allow: Sequence[object], deny: Sequence[object]) -> Call[Any]:
    body = some(allow=list(allow) or None, deny=list(deny) or None)
    return Call("POST", at(sandbox, "/network/rules"), _any, body)


def attempts(sandbox: str, limit: int | None) -> Call[Any]:
    return Call("GET", at(sandbox, "/network/attempts"), _any, query={"limit": limit})


def expose(sandbox: str, port: int, visibility: str) -> Call[ExposedPort]:
    body = {"visibility": visibility}
    return Call("PUT", at(sandbox, f"/ports/{port}"), _as(ExposedPort.parse), body)


def stats(sandbox: str) -> Call[Any]:
    return Call("GET", at(sandbox, "/stats"), _any)


def capabilities() -> Call[Any]:
    return Call("GET", "/v1/capabilities", _any)


def build_context(tar: bytes) -> Call[Any]:
    headers = {"content-type": "application/x-tar"}
    return Call(
        "POST", "/v1/builds/contexts", _any, content=tar, headers=headers, timeout_s=LONG_S
    )


def build(body: Mapping[str, Any]) -> Call[Any]:
    return Call("POST", "/v1/builds", _any, body)


def build_log(build_id: str) -> Call[bytes]:
    return Call("GET", f"/v1/builds/{quote(build_id, safe='')}/log", _whole, timeout_s=None)


def template(name: str) -> Call[Any]:
    return Call("GET", f"/v1/templates/{quote(name, safe='')}", _any)
