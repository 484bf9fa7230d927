"""What the suites of E2B's Python client share; python.test.ts gives the address, the keys and the runtime."""

import os
import time
import urllib.error
import urllib.request

URL = os.environ["E2B_API_URL"]
# A key of another project.
STRANGER = os.environ["CAY_STRANGER_KEY"]
# gVisor keeps memory, and has no extended attributes; runc is the other way round.
GVISOR = os.environ["CAY_RUNTIME"] == "runsc"


def eventually(condition, seconds=20):
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            raise AssertionError("it did not become true")
        time.sleep(0.02)


def visit(host, headers=None):
    """The status and body of a page of a sandbox, whose host no name service here knows."""
    try:
        with urllib.request.urlopen(urllib.request.Request(URL, headers={**(headers or {}), "Host": host})) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code, refusal.read().decode()
