"""An untrusted pull request: its cells are run and nothing else of it, by nobody's policy but ours."""

import sys

import pytest
from nbconvert.nbconvertapp import NbConvertApp

from support import doc_pages, reading
from support.notebooks import notebook

PAGE = "howto/pull-request.md"
KERNEL = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
CLEAN = notebook("import statistics\nstatistics.fmean([1, 2])", metadata=KERNEL)
BAD = notebook("open('/etc/passwd').read()", metadata=KERNEL)
#: What a pull request brings along, each of which says that it was run.
BESIDE = ("IPython.py", "nbformat.py", "sitecustomize.py", "zmq.py")


@pytest.fixture
def checkout(world, shell):
    """A checkout of a pull request, and a base branch with the policy."""
    made = world.work / "checkout"
    (made / "notebooks").mkdir(parents=True)
    (made / "policy").mkdir()
    (made / "policy/review.toml").write_text(doc_pages.files(PAGE)["review.toml"])
    identity = "-c user.name=a -c user.email=a@example.org"
    commit = f"git init -q && git add -A && git {identity} commit -qm a"
    ran = shell(f"{commit} && git update-ref refs/remotes/origin/main HEAD", cwd=made)
    assert ran.returncode == 0, ran.stderr
    (made / "policy/review.toml").write_text('extends = "unsafe"\n')
    (made / "notebooks/a.ipynb").write_text(CLEAN)
    (made / "notebooks/b.ipynb").write_text(BAD)
    for folder in (made, made / "notebooks"):
        for name in BESIDE:
            (folder / name).write_text(
                f"open({str(world.root / 'touched')!r}, 'w').write('{name}')"
            )
    return made


@pytest.fixture
def job(world, shell, checkout):
    """Return a function that runs the job's steps up to one that fails; it returns the last."""
    yaml = pytest.importorskip("yaml", reason="PyYAML comes with JupyterLab, where that is")
    (recipe,) = (yaml.safe_load(block) for block in doc_pages.blocks(PAGE, "yaml"))
    steps = [step["run"] for step in recipe["jobs"]["run"]["steps"] if "run" in step]
    assert [step.split()[0] for step in steps] == ["pip", "git", "cellblock", "cellblock", "mkdir"]
    (world.root / "runner").mkdir()

    def run():
        names = {
            "BASE": "main",
            "RUNNER_TEMP": str(world.root / "runner"),
            "GITHUB_WORKSPACE": str(checkout),
        }
        for step in steps[1:]:
            ran = shell(step, cwd=checkout, **names)
            if ran.returncode:
                break
        return ran

    return run


def test_nbconvert_would_import_what_lies_where_it_is_started(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    NbConvertApp().init_syspath()
    assert sys.path[0] == str(tmp_path)


def test_its_cells_run_under_our_policy_and_kernel_and_nothing_else_of_it(world, job):
    ran = job()

    assert "1.5" in (world.root / "runner/out/a.ipynb").read_text()
    assert ran.returncode == 1
    said = reading.ANSI.sub("", ran.stderr)
    assert "cellblock did not run this cell: 1 finding" in said
    assert "line 1  open opens files" in said
    assert not (world.root / "runner/out/b.ipynb").exists()
    assert not (world.root / "touched").exists()
