"""The environment of Harbor, in the calls that its trials make, and a task with its reference solution."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cay.harbor import CayEnvironment
from harbor.models.task.config import EnvironmentConfig, NetworkMode, NetworkPolicy
from harbor.models.trial.paths import TrialPaths


@pytest.fixture
async def environment(tmp_path: Path) -> AsyncIterator[CayEnvironment]:
    directory = tmp_path / "environment"
    directory.mkdir()
    (directory / "Dockerfile").write_text(
        'FROM base\nCOPY greeting.txt /app/greeting.txt\nRUN echo built > /app/built\nWORKDIR /app\n'
    )
    (directory / "greeting.txt").write_text("hello\n")
    paths = TrialPaths(tmp_path / "trial")
    paths.mkdir()
    made = CayEnvironment(
        environment_dir=directory,
        environment_name="task",
        session_id="task__1__env",
        trial_paths=paths,
        task_env_config=EnvironmentConfig(cpus=1, memory_mb=512),
        persistent_env={"WHO": "me"},
        network_policy=NetworkPolicy(network_mode=NetworkMode.NO_NETWORK),
    )
    await made.start(force_build=False)
    yield made
    await made.stop(delete=True)


async def test_a_task_is_built_run_and_fetched(environment: CayEnvironment, tmp_path: Path) -> None:
    result = await environment.exec('cat greeting.txt built; echo "$WHO $MORE"; id -un', env={"MORE": "x"})
    assert (result.return_code, result.stdout) == (0, "hello\nbuilt\nme x\nroot\n")
    failed = await environment.exec("echo no >&2; exit 3", cwd="/tmp", user="user")
    assert (failed.return_code, failed.stderr) == (3, "no\n")
    with pytest.raises(RuntimeError, match="timed out"):
        await environment.exec("sleep 30", timeout_sec=1)

    source = tmp_path / "source"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "run.sh").write_text("echo ran")
    (source / "deep" / "run.sh").chmod(0o755)
    await environment.upload_dir(source, "/tests")
    assert (await environment.exec("/tests/deep/run.sh")).stdout == "ran\n"
    await environment.upload_file(source / "deep" / "run.sh", "/one/run.sh")
    assert await environment.is_file("/one/run.sh") and await environment.is_dir("/one")
    assert not await environment.is_file("/none")
    await environment.exec("mkdir -p /out/d && echo got > /out/d/a && ln -s /etc/passwd /out/evil")
    await environment.download_file("/out/d/a", tmp_path / "fetched" / "a")
    assert (tmp_path / "fetched" / "a").read_text() == "got\n"
    await environment.exec("rm /out/evil")
    await environment.download_dir("/out", tmp_path / "all")
    assert (tmp_path / "all" / "d" / "a").read_text() == "got\n"

    assert (await environment.sandbox.network.get())["policy"] == "none"
    allow = NetworkPolicy(network_mode=NetworkMode.ALLOWLIST, allowed_hosts=["example.org"])
    await environment.set_network_policy(allow)
    assert (await environment.sandbox.network.get())["policy"]["allow"] == ["example.org"]
    assert environment.sandbox.info.raw["limits"]["memoryBytes"] == 512 * 1024 * 1024
