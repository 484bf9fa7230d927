"""The sandbox environment `cay` of Inspect AI: `Task(sandbox="cay")`, or `Task(sandbox=("cay", CayConfig(…)))`.

Each sample gets a sandbox of its own. `CAY_URL` and `CAY_API_KEY` say where the server is.
"""

from __future__ import annotations

import errno
from typing import Any, Literal, overload
from uuid import uuid4

from inspect_ai.util import (
    ExecResult,
    OutputLimitExceededError,
    SandboxConnection,
    SandboxEnvironment,
    SandboxEnvironmentConfigType,
    SandboxEnvironmentLimits,
    sandboxenv,
)
from pydantic import BaseModel, Field

from .aio import AsyncSandbox
from .errors import CayError

_LABEL = "inspect"
_MOST_INPUT = 4 * 1024 * 1024
_MOST_ARGUMENTS = 512 * 1024
"""Longer ones are read from a file: a request to the guest has a bound."""
_FROM_FILE = 'mapfile -d "" -t all < "$0" && rm -f "$0" && exec "${all[@]}"'
_WRITE_BITS = 0o222


class CayConfig(BaseModel, frozen=True):
    """What the sandboxes of a task are made with. `more` has further fields of the API's create."""

    template: str | None = None
    network: str | dict[str, Any] | None = None
    limits: dict[str, Any] | None = None
    user: str | None = None
    workdir: str | None = None
    more: dict[str, Any] = Field(default_factory=dict)


@sandboxenv(name="cay")
class CaySandboxEnvironment(SandboxEnvironment):
    def __init__(self, sandbox: AsyncSandbox) -> None:
        super().__init__()
        self.sandbox = sandbox

    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> BaseModel:
        return CayConfig(**config)

    @classmethod
    async def sample_init(
        cls,
        task_name: str,
        config: SandboxEnvironmentConfigType | None,
        metadata: dict[str, str],
    ) -> dict[str, SandboxEnvironment]:
        wanted = config if isinstance(config, CayConfig) else CayConfig(template=_template(config))
        request = wanted.model_dump(exclude_none=True)
        more = request.pop("more")
        labels = {_LABEL: task_name[:1024] or "task"}
        sandbox = await AsyncSandbox.create(**request, **{"labels": labels, **more})
        return {"default": cls(sandbox)}

    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: SandboxEnvironmentConfigType | None,
        environments: dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        for environment in environments.values():
            await environment.as_type(cls).sandbox.__aexit__(None, None, None)

    @classmethod
    async def cli_cleanup(cls, id: str | None) -> None:
        if id is not None:
            await (await AsyncSandbox.connect(id)).__aexit__(None, None, None)

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        # A command that has started is never run again, so `timeout_retry` has nothing to decide.
        workdir = None if cwd is None else self._absolute(cwd)
        timeout_ms = None if timeout is None else timeout * 1000
        output = _Output()
        try:
            if sum(len(argument) for argument in cmd) > _MOST_ARGUMENTS:
                cmd = await self._in_file(cmd, user)
            text = _as_text(input)
            if isinstance(text, bytes):
                command = await self.sandbox.launch(
                    cmd, env=env, workdir=workdir, user=user, stdin=True, timeout_ms=timeout_ms
                )
                await self.sandbox.write_stdin(command, text, close=True)
                events = self.sandbox.output(command)
            else:
                events = self.sandbox.stream(
                    cmd, env=env, workdir=workdir, user=user, input=text, timeout_ms=timeout_ms
                )
            async for event in events:
                output.take(event.type, event.data)
                if event.end is not None:
                    if event.end.kind == "timed_out":
                        raise TimeoutError(f"The command took longer than {timeout} seconds")
                    code = event.exit_code or 0
                    return ExecResult(code == 0, code, output.stdout(), output.stderr())
        except CayError as error:
            if error.code == "permission_denied":
                raise PermissionError(errno.EACCES, str(error)) from error
            # As a shell says it: no such program, directory or user.
            if error.code in ("not_found", "invalid_argument", "failed_precondition"):
                return ExecResult(False, 127, "", str(error))
            raise
        raise CayError("unavailable", "The stream of the command ended before the command did")

    async def write_file(self, file: str, contents: str | bytes) -> None:
        path = self._absolute(file)
        try:
            found = await self.sandbox.files.stat(path, follow=True)
        except CayError as error:
            if error.code != "not_found":
                raise _file_error(error, file) from error
        else:
            if found.type == "directory":
                raise IsADirectoryError(errno.EISDIR, "It is a directory", file)
            # The API replaces a file in one step and would not ask its permissions.
            if found.mode & _WRITE_BITS == 0:
                raise PermissionError(errno.EACCES, "Nobody may write it", file)
        try:
            await self.sandbox.files.write(path, contents)
        except CayError as error:
            raise _file_error(error, file) from error

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        path = self._absolute(file)
        try:
            found = await self.sandbox.files.stat(path, follow=True)
            if found.type == "directory":
                raise IsADirectoryError(errno.EISDIR, "It is a directory", file)
            if found.size > SandboxEnvironmentLimits.MAX_READ_FILE_SIZE:
                raise OutputLimitExceededError(
                    SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, truncated_output=None
                )
            content = await self.sandbox.files.read(path)
        except CayError as error:
            raise _file_error(error, file) from error
        return content.decode() if text else content

    async def connection(self, *, user: str | None = None) -> SandboxConnection:
        return SandboxConnection(type="cay", command=f"cay shell {self.sandbox.id}")

    async def _in_file(self, cmd: list[str], user: str | None) -> list[str]:
        path = f"/tmp/.cay-arguments-{uuid4().hex}"
        await self.sandbox.files.write(path, "".join(f"{one}\0" for one in cmd), user=user)
        return ["bash", "-c", _FROM_FILE, path]

    def _absolute(self, path: str) -> str:
        return path if path.startswith("/") else f"{self.sandbox.info.workdir.rstrip('/')}/{path}"


class _Output:
    """Both streams of a command, each held to Inspect's bound: beyond it the start is dropped."""

    def __init__(self) -> None:
        self._most = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE
        self._held: dict[str, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}

    def take(self, channel: str, data: str) -> None:
        held = self._held.get(channel)
        if held is None:
            return
        held += data.encode()
        if len(held) > 2 * self._most:
            del held[: -self._most]

    def stdout(self) -> str:
        return self._text("stdout")

    def stderr(self) -> str:
        return self._text("stderr")

    def _text(self, channel: str) -> str:
        return self._held[channel][-self._most :].decode(errors="replace")


def _template(config: object) -> str | None:
    if config is None or isinstance(config, str):
        return config
    raise ValueError(f"The sandbox environment cay takes a CayConfig or a template's name, not {config!r}")


def _as_text(input: str | bytes | None) -> str | bytes | None:
    """Text where it can go with the request, else bytes, which are sent after it."""
    if input is None:
        return None
    data = input.encode() if isinstance(input, str) else input
    try:
        return data.decode() if len(data) <= _MOST_INPUT else data
    except UnicodeDecodeError:
        return data


def _file_error(error: CayError, file: str) -> OSError | CayError:
    if error.code == "not_found":
        return FileNotFoundError(errno.ENOENT, error.message, file)
    if error.code == "permission_denied":
        return PermissionError(errno.EACCES, error.message, file)
    return error
