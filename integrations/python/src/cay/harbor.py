"""The environment of Harbor: `harbor run --environment-import-path cay.harbor:CayEnvironment …`.

A task's Dockerfile becomes a template once, and every trial is a sandbox of its own that starts from it.
`CAY_URL` and `CAY_API_KEY` say where the server is.
"""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path
from typing import Any

from harbor.environments.base import BaseEnvironment, ExecResult, SandboxBuildFailedError
from harbor.environments.capabilities import (
    EnvironmentCapabilities,
    EnvironmentResourceCapabilities,
)
from harbor.environments.definition import (
    effective_exec_cwd,
    parse_dockerfile_workdir,
    require_agent_environment_definition,
)
from harbor.models.task.config import NetworkMode, NetworkPolicy

from . import _calls as calls
from ._transport import AsyncTransport
from .aio import AsyncSandbox
from .errors import CayError

_MIB = 1024 * 1024
_MOST_OUTPUT = 8 * _MIB
_HASH = 16


class CayEnvironment(BaseEnvironment):
    def __init__(
        self, *args: Any, template: str | None = None, url: str | None = None, **kwargs: Any
    ) -> None:
        """`template` is a template of Cay in place of what the task would be built from."""
        self._given_template = template
        self._url = url
        self._sandbox: AsyncSandbox | None = None
        super().__init__(*args, **kwargs)
        self._dockerfile = self.environment_dir / "Dockerfile"
        self._workdir = parse_dockerfile_workdir(self._dockerfile)

    @staticmethod
    def type() -> str:
        return "cay"

    @classmethod
    def preflight(cls) -> None:
        if not os.environ.get("CAY_API_KEY"):
            raise SystemExit("Cay needs CAY_API_KEY, and CAY_URL if the server is not on this machine.")

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        return EnvironmentCapabilities(
            disable_internet=True,
            network_allowlist=True,
            network_allowlist_hostnames=True,
            network_allowlist_wildcard_hostnames=True,
            network_allowlist_ipv4_addresses=True,
            network_allowlist_ipv6_addresses=True,
            network_allowlist_ipv4_cidrs=True,
            network_allowlist_ipv6_cidrs=True,
            dynamic_network_policy=True,
        )

    @classmethod
    def resource_capabilities(cls) -> EnvironmentResourceCapabilities:
        return EnvironmentResourceCapabilities(cpu_limit=True, memory_limit=True)

    @property
    def sandbox(self) -> AsyncSandbox:
        if self._sandbox is None:
            raise RuntimeError("The environment is not started")
        return self._sandbox

    def _validate_definition(self) -> None:
        if self._given_template is None:
            require_agent_environment_definition(
                self.environment_dir, docker_image=self.task_env_config.docker_image
            )

    async def start(self, force_build: bool) -> None:
        template = self._given_template or await self._template(force_build)
        limits = calls.some(
            cpus=self._effective_cpus,
            memoryBytes=_bytes(self._effective_memory_mb),
            diskBytes=_bytes(self._effective_storage_mb),
        )
        self._sandbox = await AsyncSandbox.create(
            url=self._url,
            template=template,
            limits=limits,
            env=self._startup_env(),
            network=_network(self.network_policy),
            labels={"harbor.environment": self.environment_name, "harbor.session": self.session_id},
        )
        await self.ensure_dirs(self._mount_targets(writable_only=True))
        await self._upload_environment_dir_after_start()

    async def stop(self, delete: bool) -> None:
        """A sandbox that is not to be deleted is stopped, and keeps its files."""
        sandbox, self._sandbox = self._sandbox, None
        if sandbox is None:
            return
        try:
            if delete:
                await sandbox.kill()
            else:
                await sandbox.stop()
        finally:
            await sandbox.close()

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        # A command that has started is never run again.
        chosen = self._resolve_user(user)
        result = await self.sandbox.exec(
            command,
            env=self._merge_env(env),
            workdir=effective_exec_cwd(cwd, self.task_env_config.workdir, self._workdir),
            user="root" if chosen is None else str(chosen),
            timeout_ms=None if timeout_sec is None else timeout_sec * 1000,
            max_output_bytes=_MOST_OUTPUT,
        )
        emit = self._output_callback()
        if emit is not None:
            for text, stream in ((result.stdout, "stdout"), (result.stderr, "stderr")):
                if text:
                    await emit(text, stream)
        if result.end.kind == "timed_out":
            raise RuntimeError(f"Command timed out after {timeout_sec} seconds")
        return ExecResult(stdout=result.stdout, stderr=result.stderr, return_code=result.exit_code)

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        source = Path(source_path)
        mode = source.stat().st_mode & 0o777
        await self.sandbox.files.write(target_path, source.read_bytes(), user="root", mode=mode)

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        await self.sandbox.files.upload(target_dir, _tar(Path(source_dir)), user="root")

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        target = Path(target_path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(await self.sandbox.files.read(source_path, user="root"))

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        target = Path(target_dir)
        target.mkdir(parents=True, exist_ok=True)
        archive = await self.sandbox.files.download(source_dir, user="root")
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            # What comes from a sandbox is not trusted: nothing outside of the directory, no links out of it.
            tar.extractall(target, filter="data")

    async def is_dir(self, path: str, user: str | int | None = None) -> bool:
        return await self._type_of(path) == "directory"

    async def is_file(self, path: str, user: str | int | None = None) -> bool:
        return await self._type_of(path) == "file"

    async def _type_of(self, path: str) -> str | None:
        try:
            return (await self.sandbox.files.stat(path, user="root", follow=True)).type
        except CayError as error:
            if error.code != "not_found":
                raise
            return None

    async def _apply_network_policy(self, network_policy: NetworkPolicy) -> None:
        await self.sandbox.network.set(_network(network_policy))

    async def _template(self, force_build: bool) -> str:
        """An image is a template by its name. A Dockerfile is built, unless it was before."""
        image: str | None = self.task_env_config.docker_image
        if image and not force_build:
            return image
        if not self._dockerfile.exists():
            return image or "base"
        name = f"harbor-{self.environment_id[:_HASH]}".lower()
        transport = AsyncTransport(self._url)
        try:
            if not force_build and await _exists(transport, name):
                return name
            context = await transport.send(calls.build_context(_tar(self.environment_dir)))
            body = {
                "name": name,
                "dockerfile": self._dockerfile.read_text(),
                "context": context["digest"],
                "noCache": force_build,
                "timeoutMs": int(self.task_env_config.build_timeout_sec * 1000),
            }
            build = await transport.send(calls.build(body))
            async for line in transport.lines(calls.build_log(build["id"])):
                if "log" in line:
                    self.logger.debug(line["log"]["message"])
                build = line.get("build", build)
            if build["state"] != "ready":
                why = (build["failure"] or {}).get("message", "it did not end")
                raise SandboxBuildFailedError(f"Cannot build {self.environment_name}: {why}")
            return name
        finally:
            await transport.close()


async def _exists(transport: AsyncTransport, name: str) -> bool:
    try:
        await transport.send(calls.template(name))
    except CayError as error:
        if error.code != "not_found":
            raise
        return False
    return True


def _bytes(megabytes: int | None) -> int | None:
    return None if megabytes is None else megabytes * _MIB


def _network(policy: NetworkPolicy) -> str | dict[str, Any]:
    if policy.network_mode == NetworkMode.PUBLIC:
        return "public"
    if policy.network_mode == NetworkMode.NO_NETWORK:
        return "none"
    return {"base": "none", "allow": list(policy.allowed_hosts)}


def _tar(directory: Path) -> bytes:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as tar:
        tar.add(directory, arcname=".")
    return held.getvalue()
