"""Adapters that others wrote for E2B, unmodified, against the server that `E2B_API_URL` names."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import e2b
import pytest
from agents.extensions.sandbox.e2b import E2BSandboxClient, E2BSandboxClientOptions
from agents.sandbox.manifest import Manifest
from deepagents.backends.protocol import SandboxBackendProtocol
from langchain_e2b import E2BSandbox
from langchain_tests.integration_tests import SandboxIntegrationTests


class TestLangchainE2b(SandboxIntegrationTests):
    """The standard tests of LangChain, with `langchain-e2b`."""

    @pytest.fixture(scope="class")
    def sandbox(self) -> Iterator[SandboxBackendProtocol]:
        path = "/home/user/bin:/usr/local/bin:/usr/bin:/bin"
        made = e2b.Sandbox.create("base", envs={"PATH": path})
        made.commands.run("mkdir bin && ln -s /usr/bin/python3 bin/python")
        try:
            yield E2BSandbox(sandbox=made)
        finally:
            made.kill()


async def test_openai_agents() -> None:
    client = E2BSandboxClient()
    session = await client.create(
        manifest=Manifest(root="/home/user/workspace"),
        options=E2BSandboxClientOptions(sandbox_type="e2b", template="base"),
    )
    try:
        async with session:
            result = await session.exec("echo out; echo err >&2; exit 3", shell=True)
            assert (result.exit_code, result.stdout, result.stderr) == (3, b"out\n", b"err\n")
            await session.write(Path("a.txt"), io.BytesIO(b"hello"))
            assert (await session.read(Path("a.txt"))).read() == b"hello"
            assert await session.running()
    finally:
        await client.delete(session)
