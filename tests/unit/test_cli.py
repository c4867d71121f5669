"""The command line: what it prints, where it writes, how it ends."""

import json
import subprocess
import sys

import pytest

from cellblock import __version__
from cellblock.backends.report import Proof, Seen
from cellblock.cli.main import COMMANDS, load_command
from cellblock.jupyter import install as specs
from cellblock.jupyter import preparation, proving

#: What the suite of probes said of a backend, of which these tests run it once.
PROVED = {}


def proved_once(policy, chosen, project, prove=proving.prove):
    name = type(chosen.backend).__name__
    if name not in PROVED:
        proof, report = prove(policy, chosen, project)
        if proof.failure:  # the policy's own, and not for the next test
            return proof, report
        PROVED[name] = proof, report
    return PROVED[name]


@pytest.fixture
def run(command, monkeypatch, tmp_path):
    """Run the command in a folder of its own, with Jupyter's folders in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(proving, "prove", proved_once)
    monkeypatch.setattr(preparation, "make_now", lambda _session: None)  # it takes seconds
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    for variable in ("JUPYTER_DATA_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "HOME"):
        (tmp_path / variable.lower()).mkdir()
        monkeypatch.setenv(variable, str(tmp_path / variable.lower()))
    return command


def test_help_imports_nothing_that_help_does_not_need():
    code = (
        "import sys; from cellblock.cli import main as cli; "
        "print([m for m in ('pydantic', 'zmq', 'IPython', 'rich', 'msgspec') if m in sys.modules])"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60
    )
    assert shown.stdout == "[]\n"


def test_a_command_behind_python_m_is_the_programs(tmp_path):
    (tmp_path / "a.py").write_text("import ctypes")
    check = ["check", "--policy", "safe", str(tmp_path)]
    for given, status, said in ((check, 1, "1 finding in 1 of 1 file"), (["--help"], 0, "receipt")):
        argv = [sys.executable, "-m", "cellblock", *given]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, said in done.stdout) == (status, True), done


@pytest.mark.parametrize("name", COMMANDS)
def test_the_table_of_commands_says_what_each_commands_own_help_begins_with(name):
    command = load_command(name)
    assert " ".join((command.help or "").split("\n\n")[0].split()) == COMMANDS[name]


def test_show_prints_every_field_of_any_policy_and_in_json_its_digest(run):
    status, out, _ = run("policy", "show")
    assert (status, run("policy", "show", "unsafe")[0]) == (0, 0)  # nothing runs
    for shown in ("policy safe", "memory_max_bytes", "1 GiB"):
        assert shown in out
    status, out, _ = run("policy", "show", "data", "--json")
    shown = json.loads(out)
    assert (status, shown["name"], len(shown["digest"])) == (0, "data", 64)


def test_diff_says_which_of_two_policies_lets_cells_do_more(run, tmp_path):
    lines = 'extends = "safe"\ntimeout = 30\nmagics = ["time"]\npreload = ["json"]\n'
    (tmp_path / "own.toml").write_text(lines + '[add]\nallowed_modules = ["numpy"]\n')
    status, out, _ = run("policy", "diff", "safe", "own.toml", "--json")
    found = {one["field"]: one["cells"] for one in json.loads(out)}
    assert (status, found) == (
        1,
        {"allowed_modules": "more", "magics": "less", "preload": "other", "timeout": "less"},
    )
    out = run("policy", "diff", "safe", "own.toml")[1]
    assert "+ numpy" in out
    assert "60.0 → 30.0" in out
    assert run("policy", "diff", "own.toml", "own.toml")[:2] == (0, "They allow the same.\n")


def test_diff_shows_a_grant_as_more_and_what_is_not_there_as_not_granted(run, tmp_path):
    (tmp_path / "old.toml").write_text(
        'ops.http.hosts = ["a.example.org"]\nops.list_dir.roots = ["."]'
    )
    (tmp_path / "new.toml").write_text(
        'ops.http = { hosts = ["a.example.org", "b.example.org"], timeout = 5, allow_private = true }\n'
        'llm = { base_url = "http://127.0.0.1:1/v1", models = ["one"] }\n'
        '[tools.mcp.weather]\ncommand = ["weather"]\ntools = ["*"]\n'
    )
    out = run("policy", "diff", "old.toml", "new.toml", "--json")[1]
    assert {one["field"]: one["cells"] for one in json.loads(out)} == {
        "llm": "more",
        "mcp.weather": "more",
        "ops.http.allow_private": "more",
        "ops.http.hosts": "more",
        "ops.http.timeout": "less",
        "ops.list_dir": "less",
    }
    out = run("policy", "diff", "safe", "new.toml")[1]
    assert "not granted → hosts" in out
    assert "no limit" not in out


def test_a_run_follows_no_link_to_its_inputs_that_cells_could_have_put_there(run, tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "secret.json").write_text('{"token": "secret"}')
    (tmp_path / "work/in.json").symlink_to(tmp_path / "secret.json")
    (tmp_path / "a.ipynb").write_text("{}")
    (tmp_path / "own.toml").write_text('filesystem_write_roots = ["work"]')
    status, out, err = run(
        "run", "a.ipynb", "-o", "out", "--policy", "own.toml", "--input", "work/in.json"
    )
    assert (status, "a link leads there that cells could change" in out + err) == (2, True)


def test_schema_is_json_schema_and_show_tells_what_is_wrong_in_one_line(run):
    status, out, _ = run("policy", "schema")
    assert status == 0
    assert json.loads(out)["properties"]["timeout"]["default"] == 60.0

    status, out, err = run("policy", "show", "saef")
    assert (status, out) == (2, "")
    assert err == "cellblock: saef: no such policy. Did you mean safe? Or give a file.\n"


COMMAND = "##vso[task.complete]"


@pytest.mark.parametrize(
    "arguments",
    [
        ("policy", "show", f"{COMMAND}.toml"),
        ("policy", "show", f"{COMMAND}.toml", "--json"),
        ("policy", "show", f"{COMMAND}.none"),
        ("policy", "validate", f"{COMMAND}.toml", f"{COMMAND}.none"),
        ("policy", "diff", "unsafe", f"{COMMAND}.toml"),
        ("approve", f"{COMMAND}.ipynb", "--policy", f"{COMMAND}.toml"),
        ("approvals", "revoke", COMMAND),
        ("audit", "show", "--folder", f"{COMMAND}.none"),
        ("audit", "verify", "--folder", f"{COMMAND}.none"),
        ("changes", "diff", COMMAND),
        ("receipt", "verify", f"{COMMAND}.none", "--key", f"{COMMAND}.key"),
        ("run", f"{COMMAND}.none", "-o", "out"),
    ],
)
def test_no_name_of_a_file_is_a_command_to_a_ci_runner(run, tmp_path, arguments):
    (tmp_path / f"{COMMAND}.toml").write_text('extends = "safe"\n')
    _, out, err = run(*arguments)
    assert "vso" in out + err  # control: the name is printed
    assert COMMAND not in out + err


def test_validate_names_each_file_and_fails_if_one_is_wrong(run, tmp_path):
    (tmp_path / "good.toml").write_text('extends = "data"')
    (tmp_path / "bad.toml").write_text("timeot = 3")
    (tmp_path / "open.toml").write_text('extends = "unsafe"\n')
    status, out, err = run("policy", "validate", "good.toml", "bad.toml", "open.toml")
    assert status == 1
    assert out == "good.toml: ok\nopen.toml: ok (mode unsafe: starts only with --allow-unsafe)\n"
    assert err == "cellblock: bad.toml: timeot: no such key. Did you mean timeout?\n"
    assert run("policy", "validate", "good.toml")[0] == 0


def test_validate_doctor_and_install_refuse_a_root_that_kernels_refuse(run, tmp_path):
    (tmp_path / "home/.ssh").mkdir()
    (tmp_path / "keys.toml").write_text('add.filesystem_read_roots = ["~/.ssh"]')
    why = (
        "keys.toml: filesystem_read_roots: this root lies in a place that is never readable "
        f"(got '{tmp_path}/home/.ssh'). "
    )
    status, out, err = run("policy", "validate", "keys.toml")
    assert (status, out) == (1, "")
    assert err.startswith(f"cellblock: {why}")
    here = f"In a kernel that starts in this folder no cell would run: {why}"
    status, _, err = run("doctor", "--policy", "keys.toml")
    assert status == 1
    assert err.startswith(f"cellblock: {here}")
    assert here in run("install", "--policy", "keys.toml", "--user")[1]
    assert not (tmp_path / "work").exists()


@pytest.mark.parametrize("name", COMMANDS)
def test_flags_in_help_look_like_flags(run, name):
    command = load_command(name)
    groups = [[name], *([name, each] for each in getattr(command, "commands", {}))]
    for words in groups:
        assert "<bool>" not in run(*words, "--help")[1]
    assert "<bool>" not in run("--help")[1]


def test_install_says_who_finds_the_kernel(run, tmp_path, monkeypatch):
    own = tmp_path / "environment"
    monkeypatch.setattr(sys, "prefix", str(own))
    for arguments, env, folder, whom in (
        (["--user"], "1", tmp_path / "jupyter_data_dir", "for this user in every environment"),
        (["--sys-prefix"], "1", own / "share/jupyter", "for this Python environment"),
        (["--as", "python3"], "1", own / "share/jupyter", "for this Python environment"),
        (["--as", "python3"], "0", tmp_path / "jupyter_data_dir", "for this user in every"),
        (["--prefix", str(tmp_path / "p")], "1", tmp_path / "p/share/jupyter", ""),
    ):
        monkeypatch.setenv("JUPYTER_PREFER_ENV_PATH", env)
        said = run("install", *arguments)[1].splitlines()[0]
        name = "python3" if "--as" in arguments else "cellblock-safe"
        where = f"Installed kernel {name} in {folder}/kernels/{name}"
        assert said.startswith(f"{where}, {whom}" if whom else where)
        assert whom or said == where


def test_install_says_what_would_keep_each_cell_from_running_here(run, tmp_path):
    (tmp_path / "team.toml").write_text(
        'artifact_export_paths = ["work/plots/*.png"]\n'
        'filesystem_read_roots = ["{project}"]\n'
        'filesystem_write_roots = ["{scratch}", "{project}/work?"]'
    )
    args = ("install", "--policy", "team.toml", "--prefix", str(tmp_path / "p"))
    status, out, _ = run(*args)
    assert status == 0
    assert out.splitlines()[-1] == (
        "In a kernel that starts in this folder no cell would run: team.toml: artifact_export_paths: "
        "it matches no file that cells can write (got 'work/plots/*.png'). "
        f"Make the folder {tmp_path}/work, if the policy lets cells write there. "
        "Or name what is beneath a write root: {scratch}."
    )
    (tmp_path / "work").mkdir()
    assert "no cell would run" not in run(*args)[1]


def test_install_writes_a_kernelspec_that_names_interpreter_and_file_absolutely(run, tmp_path):
    (tmp_path / "team.toml").write_text('extends = "data"')
    status, out, _ = run("install", "--policy", "team.toml", "--prefix", str(tmp_path / "p"))
    folder = tmp_path / "p/share/jupyter/kernels/cellblock-team"
    assert status == 0
    installed, verdict, *_ = out.splitlines()
    assert installed == f"Installed kernel cellblock-team in {folder}"
    assert verdict[0] in "✓◐✗"
    started = f"{sys.executable} -E -P -s -m cellblock -f {{connection_file}} --policy".split()
    assert json.loads((folder / "kernel.json").read_text()) == {
        "argv": [*started, str(tmp_path / "team.toml")],
        "display_name": "cellblock (team)",
        "language": "python",
        "interrupt_mode": "message",
        "metadata": {"debugger": False, "supported_encryption": ["curve"]},
    }


def test_install_names_a_file_of_inputs_absolutely_and_looks_at_it_first(run, tmp_path):
    (tmp_path / "in.json").write_text('{"city": "Rome"}')
    (tmp_path / "bad.json").write_text("[]")
    args = ("install", "--name", "given", "--prefix", str(tmp_path / "p"), "--input")
    assert run(*args, str(tmp_path / "bad.json"))[0] == 2
    assert not (tmp_path / "p").exists()
    assert run(*args, str(tmp_path / "in.json"))[0] == 0
    spec = json.loads((tmp_path / "p/share/jupyter/kernels/given/kernel.json").read_text())
    at = spec["argv"].index("--input")
    assert spec["argv"][at + 1] == str(tmp_path / "in.json")


def test_install_of_unsafe_has_to_be_asked_for_or_asks_its_user(run, tmp_path):
    args = ("install", "--policy", "unsafe", "--prefix", str(tmp_path))
    status, _, err = run(*args)
    assert status == 2
    assert "mode unsafe has to be asked for" in err
    assert run(*args, "--allow-unsafe")[0] == 0
    written = (tmp_path / "share/jupyter/kernels/cellblock-unsafe/kernel.json").read_text()
    assert json.loads(written)["argv"][-3:] == ["--policy", "unsafe", "--allow-unsafe"]

    (tmp_path / "asks.toml").write_text('extends = "unsafe"\napprovals = "prompt"\n')
    args = ("install", "--policy", "asks.toml", "--prefix", str(tmp_path))
    written = tmp_path / "share/jupyter/kernels/cellblock-asks/kernel.json"
    assert run(*args)[0] == 0
    assert "--allow-unsafe" not in json.loads(written.read_text())["argv"]
    assert run(*args, "--allow-unsafe")[0] == 0
    assert json.loads(written.read_text())["argv"][-1] == "--allow-unsafe"
    assert "or when its user allows it" in run("policy", "validate", "asks.toml")[1]


def test_install_of_a_wrong_policy_or_to_two_places_writes_nothing(run, tmp_path):
    (tmp_path / "bad.toml").write_text("timeot = 3")
    assert run("install", "--policy", "bad.toml", "--prefix", str(tmp_path / "p"))[0] == 2
    assert not (tmp_path / "p").exists()
    assert run("install", "--user", "--sys-prefix")[0] == 2


@pytest.mark.parametrize("name", ["cellblock", "cellblock-data", "../up", "a b", ""])
def test_install_takes_no_name_that_is_taken_or_no_name(run, tmp_path, name):
    status, _, err = run("install", "--name", name or " ", "--prefix", str(tmp_path))
    assert status == 2
    assert "--name" in err


def test_uninstall_removes_what_install_wrote_and_both_leave_other_kernels_alone(run, tmp_path):
    assert run("install", "--name", "mine", "--display-name", "Mine")[0] == 0
    folder = tmp_path / "jupyter_data_dir/kernels/mine"
    assert json.loads((folder / "kernel.json").read_text())["display_name"] == "Mine"
    assert run("uninstall", "mine") == (0, f"Removed {folder}\n", "")
    assert not folder.exists()
    other = tmp_path / "jupyter_data_dir/kernels/other/kernel.json"
    other.parent.mkdir()
    other.write_text('{"argv": ["other"], "display_name": "x", "language": "x"}')
    for name in ("mine", "other", "cellblock"):
        assert run("uninstall", name)[0] == 2
    said = "cellblock: other is another kernel: choose another --name.\n"
    assert run("install", "--name", "other") == (2, "", said)
    assert other.exists()


def test_version_is_the_packages(run):
    assert run("--version") == (0, f"cellblock {__version__}\n", "")


def test_install_as_python3_takes_its_place_and_uninstall_gives_it_back(run, tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_PREFER_ENV_PATH", "0")
    folder = tmp_path / "jupyter_data_dir/kernels/python3"
    folder.mkdir(parents=True)
    stock = '{"argv": ["ipykernel"], "display_name": "Python 3 (ipykernel)", "language": "python"}'
    (folder / "kernel.json").write_text(stock)
    assert run("install", "--name", "python3")[0] == 2
    for policy in ("safe", "data"):  # the second time what is displaced is ours
        assert run("install", "--as", "python3", "--policy", policy, "--user")[0] == 0
    spec = json.loads((folder / "kernel.json").read_text())
    assert spec["argv"][-1] == "data"
    assert spec["display_name"] == "Python 3 (cellblock: data)"
    said = f"Removed {folder}\npython3 is Python 3 (ipykernel) in {folder} again\n"
    assert run("uninstall", "python3") == (0, said, "")
    assert [(path.name, path.read_text()) for path in folder.iterdir()] == [("kernel.json", stock)]


def test_install_as_python3_says_when_jupyter_finds_another_first(run, tmp_path, monkeypatch):
    first = tmp_path / "first/kernels/python3/kernel.json"
    first.parent.mkdir(parents=True)
    first.write_text('{"argv": ["other"], "display_name": "Other", "language": "python"}')
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "first"))
    said = run("install", "--as", "python3", "--user")[1].splitlines()[1]
    assert said == f"Jupyter finds another python3 first: Other in {first.parent}"


def notebook_for(path, kernel, source="import numpy"):
    cell = {"cell_type": "code", "source": source, "metadata": {}, "outputs": []}
    metadata = {"kernelspec": {"name": kernel, "display_name": "x"}}
    cells = [cell | {"id": "a", "execution_count": None}]
    whole = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    path.write_text(json.dumps(whole))


def test_check_takes_the_policy_of_the_kernel_that_a_notebook_names(run, tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_PREFER_ENV_PATH", "0")
    (tmp_path / "team.toml").write_text('extends = "safe"\n[add]\nallowed_modules = ["glob"]')
    assert run("install", "--policy", "team.toml", "--as", "python3", "--user")[0] == 0
    notebook_for(tmp_path / "a.ipynb", "python3", "import glob")
    assert run("check", "a.ipynb")[:2] == (0, "1 file, no findings · policy team\n")
    assert run("check", "--policy", "safe", "a.ipynb")[0] == 1
    notebook_for(tmp_path / "b.ipynb", "ir", "import glob")
    assert run("check", "b.ipynb")[0] == 1
    status, out, err = run("check", "--format", "json", "a.ipynb", "b.ipynb")
    report = json.loads(out)
    assert (status, err, report["policy"]) == (1, "", "safe, team")
    assert [(f["path"], f["policy"]) for f in report["findings"]] == [("b.ipynb", "safe")]


def test_a_script_has_the_policy_of_all_the_notebooks_that_are_checked(run, tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_PREFER_ENV_PATH", "0")
    (tmp_path / "helpers.py").write_text("import socket")
    notebook_for(tmp_path / "a.ipynb", "cellblock-data", "import socket")
    assert run("check", ".") == (0, "2 files, no findings · policy data\n", "")
    notebook_for(tmp_path / "b.ipynb", "python3", "1")
    report = json.loads(run("check", "--format", "json", ".")[1])
    assert [(f["path"], f["policy"]) for f in report["findings"]] == [("helpers.py", "safe")]


def test_run_runs_each_notebook_under_its_own_kernels_policy(run, tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_PREFER_ENV_PATH", "0")
    (tmp_path / "team.toml").write_text('extends = "safe"\n[add]\nallowed_modules = ["glob"]')
    assert run("install", "--policy", "team.toml", "--as", "python3", "--user")[0] == 0
    notebook_for(tmp_path / "a.ipynb", "python3", "import glob")
    notebook_for(tmp_path / "b.ipynb", "python3", "import socket")
    notebook_for(tmp_path / "c.ipynb", "python3.12", "import socket")  # another's, under data
    status, out, err = run("run", ".", "-o", "out")
    assert (status, err) == (1, "")
    verdicts = {
        line.split()[1]: line.split()[0] for line in out.splitlines() if ".ipynb  (" in line
    }
    assert verdicts == {"a.ipynb": "passed", "b.ipynb": "denied", "c.ipynb": "passed"}


def test_a_notebook_for_a_kernel_that_confines_nothing_does_not_allow_it(run, tmp_path):
    assert run("install", "--policy", "unsafe", "--allow-unsafe")[0] == 0
    notebook_for(tmp_path / "a.ipynb", "cellblock-unsafe")
    status, _, err = run("run", "a.ipynb", "-o", "out")
    assert (status, "--allow-unsafe" in err) == (2, True)
    assert run("check", "a.ipynb")[0] == 2


def test_doctor_fails_where_nothing_real_enforces(run, tmp_path):
    (tmp_path / "open.toml").write_text('backend = "noop"')
    status, out, _ = run("doctor", "--policy", "open.toml", "--json")
    assert status == 1
    assert json.loads(out)["backend"] == "noop"
    status, shown, _ = run("doctor", "--policy", "open.toml")
    assert status == 1
    assert shown.startswith("✗ Audit only: the operating system enforces nothing of this policy.\n")


def test_doctor_says_the_same_in_json_and_for_people(run):
    status, out, _ = run("doctor", "--policy", "safe", "--json")
    report = json.loads(out)
    assert status == (report["backend"] == "noop")
    _, verdict, _ = run("doctor", "--policy", "safe")
    same, shown, _ = run("doctor", "--policy", "safe", "--all")
    assert same == status
    assert shown.startswith(verdict.splitlines()[0])
    assert verdict[0] in "✓◐✗"
    for capability in report["capabilities"]:
        assert capability["capability"] in shown
        assert capability["status"] in shown
    assert report["unproved"] == ""
    for each in report["probes"]:
        assert f"{each['name']} {each['outcome']}" in shown
    fields = ["capability", "status", "asked", "actual", "consequence", "remedy"]
    fields += ["contradicted", "matters"]
    assert all(list(gap) == fields for gap in report["gaps"])
    assert report["os_kernel"] in shown


def test_doctor_tries_the_policy_of_each_kernel_that_there_is(run, tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "more"))
    (tmp_path / "open.toml").write_text('backend = "noop"')
    assert run("install", "--policy", "open.toml", "--name", "open", "--user")[0] == 0
    named = {"safe", "data", str(tmp_path / "open.toml")}
    assert named <= {*specs.installed_policies()}
    monkeypatch.setattr(
        specs, "installed_policies", lambda: ("safe", str(tmp_path / "open.toml"), "no.toml")
    )
    status, out, err = run("doctor")
    assert status == 1  # of the second and the third
    assert "Audit only" in out
    assert err.startswith("cellblock: no.toml: no such file")
    assert len(json.loads(run("doctor", "--json")[1])) == 2


def test_image_build_says_why_there_is_no_engine(run, monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    status, out, err = run("image", "build")
    assert (status, out) == (2, "")
    assert err == (
        "cellblock: no container engine is installed: install docker, podman or nerdctl\n"
    )


def test_doctor_fails_where_a_probe_passes_that_should_not(run, monkeypatch):
    proof = Proof({"environment": Seen("passed")}, "Linux 6.1", "now")
    monkeypatch.setattr(proving, "prove", lambda *_: (proof, None))
    status, shown, _ = run("doctor", "--policy", "safe")
    assert status == 1
    assert "✗ environment: a cell can read the host's environment" in shown
    status, out, _ = run("doctor", "--policy", "safe", "--json")
    assert status == 1
    (gap,) = [each for each in json.loads(out)["gaps"] if each["contradicted"]]
    assert (gap["capability"], gap["status"]) == ("env_var_access", "unenforced")
