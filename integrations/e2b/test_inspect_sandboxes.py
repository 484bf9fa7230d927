"""Inspect AI's conformance suite with the `e2b` environment of `inspect_sandboxes`, unmodified."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from inspect_ai.util import SandboxEnvironment
from inspect_ai.util._sandbox.registry import registry_find_sandboxenv
from inspect_ai.util._sandbox.self_check import *  # noqa: F403


@pytest.fixture
async def sandbox_env() -> AsyncIterator[SandboxEnvironment]:
    environment = registry_find_sandboxenv("e2b")
    await environment.task_init("self_check", None)
    made = await environment.sample_init("self_check", None, {})
    yield made["default"]
    await environment.sample_cleanup("self_check", None, made, False)
