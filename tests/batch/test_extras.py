"""Commands without the package that they need: each says which extra brings it."""

import subprocess
import sys

import pytest

from support.notebooks import notebook

_RUN = ["run", "a.ipynb", "--output-dir", "executed"]


@pytest.mark.parametrize(
    ("package", "arguments", "extra"),
    [
        ("mcp", ["mcp"], "mcp"),
        ("mcp", ["mcp", "--http"], "mcp"),
        ("cryptography", [*_RUN, "--receipt"], "receipts"),
        ("cryptography", ["receipt", "verify", "a.json"], "receipts"),
        ("dask", [*_RUN, "--cluster", "tcp://127.0.0.1:1"], "dask"),
    ],
)
def test_a_command_says_which_extra_to_install(tmp_path, package, arguments, extra):
    (tmp_path / "a.ipynb").write_text(notebook("1 + 1"))
    without = f"import sys; sys.modules[{package!r}] = None"
    command = f"{without}; from cellblock.cli.main import main; main()"
    ran = subprocess.run(
        [sys.executable, "-P", "-c", command, *arguments],
        cwd=tmp_path,
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 2
    assert " ".join(ran.stderr.split()).endswith(f"Install it: pip install 'cellblock[{extra}]'.")
    assert not [*(tmp_path / "executed").glob("*.ipynb")]
