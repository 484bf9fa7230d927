"""The standard tests of LangChain for sandboxes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("deepagents", reason="deepagents is not installed")
pytest.importorskip("langchain_tests", reason="langchain-tests is not installed")

from deepagents.backends.protocol import SandboxBackendProtocol
from langchain_tests.integration_tests import SandboxIntegrationTests

from cay import Sandbox
from cay.deepagents import CayBackend


class TestCayBackend(SandboxIntegrationTests):  # type: ignore[misc]
    @pytest.fixture(scope="class")
    def sandbox(self) -> Iterator[SandboxBackendProtocol]:
        # The suite calls `python`, which Debian has as `python3` alone.
        path = "/home/user/bin:/usr/local/bin:/usr/bin:/bin"
        with Sandbox.create(env={"PATH": path}) as sandbox:
            sandbox.exec("mkdir bin && ln -s /usr/bin/python3 bin/python")
            yield CayBackend(sandbox)
