"""A sandbox, from outside, for asyncio. `make_sync.py` writes `sandbox.py` from this file."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from types import TracebackType
from typing import Any

from . import _calls as calls
from ._calls import Command, SnapshotRef, some
from ._transport import AsyncTransport
from .errors import CayError
from .models import (
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


class AsyncSandbox:
    """Made by `create` or `connect`. At the end of a `with` block the sandbox is removed."""

    def __init__(self, transport: AsyncTransport, info: SandboxInfo) -> None:
        self._transport = transport
        self.info = info
        """The last answer of the server; `refresh` asks again."""
        self.id = info.id
        self.files = AsyncFiles(transport, info.id, info.workdir)
        self.network = AsyncNetwork(transport, info.id)

    @classmethod
    async def create(
        cls,
        *,
        url: str | None = None,
        api_key: str | None = None,
        idempotency_key: str | None = None,
        **request: Any,
    ) -> AsyncSandbox:
        """Makes a sandbox. The request's fields are those of the API: `template`, `limits`, `network`…"""
        transport = AsyncTransport(url, api_key)
        try:
            return cls(transport, await transport.send(calls.create(request, idempotency_key)))
        except BaseException:
            await transport.close()
            raise

    @classmethod
    async def connect(
        cls, ref: str, *, url: str | None = None, api_key: str | None = None
    ) -> AsyncSandbox:
        """A sandbox that exists, by its id or its name."""
        transport = AsyncTransport(url, api_key)
        try:
            return cls(transport, await transport.send(calls.get(ref)))
        except BaseException:
            await transport.close()
            raise

    @classmethod
    async def list(
        cls,
        *,
        labels: Mapping[str, str] | None = None,
        state: str | None = None,
        url: str | None = None,
        api_key: str | None = None,
    ) -> AsyncIterator[AsyncSandbox]:
        """All sandboxes of the key's project, newest first."""
        transport = AsyncTransport(url, api_key)
        cursor: str | None = None
        while True:
            page = await transport.send(calls.list_page(labels or {}, state, cursor))
            for one in page["sandboxes"]:
                yield cls(transport, SandboxInfo.parse(one))
            cursor = page["nextCursor"]
            if cursor is None:
                return

    async def exec(
        self,
        command: Command,
        *,
        env: Mapping[str, str] | None = None,
        workdir: str | None = None,
        user: str | None = None,
        input: str | None = None,
        timeout_ms: int | None = None,
        max_output_bytes: int | None = None,
        idempotency_key: str | None = None,
    ) -> ExecResult:
        """Runs a shell line, or a program with its arguments, to its end."""
        body = {
            **calls.command_of(command),
            **some(
                env=env,
                workdir=workdir,
                user=user,
                input=input,
                timeoutMs=timeout_ms,
                maxOutputBytes=max_output_bytes,
            ),
        }
        return await self._transport.send(calls.exec_(self.id, body, idempotency_key))

    async def stream(
        self,
        command: Command,
        *,
        env: Mapping[str, str] | None = None,
        workdir: str | None = None,
        user: str | None = None,
        input: str | None = None,
        timeout_ms: int | None = None,
        id: str | None = None,
    ) -> AsyncIterator[ExecEvent]:
        """The same, event by event. Leaving the loop does not end the command; `signal` does."""
        body = {
            **calls.command_of(command),
            **some(
                env=env, workdir=workdir, user=user, input=input, timeoutMs=timeout_ms, id=id
            ),
        }
        async for event in self._transport.lines(calls.stream(self.id, body, None)):
            yield ExecEvent.parse(event)

    async def launch(
        self,
        command: Command,
        *,
        env: Mapping[str, str] | None = None,
        workdir: str | None = None,
        user: str | None = None,
        stdin: bool | None = None,
        timeout_ms: int | None = None,
        idempotency_key: str | None = None,
    ) -> str:
        """Starts a command in the background. Its output and its end are recorded under this id."""
        body = {
            **calls.command_of(command),
            **some(env=env, workdir=workdir, user=user, stdin=stdin, timeoutMs=timeout_ms),
        }
        launched = await self._transport.send(calls.launch(self.id, body, idempotency_key))
        return str(launched["command"]["id"])

    async def write_stdin(self, command: str, data: bytes, *, close: bool = False) -> None:
        await self._transport.send(calls.stdin(self.id, command, data, close))

    async def output(self, command: str, *, offset: int = 0) -> AsyncIterator[ExecEvent]:
        """The output of a command that was launched, until it ends."""
        call = calls.output(self.id, command, offset, "utf8")
        async for event in self._transport.lines(call):
            yield ExecEvent.parse(event)

    async def output_bytes(self, command: str) -> AsyncIterator[tuple[str, bytes]]:
        """The same as channel and bytes, for output that is not text."""
        call = calls.output(self.id, command, 0, "base64")
        async for event in self._transport.lines(call):
            if event["type"] in ("stdout", "stderr", "pty"):
                yield event["type"], base64.b64decode(event["data"])

    async def signal(self, command: str, name: str = "SIGTERM") -> None:
        await self._transport.send(calls.signal(self.id, command, name))

    async def snapshot(
        self,
        name: str | None = None,
        *,
        memory: bool = False,
        labels: Mapping[str, str] | None = None,
    ) -> Snapshot:
        """Keeps what the sandbox is now: its files, and with `memory` its processes."""
        body = some(name=name, memory=memory, labels=labels)
        return await self._transport.send(calls.take(self.id, "snapshots", body))

    async def turn(self, *, wait_ms: int | None = None) -> Snapshot:
        """Waits for running commands, keeps what the sandbox is, and gives it the next number."""
        return await self._transport.send(calls.take(self.id, "turns", some(waitMs=wait_ms)))

    async def snapshots(self) -> AsyncIterator[Snapshot]:
        """Its snapshots and turns, newest first."""
        cursor: str | None = None
        while True:
            page = await self._transport.send(calls.snapshot_page(self.id, cursor))
            for one in page["snapshots"]:
                yield Snapshot.parse(one)
            cursor = page["nextCursor"]
            if cursor is None:
                return

    async def remove_snapshot(self, snapshot: str) -> None:
        await self._transport.send(calls.remove_snapshot(snapshot))

    async def rollback(
        self, to: SnapshotRef, *, memory: bool = False, force: bool = False
    ) -> RolledBack:
        """Goes back to a snapshot, its name, or a turn's number. What was there is kept first."""
        result = await self._transport.send(calls.rollback(self.id, to, memory, force))
        self.info = result.sandbox
        return result

    async def fork(
        self,
        count: int = 1,
        *,
        memory: bool | None = None,
        name_prefix: str | None = None,
        labels: Mapping[str, str] | None = None,
        origin: SnapshotRef | None = None,
        idempotency_key: str | None = None,
    ) -> Sequence[AsyncSandbox]:
        """Sandboxes that go on from what this one is, or from the snapshot `origin`."""
        body = {
            "count": count,
            **some(memory=memory, namePrefix=name_prefix, labels=labels, **{"from": origin}),
        }
        children = await self._transport.send(calls.fork(self.id, body, idempotency_key))
        return [AsyncSandbox(self._transport, child) for child in children]

    async def diff(
        self, origin: SnapshotRef, to: SnapshotRef = "now", *, paths: Sequence[str] = ()
    ) -> AsyncIterator[FileChange]:
        """What has changed, path by path."""
        call = calls.diff(self.id, origin, to, paths, None)
        async for change in self._transport.lines(call):
            yield FileChange.parse(change)

    async def diff_stat(
        self, origin: SnapshotRef, to: SnapshotRef = "now", *, paths: Sequence[str] = ()
    ) -> Mapping[str, Any]:
        """How much has changed, in files and lines."""
        answer = await self._transport.send(calls.diff(self.id, origin, to, paths, "stat"))
        stat: Mapping[str, Any] = json.loads(answer)
        return stat

    async def patch(
        self, origin: SnapshotRef, to: SnapshotRef = "now", *, paths: Sequence[str] = ()
    ) -> bytes:
        """What has changed as a patch that `git apply` takes."""
        return await self._transport.send(calls.diff(self.id, origin, to, paths, "patch"))

    async def tool(
        self,
        name: str,
        input: Mapping[str, Any],
        *,
        tool_call_id: str | None = None,
        dialect: str | None = None,
        timeout_ms: int | None = None,
        snapshot: bool | None = None,
    ) -> ToolResult:
        """Runs an agent tool. One `tool_call_id` runs once, however often it is sent."""
        body = {
            "input": dict(input),
            **some(
                toolCallId=tool_call_id, dialect=dialect, timeoutMs=timeout_ms, snapshot=snapshot
            ),
        }
        return await self._transport.send(calls.tool(self.id, name, body))

    async def describe_tools(
        self, *, dialect: str | None = None, format: str | None = None
    ) -> Sequence[Mapping[str, Any]]:
        """The tools as a model API takes them."""
        answer = await self._transport.send(calls.tools(dialect, format))
        tools: Sequence[Mapping[str, Any]] = answer["tools"]
        return tools

    async def expose(self, port: int, *, visibility: str = "private") -> ExposedPort:
        return await self._transport.send(calls.expose(self.id, port, visibility))

    async def stats(self) -> Mapping[str, Any]:
        stats: Mapping[str, Any] = await self._transport.send(calls.stats(self.id))
        return stats

    async def capabilities(self) -> Mapping[str, Any]:
        """What sandboxes can do on this server."""
        found: Mapping[str, Any] = await self._transport.send(calls.capabilities())
        return found

    async def refresh(self) -> SandboxInfo:
        return await self._keep(calls.get(self.id))

    async def update(self, **changes: Any) -> SandboxInfo:
        """Changes labels, limits or timeout; the fields are those of the API."""
        return await self._keep(calls.update(self.id, changes))

    async def pause(self, level: str | None = None, *, wait_ms: int | None = None) -> SandboxInfo:
        """Pauses it. The next call that needs it wakes it."""
        return await self._keep(calls.verb(self.id, "pause", some(waitMs=wait_ms, **{"as": level})))

    async def resume(self) -> SandboxInfo:
        return await self._keep(calls.verb(self.id, "resume"))

    async def start(self) -> SandboxInfo:
        return await self._keep(calls.verb(self.id, "start"))

    async def stop(self, *, grace_ms: int | None = None) -> SandboxInfo:
        """Ends its processes and keeps its files."""
        return await self._keep(calls.verb(self.id, "stop", some(graceMs=grace_ms)))

    async def kill(self) -> None:
        """Removes it with all that it has. Gone already is done."""
        await self._transport.send(calls.remove(self.id))

    async def close(self) -> None:
        """Lets go of the connections; the sandbox stays. Forks share those of their parent."""
        await self._transport.close()

    async def __aenter__(self) -> AsyncSandbox:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self.kill()
        finally:
            await self.close()

    async def _keep(self, call: calls.Call[SandboxInfo]) -> SandboxInfo:
        self.info = await self._transport.send(call)
        return self.info


