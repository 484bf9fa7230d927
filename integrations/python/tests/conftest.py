"""The suites need a live server: `CAY_URL` and `CAY_API_KEY` say where it is."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from cay import Sandbox

if "CAY_URL" not in os.environ:
    pytest.exit("set CAY_URL and CAY_API_KEY to a server", returncode=4)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox.create() as made:
        yield made
