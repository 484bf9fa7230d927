"""A backend of LangChain's deepagents: `create_deep_agent(backend=CayBackend(Sandbox.create()))`."""

from __future__ import annotations

from deepagents.backends.protocol import (
    ExecuteResponse,
    FileDownloadResponse,
    FileOperationError,
    FileUploadResponse,
)
from deepagents.backends.sandbox import BaseSandbox

from .errors import CayError
from .sandbox import Sandbox

_USUAL_TIMEOUT_S = 30 * 60
_MOST_OUTPUT = 8 * 1024 * 1024


class CayBackend(BaseSandbox):
    def __init__(self, sandbox: Sandbox, *, timeout: int = _USUAL_TIMEOUT_S) -> None:
        """`timeout` is how many seconds a command may take that names no time of its own."""
        self.sandbox = sandbox
        self._timeout = timeout

    @property
    def id(self) -> str:
        return self.sandbox.id

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        # 0 is no limit.
        seconds = self._timeout if timeout is None else timeout
        result = self.sandbox.exec(
            command,
            timeout_ms=seconds * 1000 if seconds > 0 else None,
            max_output_bytes=_MOST_OUTPUT,
        )
        if result.end.kind == "timed_out":
            note = f"The command was killed: it took longer than {seconds} seconds"
            return ExecuteResponse(f"{result.stdout}{result.stderr}{note}", 124, result.truncated)
        return ExecuteResponse(f"{result.stdout}{result.stderr}", result.exit_code, result.truncated)

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        return [FileUploadResponse(path, self._upload(path, content)) for path, content in files]

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        return [self._download(path) for path in paths]

    def _upload(self, path: str, content: bytes) -> FileOperationError | str | None:
        if not path.startswith("/"):
            return "invalid_path"
        try:
            self.sandbox.files.write(path, content)
        except CayError as error:
            return self._why(path, error)
        return None

    def _download(self, path: str) -> FileDownloadResponse:
        if not path.startswith("/"):
            return FileDownloadResponse(path, None, "invalid_path")
        try:
            return FileDownloadResponse(path, self.sandbox.files.read(path))
        except CayError as error:
            return FileDownloadResponse(path, None, self._why(path, error))

    def _why(self, path: str, error: CayError) -> FileOperationError | str:
        if error.code == "not_found":
            return "file_not_found"
        if error.code == "permission_denied":
            return "permission_denied"
        try:
            if self.sandbox.files.stat(path, follow=True).type == "directory":
                return "is_directory"
        except CayError:
            pass
        return "invalid_path" if error.code == "invalid_argument" else str(error)
