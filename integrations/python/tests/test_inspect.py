"""Inspect AI's own conformance suite for sandbox environments."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

pytest.importorskip("inspect_ai", reason="inspect_ai is not installed")

from inspect_ai.util import SandboxEnvironment
from inspect_ai.util._sandbox.self_check import *  # noqa: F403

from cay.inspect import CayConfig, CaySandboxEnvironment


# The template `base` has no PAM and no skeleton of a home, which `adduser` wants.
ACCOUNTS = """
mkdir -p /etc/skel /etc/pam.d
for kind in auth account password session; do echo "$kind sufficient pam_permit.so"; done > /etc/pam.d/other
"""


@pytest.fixture
async def sandbox_env(request: pytest.FixtureRequest) -> AsyncIterator[SandboxEnvironment]:
    config = CayConfig(network="none")
    made = await CaySandboxEnvironment.sample_init("self_check", config, {})
    if request.node.originalname == "test_exec_as_user":
        await made["default"].exec(["sh", "-c", ACCOUNTS], user="root")
    yield made["default"]
    await CaySandboxEnvironment.sample_cleanup("self_check", config, made, False)
