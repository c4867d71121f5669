"""The GitHub action and the GitLab templates: their scripts, run as the servers run them."""

import re
from xml.etree import ElementTree as ET

import pytest

from support.kernels import ROOT
from support.notebooks import notebook

yaml = pytest.importorskip("yaml", reason="PyYAML comes with JupyterLab and with bokeh")


@pytest.fixture
def checkout(world):
    """A repository with a clean notebook, one that the presets refuse, and a pip of its own."""
    folder = world.work / "repo"
    (folder / "a b").mkdir(parents=True)
    (folder / "a b" / "clean.ipynb").write_text(notebook("1 + 1"))
    (folder / "bad.ipynb").write_text(notebook("import gc"))
    (folder / "writes.ipynb").write_text(
        notebook("import socket\nsocket.create_connection(('192.0.2.1', 80))")
    )
    (folder / "pip.py").write_text("print('pip of the pull request')")
    return folder


@pytest.fixture
def action(world, shell, checkout):
    """Return a function that runs the action with inputs; it returns what came of it."""
    made = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
    _, install, main = made["runs"]["steps"]

    def run(step=main, **inputs):
        given = {name: each["default"] for name, each in made["inputs"].items()} | inputs
        variables = {
            name: re.sub(r"\$\{\{ inputs\.(\S+) \}\}", lambda found: given[found[1]], value)
            for name, value in step["env"].items()
        }
        (world.root / "outputs").touch()
        places = {"RUNNER_TEMP": str(world.root), "GITHUB_OUTPUT": str(world.root / "outputs")}
        places["GITHUB_ACTION_PATH"] = str(world.root / "nothing")
        # Not in this process, as a script of one command would be.
        return shell(f"set -e; {step['run']}", cwd=checkout, **places, **variables)

    run.install = install
    return run


def test_the_action_checks_what_it_is_given_and_annotates_lines(action):
    assert action(paths="a b").returncode == 0
    ran = action(paths="a b\nbad.ipynb\n")
    assert ran.returncode == 1
    assert "::error file=bad.ipynb" in ran.stdout
    assert action(paths="bad.ipynb", options="--exclude=bad.ipynb\n").returncode != 1
    assert action(paths="bad.ipynb", policy="data").returncode == 0


def test_the_action_runs_notebooks_and_says_where_the_report_is(world, action):
    ran = action(command="run", paths="a b\nwrites.ipynb", options="--timeout=60\n--jobs=1")
    assert ran.returncode == 1, ran.stdout + ran.stderr
    name, folder = (world.root / "outputs").read_text().strip().split("=")
    assert name == "folder"
    told = [
        (case.get("name"), [each.tag for each in case])
        for case in ET.parse(f"{folder}/junit.xml").iter("testcase")
    ]
    assert sorted(told) == [("clean.ipynb", []), ("writes.ipynb", ["failure"])]


def test_the_action_runs_no_text_of_its_inputs(world, action):
    mark = world.root / "ran"
    for text in (f"$(touch {mark})", f"`touch {mark}`", f"'; touch {mark}; '", f"--output={mark}"):
        for name in ("command", "paths", "policy"):
            assert action(**{name: text}).returncode == 2
    assert not mark.exists()


def test_no_pip_of_a_pull_request_installs_the_action(action):
    step = action.install
    bare = dict(step, run=step["run"].replace("python -I ", "python "))
    assert "pip of the pull request" in action(bare).stdout
    assert "pip of the pull request" not in action(step).stdout


@pytest.mark.parametrize("name", ["check", "run"])
def test_the_gitlab_template_opens_for_what_is_clean_and_shuts_for_what_is_not(
    shell, checkout, name
):
    spec, jobs = yaml.safe_load_all((ROOT / f"packaging/gitlab/{name}.yml").read_text("utf-8"))
    (job,) = jobs.values()
    for paths, status in (('"a b"', 0), ("bad.ipynb", 1)):
        given = {key: each["default"] for key, each in spec["spec"]["inputs"].items()}
        given |= {"paths": paths, "policy": "safe"}
        install, *script = [
            re.sub(r"\$\[\[ inputs\.(\w+) \]\]", lambda found: given[found[1]], line)  # noqa: B023  # used at once
            for line in job["script"]
        ]
        assert install.startswith("python -I -m pip install")
        ran = shell("\n".join(["set -e", *script]), cwd=checkout)
        assert ran.returncode == status, ran.stdout + ran.stderr
        for path in job["artifacts"]["paths"]:
            assert (checkout / path).exists()
