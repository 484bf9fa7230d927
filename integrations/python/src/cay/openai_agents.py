"""A sandbox client of OpenAI Agents for Python.

    result = await Runner.run(agent, "Fix the test", run_config=RunConfig(
        sandbox=SandboxRunConfig(client=CaySandboxClient(), options=CaySandboxClientOptions())))
"""

from __future__ import annotations

import io
import uuid
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from agents.sandbox.errors import (
    ExecTimeoutError,
    ExecTransportError,
    ExposedPortUnavailableError,
    WorkspaceArchiveReadError,
    WorkspaceArchiveWriteError,
    WorkspaceReadNotFoundError,
    WorkspaceStartError,
    WorkspaceWriteTypeError,
)
from agents.sandbox.manifest import Manifest
from agents.sandbox.session import BaseSandboxSession, SandboxSession, SandboxSessionState
from agents.sandbox.session.manager import Instrumentation
from agents.sandbox.session.sandbox_client import BaseSandboxClient, BaseSandboxClientOptions
from agents.sandbox.snapshot import SnapshotBase, SnapshotSpec, resolve_snapshot
from agents.sandbox.types import ExecResult, ExposedPortEndpoint, User
from pydantic import Field

from ._calls import some
from .aio import AsyncSandbox
from .errors import CayError

_MOST_OUTPUT = 8 * 1024 * 1024


class CaySandboxClientOptions(BaseSandboxClientOptions):
    """What sandboxes are made with. `more` has further fields of the API's create."""

    type: Literal["cay"] = "cay"
    template: str | None = None
    network: str | dict[str, Any] | None = None
    limits: dict[str, Any] | None = None
    env: dict[str, str] = Field(default_factory=dict)
    exposed_ports: tuple[int, ...] = ()
    pause_on_exit: bool = False
    """Whether a session that ends leaves its sandbox paused, to be resumed, rather than removed."""
    more: dict[str, Any] = Field(default_factory=dict)


class CaySandboxSessionState(SandboxSessionState):
    type: Literal["cay"] = "cay"
    sandbox_id: str
    env: dict[str, str] = Field(default_factory=dict)
    pause_on_exit: bool = False


class CaySandboxSession(BaseSandboxSession):
    state: CaySandboxSessionState

    def __init__(self, state: CaySandboxSessionState, sandbox: AsyncSandbox) -> None:
        self.state = state
        self.sandbox = sandbox
        """The sandbox itself, for what the framework has no words for: turns, forks, the network."""

    async def _prepare_backend_workspace(self) -> None:
        """The root of the workspace may be where only root can write."""
        root = self._workspace_root_path()
        files = self.sandbox.files
        try:
            if not await files.exists(str(root)):
                await files.mkdir(str(root), user="root")
                await files.chown(str(root), self.sandbox.info.user, user="root")
        except CayError as error:
            raise WorkspaceStartError(path=root, cause=error) from error

    async def _exec_internal(
        self, *command: str | Path, timeout: float | None = None
    ) -> ExecResult:
        argv = [str(part) for part in command]
        user: str | None = None
        # What the framework makes of a user.
        if len(argv) > 4 and argv[:2] == ["sudo", "-u"] and argv[3] == "--":
            user, argv = argv[2], argv[4:]
        env = {**self.state.env, **await self.state.manifest.environment.resolve()}
        root = str(self._workspace_root_path())
        try:
            result = await self.sandbox.exec(
                argv,
                env=env,
                workdir=root if await self._has_root(root) else None,
                user=user,
                timeout_ms=None if timeout is None else max(1, int(timeout * 1000)),
                max_output_bytes=_MOST_OUTPUT,
            )
        except CayError as error:
            # As a shell says it.
            if "exitCode" in error.details:
                code = int(error.details["exitCode"])
                return ExecResult(stdout=b"", stderr=str(error).encode(), exit_code=code)
            raise ExecTransportError(
                command=command, cause=error, message=str(error), retryable=error.retryable
            ) from error
        if result.end.kind == "timed_out":
            raise ExecTimeoutError(command=command, timeout_s=timeout)
        return ExecResult(
            stdout=result.stdout.encode(), stderr=result.stderr.encode(), exit_code=result.exit_code
        )

    async def _has_root(self, root: str) -> bool:
        ready: bool = self.state.workspace_root_ready or await self.sandbox.files.exists(root)
        self.state.workspace_root_ready = ready
        return ready

    async def read(self, path: Path, *, user: str | User | None = None) -> io.IOBase:
        try:
            content = await self.sandbox.files.read(str(self.normalize_path(path)), user=_name(user))
        except CayError as error:
            if error.code == "not_found":
                raise WorkspaceReadNotFoundError(path=path, cause=error) from error
            raise WorkspaceArchiveReadError(path=path, cause=error) from error
        return io.BytesIO(content)

    async def write(
        self, path: Path, data: io.IOBase, *, user: str | User | None = None
    ) -> None:
        payload = data.read()
        if isinstance(payload, str):
            payload = payload.encode()
        if not isinstance(payload, bytes | bytearray):
            raise WorkspaceWriteTypeError(path=path, actual_type=type(payload).__name__)
        target = self.normalize_path(path, for_write=True)
        try:
            await self.sandbox.files.write(str(target), bytes(payload), user=_name(user))
        except CayError as error:
            raise WorkspaceArchiveWriteError(path=target, cause=error) from error

    async def running(self) -> bool:
        try:
            return (await self.sandbox.refresh()).state in ("active", "paused")
        except CayError:
            return False

    async def persist_workspace(self) -> io.IOBase:
        root = self._workspace_root_path()
        skipped = [f"--exclude=./{one.as_posix()}" for one in self._persist_workspace_skip_relpaths()]
        kept = f"/tmp/openai-agents-{uuid.uuid4().hex}.tar"
        try:
            if not skipped:
                return io.BytesIO(await self.sandbox.files.download(str(root)))
            made = await self.sandbox.exec(
                ["tar", "-C", str(root), "--anchored", "--no-wildcards", *skipped, "-cf", kept, "."]
            )
            if made.exit_code != 0:
                raise CayError("internal", f"tar failed: {made.stderr.strip()}")
            content = await self.sandbox.files.read(kept)
            await self.sandbox.files.remove(kept)
            return io.BytesIO(content)
        except CayError as error:
            raise WorkspaceArchiveReadError(path=root, cause=error) from error

    async def hydrate_workspace(self, data: io.IOBase) -> None:
        root = self._workspace_root_path()
        try:
            await self.sandbox.files.upload(str(root), data.read())
        except CayError as error:
            raise WorkspaceArchiveWriteError(path=root, cause=error) from error

    async def _resolve_exposed_port(self, port: int) -> ExposedPortEndpoint:
        try:
            exposed = await self.sandbox.expose(port)
        except CayError as error:
            raise ExposedPortUnavailableError(
                port=port,
                exposed_ports=self.state.exposed_ports,
                reason="backend_unavailable",
                cause=error,
            ) from error
        url = urlsplit(exposed.url)
        tls = url.scheme == "https"
        query = f"cay_token={exposed.token}" if exposed.token else ""
        return ExposedPortEndpoint(url.hostname or "", url.port or (443 if tls else 80), tls, query)

    async def _shutdown_backend(self) -> None:
        try:
            if self.state.pause_on_exit:
                await self.sandbox.pause()
            else:
                await self.sandbox.kill()
        finally:
            await self.sandbox.close()


