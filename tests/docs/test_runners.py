"""Runners of notebooks in CI: each runs cellblock's kernel, says why it failed, and runs no more."""

import re
from xml.etree import ElementTree as ET

import pytest

from support import doc_pages, reading
from support.notebooks import notebook

PAGE = "ci.md"
KERNEL = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
CLEAN = notebook("month = 1", "month * 2", metadata=KERNEL)
BAD = notebook("month = 1", "month * 2", "import gc\ngc.collect()", metadata=KERNEL).replace(
    '"metadata": {},', '"metadata": {"tags": ["parameters"]},', 1
)
BESIDE = ("conftest.py", "__init__.py", "test_it.py", "IPython.py")
YAML = doc_pages.blocks(PAGE, "yaml")
PREPARED, NBCONVERT, OURS, NBMAKE, PAPERMILL = doc_pages.blocks(PAGE, "bash")


@pytest.fixture
def project(world, shell):
    """A checkout, with what its author put beside the notebooks, and a kernel for our policy.

    Returns a function that runs a script there.
    """
    notebooks, out = world.work / "repo" / "notebooks", world.work / "out"
    notebooks.mkdir(parents=True)
    out.mkdir()
    for folder in (notebooks, notebooks.parent):
        for name in BESIDE:
            touch = f"open({str(world.root / 'touched')!r}, 'w').write({name!r})\n"
            (folder / name).write_text(touch)
        (folder / "pytest.ini").write_text("[pytest]\naddopts = --collect-only\n")
    (notebooks / "also.ipynb").write_text(CLEAN)
    (notebooks / "monthly.ipynb").write_text(BAD)
    names = {
        "POLICY": str(world.policy('extends = "safe"\n')),
        "REPO": str(notebooks.parent),
        "OUT": str(out),
    }
    return lambda script: shell(script, **names)


def test_runners_run_the_kernel_and_nothing_else_of_a_checkout(world, project):
    ran = project(PREPARED)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    for runner, wanted in ((NBMAKE, "1 failed, 1 passed"), (PAPERMILL, "")):
        ran = project(runner)
        said = reading.ANSI.sub("", ran.stdout + ran.stderr)
        assert ran.returncode == 1, said
        assert "import-not-allowed" in said
        assert wanted in said
    assert '"6"' in (world.work / "out/monthly.ipynb").read_text()
    assert not (world.root / "touched").exists()


RECIPES = {"github": ("jobs", "run"), "gitlab": ("notebooks",)}


@pytest.mark.parametrize("server", RECIPES)
@pytest.mark.usefixtures("project")
def test_the_job_runs_notebooks_and_nothing_else_of_a_checkout(world, shell, server):
    yaml = pytest.importorskip("yaml", reason="PyYAML comes with JupyterLab, where that is")
    job = next(filter(None, (found(yaml.safe_load(one), RECIPES[server]) for one in YAML)))
    steps = job.get("script") or [step["run"] for step in job["steps"] if "run" in step]
    assert steps.pop(0).startswith("pip install")
    checkout, temp = world.work / "repo", world.work / "out"
    # They run under data, which refuses no source.
    (checkout / "notebooks" / "monthly.ipynb").write_text(BAD.replace("import gc", "1 / 0"))
    for step in steps:
        # In a process of its own: what it imports, and from where, is looked at.
        ran = shell(f"exec {step}", cwd=checkout, RUNNER_TEMP=str(temp))
        assert ran.returncode == (1 if step.startswith("cellblock run ") else 0), ran
    assert "ZeroDivisionError" in ran.stdout
    place = (
        job["artifacts"]["reports"]["junit"] if server == "gitlab" else temp / "executed/junit.xml"
    )
    told = {
        case.get("name"): [one.tag for one in case]
        for case in ET.parse(checkout / place).iter("testcase")
    }
    assert told == {"also.ipynb": [], "monthly.ipynb": ["failure"]}
    assert not (world.root / "touched").exists()


def found(recipe, keys):
    for key in keys:
        recipe = (recipe or {}).get(key)
    return recipe


def test_pytest_alone_would_run_what_lies_beside_a_notebook(world, project):
    project(OURS)
    assert (world.root / "touched").exists()


def test_nbconvert_is_told_what_the_job_for_pull_requests_tells_it():
    """Which a test runs."""
    (job,) = doc_pages.blocks("howto/pull-request.md", "yaml")
    (_, told), (_, here) = (
        re.search(
            r"(jupyter nbconvert .*?)(--\S.*?) \S+ipynb", text.replace("\\\n", " "), re.DOTALL
        ).group(1, 2)
        for text in (job, NBCONVERT)
    )
    assert told.replace("review", "ci").split() == here.split()
