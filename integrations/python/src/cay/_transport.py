"""How requests are sent, with `httpx`: one client for threads and one for asyncio."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, TypeVar

import httpx

from ._calls import Call, QueryValue
from .errors import ERROR_CODES, CayError, error_of

T = TypeVar("T")

DEFAULT_URL = "http://127.0.0.1:7070"
_CONNECT_S = 10.0
_NDJSON = {"accept": "application/x-ndjson"}


def _settings(url: str | None, api_key: str | None) -> tuple[str, dict[str, str]]:
    base = (url or os.environ.get("CAY_URL") or DEFAULT_URL).rstrip("/")
    key = api_key or os.environ.get("CAY_API_KEY")
    return base, {} if key is None else {"authorization": f"Bearer {key}"}


def _text(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _query(query: Mapping[str, QueryValue]) -> list[tuple[str, str | int | float | bool | None]]:
    found: list[tuple[str, str | int | float | bool | None]] = []
    for key, value in query.items():
        if isinstance(value, (str, int)):
            found.append((key, _text(value)))
        elif value is not None:
            found.extend((key, one) for one in value)
    return found


def _request(call: Call[T], headers: Mapping[str, str] | None = None) -> dict[str, Any]:
    """What `httpx` takes. The client's own headers come with it."""
    request: dict[str, Any] = {
        "method": call.method,
        "url": call.path,
        "params": _query(call.query),
        "headers": {**call.headers, **(headers or {})},
        "timeout": httpx.Timeout(call.timeout_s, connect=_CONNECT_S),
    }
    if call.content is not None:
        request["content"] = call.content
        request["headers"].setdefault("content-type", "application/octet-stream")
    elif call.body is not None:
        request["json"] = call.body
    return request


def _lost(url: str, error: httpx.HTTPError) -> CayError:
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        return CayError(
            "unavailable",
            f"Cannot reach the server at {url}: {error}",
            details={"url": url},
            hint='start it with "cay up", or set CAY_URL',
        )
    if isinstance(error, httpx.TimeoutException):
        return CayError("deadline_exceeded", f"The server at {url} did not answer in time")
    return CayError("unavailable", f"The connection to {url} was lost: {error}")


def _events(lines: list[bytes]) -> Iterator[dict[str, Any]]:
    """The values of a stream. An empty line is a sign of life; an error ends the stream.

    Lines are split by hand: `httpx` also splits at U+2028 and others, which output may contain.
    """
    for line in lines:
        if line == b"":
            continue
        value: dict[str, Any] = json.loads(line)
        if value.get("type") == "error" and value["error"].get("code") in ERROR_CODES:
            raise CayError.from_wire(value["error"])
        yield value


class Transport:
    def __init__(self, url: str | None = None, api_key: str | None = None) -> None:
        self.url, headers = _settings(url, api_key)
        self._client = httpx.Client(base_url=self.url, headers=headers)

    def send(self, call: Call[T]) -> T:
        try:
            response = self._client.request(**_request(call))
        except httpx.HTTPError as error:
            raise _lost(self.url, error) from error
        if not response.is_success:
            raise error_of(response.status_code, response.content)
        return call.parse(response.content)

    def lines(self, call: Call[bytes]) -> Iterator[dict[str, Any]]:
        try:
            with self._client.stream(**_request(call, _NDJSON)) as response:
                if not response.is_success:
                    raise error_of(response.status_code, response.read())
                rest = b""
                for chunk in response.iter_bytes():
                    *lines, rest = (rest + chunk).split(b"\n")
                    yield from _events(lines)
                yield from _events([rest])
        except httpx.HTTPError as error:
            raise _lost(self.url, error) from error

    def close(self) -> None:
        self._client.close()


class AsyncTransport:
    def __init__(self, url: str | None = None, api_key: str | None = None) -> None:
        self.url, headers = _settings(url, api_key)
        self._client = httpx.AsyncClient(base_url=self.url, headers=headers)

    async def send(self, call: Call[T]) -> T:
        try:
            response = await self._client.request(**_request(call))
        except httpx.HTTPError as error:
            raise _lost(self.url, error) from error
        if not response.is_success:
            raise error_of(response.status_code, response.content)
        return call.parse(response.content)

    async def lines(self, call: Call[bytes]) -> AsyncIterator[dict[str, Any]]:
        try:
            async with self._client.stream(**_request(call, _NDJSON)) as response:
                if not response.is_success:
                    raise error_of(response.status_code, await response.aread())
                rest = b""
                async for chunk in response.aiter_bytes():
                    *lines, rest = (rest + chunk).split(b"\n")
                    for value in _events(lines):
                        yield value
                for value in _events([rest]):
                    yield value
        except httpx.HTTPError as error:
            raise _lost(self.url, error) from error

    async def close(self) -> None:
        await self._client.aclose()
