"""Grading: a submission that hangs, cheats or lies costs nobody else anything."""

import csv

import nbformat

from support.notebooks import notebook

PAGE = "howto/grading.md"
WORKS = (
    "def median(numbers):\n    return sorted(numbers)[len(numbers) // 2]",
    "def initials(name):\n    return ''.join(word[0] for word in name.split())",
)
SUBMISSIONS = {
    "ada": WORKS,
    "bob": (WORKS[0], "while True: pass", WORKS[1]),
    "cy": (
        "import os\nos._exit(0)",
        "import numpy\nnumpy.loadtxt('../ada/homework.ipynb', str)",
        "def median(numbers): return 5",
        WORKS[1],
    ),
}


def test_each_gets_the_points_for_what_works(world, follow, shell):
    follow(PAGE, [("timeout = 20.0", "timeout = 2.0")], but=("python ",))
    for name, cells in SUBMISSIONS.items():
        (world.work / "submissions" / name).mkdir(parents=True)
        (world.work / "submissions" / name / "homework.ipynb").write_text(notebook(*cells))

    ran = shell("python grade.py submissions out")

    assert ran.returncode == 0, ran.stderr
    with (world.work / "out/grades.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert {row[0]: row[1] for row in rows[1:]} == {"ada": "2", "bob": "2", "cy": "1"}
    assert rows[3][2] == "5"
    errors = {
        path.stem: [
            output.ename
            for cell in nbformat.read(path, 4).cells
            for output in cell.outputs
            if output.output_type == "error"
        ]
        for path in (world.work / "out").glob("*.ipynb")
    }
    assert errors == {
        "ada": [],
        "bob": ["CellStopped"],
        "cy": ["PolicyDenied", "PermissionError"],
    }