class AsyncFiles:
    """A sandbox's files. A relative path is below the sandbox's working directory."""

    def __init__(self, transport: AsyncTransport, sandbox: str, workdir: str) -> None:
        self._transport = transport
        self._sandbox = sandbox
        self._workdir = workdir.rstrip("/")

    def _absolute(self, path: str) -> str:
        return path if path.startswith("/") or path == "" else f"{self._workdir}/{path}"

    async def read(
        self,
        path: str,
        *,
        user: str | None = None,
        offset: int | None = None,
        length: int | None = None,
    ) -> bytes:
        call = calls.read(self._sandbox, self._absolute(path), user, offset, length)
        return await self._transport.send(call)

    async def read_text(self, path: str, *, user: str | None = None) -> str:
        return (await self.read(path, user=user)).decode()

    async def write(
        self,
        path: str,
        content: str | bytes,
        *,
        user: str | None = None,
        mode: int | None = None,
        append: bool = False,
    ) -> FileInfo:
        """Replaces the file in one step, making parents as needed."""
        data = content.encode() if isinstance(content, str) else content
        call = calls.write(self._sandbox, self._absolute(path), data, user, mode, append)
        return await self._transport.send(call)

    async def stat(self, path: str, *, user: str | None = None, follow: bool = False) -> FileInfo:
        return await self._transport.send(
            calls.stat(self._sandbox, self._absolute(path), user, follow)
        )

    async def exists(self, path: str, *, user: str | None = None) -> bool:
        try:
            await self.stat(path, user=user)
        except CayError as error:
            if error.code != "not_found":
                raise
            return False
        return True

    async def list(
        self, path: str = ".", *, user: str | None = None, depth: int | None = None
    ) -> AsyncIterator[FileInfo]:
        call = calls.list_files(self._sandbox, self._absolute(path), user, depth)
        async for entry in self._transport.lines(call):
            yield FileInfo.parse(entry)

    async def mkdir(self, path: str, *, user: str | None = None, mode: int | None = None) -> None:
        await self._verb("mkdir", path=self._absolute(path), user=user, mode=mode)

    async def move(
        self, origin: str, to: str, *, user: str | None = None, overwrite: bool | None = None
    ) -> None:
        paths = {"from": self._absolute(origin), "to": self._absolute(to)}
        await self._verb("move", user=user, overwrite=overwrite, **paths)

    async def remove(self, path: str, *, user: str | None = None, recursive: bool = False) -> None:
        await self._transport.send(
            calls.remove_file(self._sandbox, self._absolute(path), user, recursive)
        )

    async def chmod(self, path: str, mode: int, *, user: str | None = None) -> None:
        await self._verb("chmod", path=self._absolute(path), mode=mode, user=user)

    async def chown(self, path: str, owner: str, *, user: str | None = None) -> None:
        await self._verb("chown", path=self._absolute(path), owner=owner, user=user)

    async def symlink(self, path: str, target: str, *, user: str | None = None) -> None:
        await self._verb("symlink", path=self._absolute(path), target=target, user=user)

    async def download(self, path: str, *, user: str | None = None) -> bytes:
        """A whole tree as a tar archive."""
        return await self._transport.send(
            calls.download(self._sandbox, self._absolute(path), user)
        )

    async def upload(self, path: str, tar: bytes, *, user: str | None = None) -> None:
        """Unpacks a tar archive below `path`."""
        await self._transport.send(calls.upload(self._sandbox, self._absolute(path), tar, user))

    async def _verb(self, name: str, **fields: Any) -> None:
        await self._transport.send(calls.file_verb(self._sandbox, name, **fields))


class AsyncNetwork:
    """What a sandbox may reach outside."""

    def __init__(self, transport: AsyncTransport, sandbox: str) -> None:
        self._transport = transport
        self._sandbox = sandbox

    async def get(self) -> Mapping[str, Any]:
        return await self._send(calls.network(self._sandbox, None))

    async def set(self, policy: str | Mapping[str, Any]) -> Mapping[str, Any]:
        """Holds at once. Connections that are not allowed any more are cut."""
        return await self._send(calls.network(self._sandbox, policy))

    async def allow(self, *rules: object) -> Mapping[str, Any]:
        return await self._send(calls.network_rules(self._sandbox, rules, ()))

    async def deny(self, *rules: object) -> Mapping[str, Any]:
        return await self._send(calls.network_rules(self._sandbox, (), rules))

    async def attempts(self, *, limit: int | None = None) -> Sequence[Mapping[str, Any]]:
        """The latest attempts, the latest first."""
        answer = await self._transport.send(calls.attempts(self._sandbox, limit))
        attempts: Sequence[Mapping[str, Any]] = answer["attempts"]
        return attempts

    async def _send(self, call: calls.Call[Any]) -> Mapping[str, Any]:
        answer: Mapping[str, Any] = await self._transport.send(call)
        return answer
