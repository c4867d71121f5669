"""What a server over stdin and stdout imports of the SDK, and what its list of tools costs."""

import json
import subprocess
import sys

import pytest

pytest.importorskip("mcp")

from cellblock.mcp.server import _tools

PROGRAM = """
import sys
from cellblock.cli import mcp as command
server = command._import_server()
assert not {"mcp.client", "mcp.server.mcpserver", "httpx2", "cryptography"} & set(sys.modules)
import mcp.server
assert mcp.ClientSession.__module__ == "mcp.client.session"
assert mcp.server.lowlevel.Server is mcp.server.Server is server.Server
assert not hasattr(mcp, "no_such_name")
print("done")
"""


def test_the_client_in_the_sdk_is_imported_when_somebody_asks_for_it():
    """And what the SDK's packages gather is all there then, each class once."""
    ran = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (ran.stdout, ran.stderr, ran.returncode) == ("done\n", "", 0)


def test_the_list_of_tools_which_is_in_each_request_to_a_model_is_short():
    listed = [one.model_dump(mode="json", by_alias=True, exclude_none=True) for one in _tools()]
    assert len(json.dumps(listed)) <= 4_000
