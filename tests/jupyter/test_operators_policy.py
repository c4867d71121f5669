"""On a machine of several users, an operator's policy holds whatever a user sets or leaves at home."""

import json
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from cellblock.jupyter.install import install, kernel_json
from cellblock.jupyter.only import OnlyCellblock
from cellblock.policy.load import load
from support import reading
from support.kernels import World, argv_for
from support.users import NOBODY, as_nobody

WEAKER = {
    "argv": [sys.executable, "-m", "cellblock", "-f", "{connection_file}", "--policy", "data"],
    "display_name": "mine",
    "language": "python",
}
#: Run as the user: the folders in which a server finds kernels, as a Hub sets it and as it is.
FINDS = """
import json
from cellblock.jupyter.only import OnlyCellblock
found = [OnlyCellblock(operators_only=only).find_kernel_specs() for only in (True, False)]
print(json.dumps(found))
"""
#: The same, of a server that was started while a link led to a folder of root's.
TURNS = """
import json, os, sys
from cellblock.jupyter.only import OnlyCellblock
servers = [OnlyCellblock(operators_only=only) for only in (True, False)]
assert all(one.kernel_dirs for one in servers)
link, folder = sys.argv[1:]
os.unlink(link)
os.symlink(folder, link)
print(json.dumps([one.find_kernel_specs() for one in servers]))
"""


@pytest.fixture
def prefix():
    found = as_nobody()
    if found is None:
        pytest.skip("needs root, to be an operator and a user")
    return found


@pytest.fixture
def user():
    """Return a user's folders, with all in them that might be read in place of the operator's."""
    world = World(NOBODY)
    touch = f"open({str(world.root / 'tmp/touched')!r}, 'w')\n"
    site = f".local/lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
    files = {
        f"{site}/usercustomize.py": touch,
        f"{site}/sitecustomize.py": touch,
        f"{site}/own.pth": f"import builtins; {touch}",
        "path/zmq.py": touch,
        "path/sitecustomize.py": touch,
        ".ipython/profile_default/startup/0.py": touch,
        ".ipython/profile_default/ipython_config.py": touch,
        ".jupyter/jupyter_config.py": touch,
        ".config/cellblock/policy.toml": 'extends = "data"\n',
        **{
            f"{folder}/kernels/{name}/kernel.json": json.dumps(WEAKER)
            for folder in (".local/share/jupyter", ".ipython", "path")
            for name in ("cellblock", "mine")
        },
    }
    for name, text in files.items():
        path = world.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for path in world.home.rglob("*"):
        world.give(path)
    yield world
    world.close()


def variables(world):
    path = f"{world.home}/path"
    return {
        "PYTHONPATH": path,
        "PYTHONSTARTUP": f"{path}/zmq.py",
        "PYTHONUSERBASE": f"{world.home}/.local",
        "PYTHONINSPECT": "1",
        "JUPYTER_PATH": path,
        "JUPYTER_PREFER_ENV_PATH": "0",
        "XDG_CONFIG_HOME": f"{world.home}/.config",
        "CELLBLOCK_POLICY": "data",
    }


def test_a_users_variables_and_files_change_nothing_of_the_policy(user, start, prefix):
    policy = user.policy('extends = "safe"\ntimeout = 77.0\n', "lab")
    argv = kernel_json(
        load(str(policy), project=user.work, allow_unsafe=False), str(policy), shared=True
    )["argv"]
    kernel = start(argv=argv, world=user, prefix=prefix, extra_env=variables(user))

    reply, _ = kernel.run("import socket")
    assert reply["ename"] == "PolicyDenied"
    _, published = kernel.run("%policy")
    (card,) = reading.cards(published, "policy")
    assert card["policy"]["name"] == "lab"
    assert card["policy"]["timeout"] == 77
    assert not (user.root / "tmp/touched").exists()


def test_a_user_is_told_to_ask_whoever_keeps_the_policy(user, start, prefix):
    other = user.write("../elsewhere.csv", "a")
    policy = user.policy('extends = "data"\n', "lab")
    kernel = start(argv=argv_for(policy), world=user, prefix=prefix)
    reply, published = kernel.run(f"open({str(other)!r})")
    (card,) = reading.cards(published, "refusal")
    ask, add = f"To allow it, ask whoever keeps {policy}", f"cellblock policy add {policy} '"
    assert card["allow"] == f"{ask} to add this, by {add}LINES'."
    assert f"{ask}: {add}add.filesystem_read_roots" in reply["evalue"]


def test_a_server_finds_no_kernel_that_its_user_wrote(user, prefix):
    environment = user.environment(**variables(user)) | {"PYTHONPATH": "", "PYTHONINSPECT": ""}
    command = [*prefix, sys.executable, "-c", FINDS]
    ran = subprocess.run(command, env=environment, cwd="/", capture_output=True, check=True)

    hub, plain = json.loads(ran.stdout)
    assert Path(hub["cellblock"]).is_relative_to(sys.prefix)
    assert "mine" not in hub
    # Positive control: without it a server takes the user's.
    assert Path(plain["cellblock"]).is_relative_to(user.home)
    assert "mine" in plain


def test_a_link_of_the_users_leads_to_no_kernels(user, prefix):
    own = user.home / ".ipython/kernels"
    moved = own.rename(own.with_name("moved"))
    own.symlink_to("/usr/lib")
    environment = user.environment(PYTHONPATH="", IPYTHONDIR=str(own.parent))
    command = [*prefix, sys.executable, "-c", TURNS, str(own), str(moved)]
    ran = subprocess.run(command, env=environment, cwd="/", capture_output=True, check=True)

    hub, plain = json.loads(ran.stdout)
    assert "mine" not in hub
    assert "mine" in plain


def test_whoever_can_change_all_kernels_has_none(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("jupyter_client.kernelspec.jupyter_path", lambda _: [str(tmp_path)])
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    assert OnlyCellblock(operators_only=True).find_kernel_specs() == {}
    assert "this user can change every folder of kernels" in caplog.text


def test_what_is_installed_for_all_can_be_read_by_all_and_leaves_their_packages_out(tmp_path):
    options = {"name": "lab", "display_name": None, "allow_unsafe": False}
    _, folder = install("safe", prefix=tmp_path, **options)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755
    assert "-s" in json.loads((folder / "kernel.json").read_text())["argv"]
