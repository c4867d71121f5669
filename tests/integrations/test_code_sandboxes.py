"""Datalayer's code-sandboxes with sandboxes of ours behind its interface."""

import pytest

pytest.importorskip("code_sandboxes")

from code_sandboxes import Sandbox
from code_sandboxes.exceptions import VariableNotFoundError
from code_sandboxes.models import SandboxConfig

from cellblock.errors import GuestError
from cellblock.integrations.code_sandboxes import CellblockSandbox

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture(scope="module")
def sandbox(home):
    """A started sandbox under preset data, so that there are files."""
    assert home
    with CellblockSandbox(policy="data") as one:
        yield one


def test_code_runs_and_variables_and_output_come_back(sandbox):
    assert isinstance(sandbox, Sandbox)
    assert sandbox.provider_name == "cellblock"
    heard = []
    ran = sandbox.run_code("x = 20\nprint('one\\ntwo')\nx + 22", on_stdout=heard.append)
    assert (ran.success, ran.text, ran.stdout) == (True, "42", "one\ntwo")
    assert [one.line for one in heard] == ["one", "two"]
    sandbox.set_variable("given", {"a": [1]})
    assert (sandbox.get_variable("given"), sandbox.get_variable("x")) == ({"a": [1]}, 20)
    with pytest.raises(VariableNotFoundError, match="no such variable"):
        sandbox.get_variable("gone")


def test_files_go_in_and_come_out(sandbox, tmp_path):
    (tmp_path / "a").write_text("text")
    sandbox.upload_file(str(tmp_path / "a"), "in/a")
    assert sandbox.run_code("import os\nopen(os.path.expanduser('~/in/a')).read()").text == "'text'"
    sandbox.download_file("in/a", str(tmp_path / "b"))
    assert (tmp_path / "b").read_text() == "text"


def test_what_fails_or_is_refused_is_told_apart():
    with CellblockSandbox(SandboxConfig(timeout=1.0)) as strict:
        failed = strict.run_code("1 / 0")
        assert (failed.execution_ok, failed.code_error.name) == (True, "ZeroDivisionError")
        refused = strict.run_code("import subprocess")
        assert (refused.success, refused.code_error.name) == (False, "PolicyDenied")
        assert "import-not-allowed: subprocess" in refused.code_error.traceback
        late = strict.run_code("while True: pass")
        assert (late.success, late.interrupted) == (False, True)
    with pytest.raises(ValueError, match="cells are Python"):
        strict.run_code("ls", language="bash")
    assert "was not started" in strict.run_code("1").execution_error
    with pytest.raises(GuestError, match="was not started"):
        strict.set_variable("x", 1)
