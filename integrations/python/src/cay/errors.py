"""The one error class. Programs decide by `code`, never by the message."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

ERROR_CODES = frozenset(
    {
        "invalid_argument",
        "unauthenticated",
        "permission_denied",
        "not_found",
        "already_exists",
        "conflict",
        "failed_precondition",
        "resource_exhausted",
        "unsupported",
        "unavailable",
        "deadline_exceeded",
        "cancelled",
        "internal",
    }
)
_RETRYABLE = frozenset({"conflict", "resource_exhausted", "unavailable", "deadline_exceeded"})
_SHOWN = 200


class CayError(Exception):
    """A call that failed. `details` is small and has no secrets; `hint` says what to do."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        details: Mapping[str, Any] | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message if hint is None else f"{message} ({hint})")
        self.code = code
        self.message = message
        self.details: Mapping[str, Any] = details or {}
        self.hint = hint

    @property
    def retryable(self) -> bool:
        return self.code in _RETRYABLE

    @classmethod
    def from_wire(cls, error: Mapping[str, Any]) -> CayError:
        return cls(
            str(error["code"]),
            str(error.get("message", "")),
            details=error.get("details"),
            hint=error.get("hint"),
        )


def error_of(status: int, body: bytes) -> CayError:
    """The error of an answer. What is not Cay's own, a proxy's for example, is `unavailable`."""
    try:
        error = json.loads(body)["error"]
        if error["code"] in ERROR_CODES:
            return CayError.from_wire(error)
    except (ValueError, KeyError, TypeError):
        pass
    text = body[:_SHOWN].decode(errors="replace")
    return CayError("unavailable", f"The server answered {status}: {text}")