class CaySandboxClient(BaseSandboxClient[CaySandboxClientOptions]):
    backend_id = "cay"

    def __init__(
        self,
        *,
        url: str | None = None,
        api_key: str | None = None,
        instrumentation: Instrumentation | None = None,
    ) -> None:
        """Default: `CAY_URL` and `CAY_API_KEY`."""
        self._access = {"url": url, "api_key": api_key}
        self._instrumentation = instrumentation or Instrumentation()

    async def create(
        self,
        *,
        snapshot: SnapshotSpec | SnapshotBase | None = None,
        manifest: Manifest | None = None,
        options: CaySandboxClientOptions | None = None,
    ) -> SandboxSession:
        manifest = manifest or Manifest()
        options = options or CaySandboxClientOptions()
        self._validate_manifest_for_create(manifest)
        request = some(template=options.template, network=options.network, limits=options.limits)
        sandbox = await AsyncSandbox.create(
            **self._access,
            **request,
            env={**options.env, **await manifest.environment.resolve()},
            ports=list(options.exposed_ports),
            **options.more,
        )
        session_id = uuid.uuid4()
        state = CaySandboxSessionState(
            session_id=session_id,
            manifest=manifest,
            snapshot=resolve_snapshot(snapshot, str(session_id)),
            sandbox_id=sandbox.id,
            env=options.env,
            pause_on_exit=options.pause_on_exit,
            exposed_ports=options.exposed_ports,
        )
        inner = CaySandboxSession(state, sandbox)
        return self._wrap_session(inner, instrumentation=self._instrumentation)

    async def delete(self, session: SandboxSession) -> SandboxSession:
        inner = session._inner
        if not isinstance(inner, CaySandboxSession):
            raise TypeError("CaySandboxClient.delete expects a session of its own")
        async with await self._connected(inner.state.sandbox_id):
            return session

    async def resume(self, state: SandboxSessionState) -> SandboxSession:
        """The sandbox goes on where it was, with its processes if they were kept."""
        if not isinstance(state, CaySandboxSessionState):
            raise TypeError("CaySandboxClient.resume expects a CaySandboxSessionState")
        state.assert_path_grants_rebound()
        sandbox = await self._connected(state.sandbox_id)
        if sandbox.info.state == "stopped":
            await sandbox.start()
        inner = CaySandboxSession(state, sandbox)
        inner._set_start_state_preserved(True, system=True)
        return self._wrap_session(inner, instrumentation=self._instrumentation)

    def deserialize_session_state(self, payload: dict[str, object]) -> SandboxSessionState:
        return self._deserialize_session_state_payload(payload, CaySandboxSessionState)

    async def _connected(self, sandbox: str) -> AsyncSandbox:
        return await AsyncSandbox.connect(sandbox, **self._access)


def _name(user: str | User | None) -> str | None:
    return user.name if isinstance(user, User) else user
