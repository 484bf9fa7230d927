"""Writes `sandbox.py` from `aio.py`: the same verbs without `async`. `--check` says whether it is current."""

from __future__ import annotations

import sys
from pathlib import Path

SOURCE = Path(__file__).parent / "src" / "cay"
FIRST = '"""A sandbox, from outside, for asyncio. `make_sync.py` writes `sandbox.py` from this file."""'
REPLACED = [
    (FIRST, '"""A sandbox, from outside. Written by `make_sync.py` from `aio.py`."""'),
    ("async def ", "def "),
    ("async for ", "for "),
    ("await ", ""),
    ("AsyncIterator", "Iterator"),
    ("AsyncSandbox", "Sandbox"),
    ("AsyncFiles", "Files"),
    ("AsyncNetwork", "Network"),
    ("AsyncTransport", "Transport"),
    ("__aenter__", "__enter__"),
    ("__aexit__", "__exit__"),
]


def sync_text() -> str:
    text = (SOURCE / "aio.py").read_text()
    for found, wanted in REPLACED:
        text = text.replace(found, wanted)
    return text


if __name__ == "__main__":
    target = SOURCE / "sandbox.py"
    if "--check" in sys.argv:
        if target.read_text() != sync_text():
            sys.exit("sandbox.py is not what make_sync.py writes: run python make_sync.py")
    else:
        target.write_text(sync_text())
