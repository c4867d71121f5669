"""The README's commands and its program, as they stand there."""

import re
import shutil
import sys
import textwrap
from pathlib import Path

from support import reading

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "README.md").read_text()
#: Indented lines, without what they say about themselves.
COMMANDS = [
    re.split(r"\s+#\s", line)[0].strip()
    for line in re.findall(r"^ {4}(\S.*)$", TEXT, re.MULTILINE)
    if line.startswith(("cellblock", "echo", "jupyter"))
]
PROGRAM = re.search(r"^ {4}from cellblock.*\n(?: {4}.*\n|\n(?= {4}))+", TEXT, re.MULTILINE)[0]
#: Servers, which end when their client does.
SERVES = ("cellblock mcp",)


def test_each_command_does_what_it_says(world, shell):
    folder = world.work / "cellblock"
    shutil.copytree(ROOT / "notebooks", folder / "notebooks")
    for command in COMMANDS:
        if not command.startswith(SERVES):
            # As a program: `shell` runs what begins with "cellblock" in this process.
            ran = shell(f"true; {command}", cwd=folder)
            said = reading.ANSI.sub("", ran.stdout + ran.stderr)
            finds = command.startswith("cellblock check")
            assert ran.returncode == finds, (command, said)
            assert not finds or "3 findings" in said
    assert {each.split()[1] for each in COMMANDS if each.startswith("cellblock ")} >= {
        *("check", "doctor", "install", "mcp", "policy", "run")
    }


def test_the_program_runs_as_it_is_pasted(world, shell):
    (world.work / "program.py").write_text(textwrap.dedent(PROGRAM))

    ran = shell(f"{sys.executable} program.py")

    assert (ran.stdout, ran.returncode) == ("'Rome is a city'\n", 0), ran.stderr
