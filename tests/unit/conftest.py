"""Pure code: what is tested here starts no kernel."""

import gc
import sys
from pathlib import Path

import pytest

from cellblock.cli import common, main

# jsonschema imports it if it is there, for a format that nothing here has: it takes a second.
sys.modules["rfc3987_syntax"] = None


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.unit)


@pytest.fixture(autouse=True, scope="module")
def nothing_left_open():
    """Have what a module's tests dropped closed: children of later tests inherit descriptors."""
    yield
    gc.collect()


@pytest.fixture
def command(monkeypatch, capfd):
    """Run ``cellblock …`` in this process; return exit status, stdout and stderr."""

    def run(*args):
        common._policy_of_kernel.cache_clear()  # a process runs one command
        monkeypatch.setattr(sys, "argv", ["cellblock", *args])
        with pytest.raises(SystemExit) as ended:
            main.main()
        out, err = capfd.readouterr()
        return ended.value.code, out, err

    return run
