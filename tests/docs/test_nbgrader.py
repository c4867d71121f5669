"""nbgrader's quickstart course as the page grades it: an honest submission, and others."""

import contextlib
import csv
import subprocess

import nbformat
import pytest

from support import doc_pages
from support.kernels import ROOT
from support.listener import ADDRESS, Listener

pytestmark = pytest.mark.timeout(900)
PAGE = "howto/nbgrader.md"
#: An environment of its own: nbgrader puts extensions into the JupyterLab that is beside it.
ENVIRONMENT = ROOT / "build/nbgrader"
HIDDEN = "\n### BEGIN HIDDEN TESTS\nassert squares(3) == [1, 4, 9]\n### END HIDDEN TESTS"
SOLVED = {
    "squares": "def squares(n):\n    if n < 1: raise ValueError\n"
    "    return [i * i for i in range(1, n + 1)]",
    "sum_of_squares": "def sum_of_squares(n):\n    return sum(squares(n))",
}
WRONG = {name: f"def {name}(n):\n    return 0" for name in SOLVED}
#: In mode safe numpy opens files and addresses.
HOSTILE = """
import numpy
def tried(call, *arguments, **options):
    try:
        call(*arguments, **options)
    except Exception as error:
        return type(error).__name__
    return "done"
for path in {paths}:
    print(tried(numpy.loadtxt, path, str, delimiter="|", comments=None))
print(tried(numpy.savetxt, "../../../gradebook.db", [1]))
print(tried(numpy.loadtxt, "http://{address}:{port}/taken"))
"""
PATHS = (
    "mine.txt",
    "problem1.ipynb",
    "../../ada/ps1/problem1.ipynb",
    "../../../submitted/ada/ps1/problem1.ipynb",
    "../../../source/ps1/problem1.ipynb",
    "../../../gradebook.db",
)


@pytest.fixture
def nbgrader(world):
    """Return a function that runs a script of the page's where nbgrader is installed."""
    if not (ENVIRONMENT / "bin/nbgrader").exists():
        made = [ROOT / "tools/venv", ENVIRONMENT, "", "", "nbgrader==0.9.*", "numpy"]
        subprocess.run(made, check=True)
    environment = world.environment()
    environment["PATH"] = f"{ENVIRONMENT}/bin:{environment['PATH']}"

    def run(script):
        ran = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            check=False,
            capture_output=True,
            text=True,
            cwd=world.work,
            env=environment,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr

    return run


def handed_in(course, name, solutions, *cells, tag=""):
    """Hand in the first problem as somebody: solved, with cells before it, and tags on its tests."""
    folder = course / "submitted" / name / "ps1"
    folder.mkdir(parents=True)
    notebook = nbformat.read(course / "release/ps1/problem1.ipynb", 4)
    for cell in notebook.cells:
        own = cell.metadata.get("nbgrader", {})
        cell.source = solutions.get(own.get("grade_id"), cell.source)
        if own.get("grade") and tag:
            cell.metadata.tags = [tag]
    notebook.cells[:0] = map(nbformat.v4.new_code_cell, cells)
    for cell in notebook.cells:
        cell.pop("id", None)  # as in nbgrader's own, of an earlier format
    notebook.metadata.kernelspec = {"name": "python3", "display_name": "", "language": "python"}
    nbformat.write(notebook, folder / "problem1.ipynb")
    (folder / "mine.txt").write_text("a word\n")


def test_submissions_get_their_points_and_reach_nothing(world, nbgrader):
    (policy,) = doc_pages.files(PAGE).values()
    world.write("nbgrader.toml", policy)
    install, quickstart, assign, grade = doc_pages.blocks(PAGE, "bash")
    nbgrader(install + quickstart)
    course = world.work / "course"
    (course / "source/ps1/problem2.ipynb").unlink()
    source = nbformat.read(course / "source/ps1/problem1.ipynb", 4)
    for cell in source.cells:
        if cell.metadata.get("nbgrader", {}).get("grade_id") == "correct_squares":
            cell.source += HIDDEN
    nbformat.write(source, course / "source/ps1/problem1.ipynb")
    nbgrader(assign)
    handed_in(course, "ada", SOLVED)
    handed_in(course, "cy", WRONG, tag="skip-execution")
    with contextlib.closing(Listener(["taken"])) as listener:
        does = HOSTILE.format(paths=PATHS, address=ADDRESS, port=listener.ports["taken"])
        others = ("import socket", "open('problem1.ipynb')", "while True: pass")
        handed_in(course, "bob", SOLVED, does, *others)
        nbgrader(grade)
        assert listener.contacts == []

    with (course / "grades.csv").open(newline="") as file:
        assert {row["student_id"]: row["score"] for row in csv.DictReader(file)} == {
            "ada": "3.0",
            "bob": "3.0",
            "cy": "0.0",
        }
    graded = nbformat.read(course / "autograded/bob/ps1/problem1.ipynb", 4)
    tried = "".join(o.get("text", "") for o in graded.cells[0].outputs).split()
    assert (tried[0], len(tried)) == ("done", len(PATHS) + 2)
    assert "done" not in tried[1:]
    errors = [[o.ename for o in c.outputs if "ename" in o] for c in graded.cells[1:4]]
    assert errors == [["PolicyDenied"], ["PolicyDenied"], ["CellStopped"]]
    assert (course / "feedback/bob/ps1/problem1.html").exists()
