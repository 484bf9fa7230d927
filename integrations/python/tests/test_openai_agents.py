"""The sandbox client of OpenAI Agents, with the same calls as the framework's local one, and a scripted agent."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from agents import ModelResponse, RunConfig, Runner, Usage
from agents.models.interface import Model
from agents.sandbox import SandboxAgent, SandboxRunConfig
from agents.sandbox.entries import File
from agents.sandbox.errors import ExecTimeoutError, WorkspaceReadNotFoundError
from agents.sandbox.manifest import Manifest
from agents.sandbox.sandboxes import UnixLocalSandboxClient
from agents.sandbox.session import SandboxSession
from cay.openai_agents import CaySandboxClient, CaySandboxClientOptions
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)


def _manifest() -> Manifest:
    return Manifest(entries={"notes/a.txt": File(content=b"hello\n")}, environment={"value": {"WHO": "me"}})


async def _outcome(work: Any) -> Any:
    try:
        return await work
    except Exception as error:
        return type(error).__name__


async def _calls(session: SandboxSession) -> dict[str, Any]:
    async def run(command: str) -> tuple[int, bytes, bytes]:
        result = await session.exec(command, shell=True)
        return result.exit_code, result.stdout, result.stderr

    async def read(path: str) -> bytes:
        content: bytes = (await session.read(Path(path))).read()
        return content

    return {
        "exit code": await run("echo out; echo err >&2; exit 3"),
        "manifest": await run('cat notes/a.txt; echo "$WHO"'),
        "write": await _outcome(session.write(Path("d/b.bin"), io.BytesIO(b"\0\xff"))),
        "read": await _outcome(read("d/b.bin")),
        "read nothing": await _outcome(read("none")),
        "ls": sorted(Path(entry.path).name for entry in await session.ls("d")),
        "mkdir": await _outcome(session.mkdir("x/y", parents=True)),
        "made": await run("test -d x/y"),
        "rm": await _outcome(session.rm("x", recursive=True)),
        "gone": await run("test -d x"),
    }


async def _made(client: Any, options: Any) -> SandboxSession:
    session: SandboxSession = await client.create(manifest=_manifest(), options=options)
    await session.start()
    return session


@pytest.fixture
async def session() -> AsyncIterator[SandboxSession]:
    client = CaySandboxClient()
    made = await _made(client, CaySandboxClientOptions())
    yield made
    await made.shutdown()


async def test_answers_as_the_local_sandbox_does(session: SandboxSession) -> None:
    local = await _made(UnixLocalSandboxClient(), None)
    wanted = await _calls(local)
    await local.shutdown()
    assert await _calls(session) == wanted


async def test_a_timeout_and_a_missing_file_have_classes(session: SandboxSession) -> None:
    with pytest.raises(ExecTimeoutError):
        await session.exec("sleep 30", shell=True, timeout=0.3)
    with pytest.raises(WorkspaceReadNotFoundError):
        await session.read(Path("none"))


async def test_a_workspace_is_kept_and_a_session_resumed() -> None:
    client = CaySandboxClient()
    first = await _made(client, CaySandboxClientOptions(pause_on_exit=True))
    await first.exec("echo kept > kept.txt", shell=True)
    archive = (await first.persist_workspace()).read()
    payload = first.state.model_dump(mode="json")
    await first.shutdown()
    resumed = await client.resume(client.deserialize_session_state(payload))
    await resumed.start()
    assert (await resumed.read(Path("kept.txt"))).read() == b"kept\n"
    other = await _made(client, CaySandboxClientOptions())
    await other.hydrate_workspace(io.BytesIO(archive))
    assert (await other.read(Path("kept.txt"))).read() == b"kept\n"
    await other.shutdown()
    await client.delete(resumed)
    assert not await resumed.running()


class _Scripted(Model):
    """A model whose answers are given."""

    def __init__(self, answers: list[list[Any]]) -> None:
        self.answers = answers
        self.inputs: list[Any] = []

    async def get_response(self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any) -> ModelResponse:
        self.inputs.append(input)
        return ModelResponse(output=self.answers.pop(0), usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError


async def test_carries_a_scripted_agent() -> None:
    call = ResponseFunctionToolCall(
        type="function_call",
        call_id="c1",
        name="exec_command",
        arguments='{"cmd": "echo $((6 * 7)) | tee answer.txt"}',
    )
    text = ResponseOutputText(type="output_text", text="It is 42", annotations=[])
    message = ResponseOutputMessage(
        id="m1", type="message", role="assistant", status="completed", content=[text]
    )
    model = _Scripted([[call], [message]])
    agent = SandboxAgent(name="worker", instructions="Compute.", model=model)
    result = await Runner.run(
        agent,
        "What is 6 * 7?",
        run_config=RunConfig(
            tracing_disabled=True,
            sandbox=SandboxRunConfig(client=CaySandboxClient(), options=CaySandboxClientOptions()),
        ),
    )
    assert result.final_output == "It is 42"
    assert "42" in str(model.inputs[-1])
