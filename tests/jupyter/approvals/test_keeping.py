"""What cells wrote is kept by who types a code, and by nobody else: no cell, no hurry, no swap."""

import json
import subprocess
import sys

import pytest

from support import machines, reading
from support.approvals import code_in, drop_questions, run
from support.kernels import Kernel, argv_for, world_and_prefix
from support.processes import until

POLICY = """
extends = "data"
filesystem_read_roots = ["{project}"]
filesystem_staged_roots = ["{project}"]
"""
WAYS = [(user, backend) for user in machines.users() for backend in ("landlock", "bubblewrap")]


@pytest.fixture(scope="module", params=WAYS, ids=" ".join)
def kernel(request):
    user, backend = request.param
    world, prefix = world_and_prefix(user)
    world.write("old.csv", "before\n")
    policy = world.policy(f'backend = "{backend}"\n{POLICY}')
    made = Kernel(argv_for(policy), world=world, prefix=prefix)
    made.prefix = prefix
    yield made.wait_ready()
    made.close()
    world.close()


@pytest.fixture(autouse=True)
def project(kernel):
    """Return the project, in which only the first file is, and the layer with nothing staged."""
    yield kernel.world.work
    kernel.run("%changes drop")
    for path in kernel.world.work.iterdir():
        if path.name != "old.csv":
            path.unlink()


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def records(kernel, kind):
    (log,) = kernel.world.home.glob(".cache/cellblock/audit/*.jsonl")
    return [one for line in log.open() if (one := json.loads(line))["kind"] == kind]


def test_what_is_asked_about_is_kept_and_entered_once_the_code_is_typed(kernel, project):
    kernel.run("_ = open('new.csv', 'w').write('a,b\\n'); open('other', 'w').write('x')")
    (prompt,), reply, published = run(kernel, "%changes keep new.csv", "{}")
    count = reply["execution_count"]
    assert prompt.startswith(f"┃ cellblock asks: may cell [{count}] keep 1 staged file?\n")
    assert "new.csv, 4 bytes" in prompt.replace("¬\n┃       ", "")
    assert f"┃ To allow it, type {code_in(prompt)}. Anything else is no.\n" in prompt
    assert reply["status"] == "ok"
    assert "+a,b" in reading.of(published, "display_data")[0]["data"]["text/html"]
    assert "Kept 1 file: the project has what the cells wrote" in reading.card_text(published)
    assert names(project) == ["new.csv", "old.csv"]
    (asked,) = [one for one in records(kernel, "approval") if one["of"] == "keep"]
    (kept,) = records(kernel, "kept")
    assert (asked["decision"], asked["asked"], asked["seq"]) == ("once", True, kept["seq"] - 1)
    assert (kept["name"], kept["bytes"]) == (f"{project}/new.csv", 4)
    assert (kept["of"], kept["by"]) == (kept["session"], "a code")
    _, _, published = run(kernel, "%changes")
    assert "other" in reading.card_text(published)
    assert "new.csv" not in reading.card_text(published)


def test_no_number_of_new_files_hides_what_would_become_of_the_users_own(kernel):
    kernel.run(
        "import os; os.mkdir('many')\n"
        "for n in range(120): _ = open(f'many/{n:03}', 'w').write('x\\n' * 90)\n"
        "_ = open('old.csv', 'a').write('evil\\n')"
    )
    (prompt,), _, published = run(kernel, "%changes keep many old.csv", "no")
    kernel.run("_ = open('old.csv', 'w').write('before\\n')")
    named = prompt.replace("¬\n┃       ", "")
    assert "old.csv, 12 bytes\n┃   new in " in named
    in_a_line = " ".join(named.replace("┃", "").split())
    assert "/many/, 120 files, 21.1 KiB: 000 … 119 (120)" in in_a_line
    shown = reading.of(published, "display_data")[0]["data"]
    _, first, second, *_ = shown["text/plain"].split("\n  ")
    assert first == "changed  old.csv  12 bytes ← 7 bytes"
    assert second.endswith("│ --- old.csv (yours)")
    assert "+evil" in shown["text/html"]
    assert "  and 21 more: see cellblock changes diff " in shown["text/plain"]
    assert "33 lines not shown whole: see cellblock changes diff " in shown["text/plain"]


def test_what_one_question_can_not_name_is_refused_with_a_remedy_that_works(kernel, project):
    kernel.run("import os\nfor n in range(41): os.mkdir(f'd{n}'); open(f'd{n}/x', 'w').close()")
    asked, reply, _ = run(kernel, "%changes keep")
    assert asked == []
    assert "41 staged files can't be asked about at once" in reply["evalue"]
    assert "Keep fewer paths at once" in reply["evalue"]
    _, reply, _ = run(kernel, "%changes keep d1 d2", "no")
    assert reply["evalue"] == "nothing was kept: you said no"
    assert names(project) == ["old.csv"]


@pytest.mark.parametrize("answers", [("no",), ("",), ("417 session", "once"), ("{} always", "y")])
def test_no_other_answer_keeps_anything(kernel, project, answers):
    kernel.run("_ = open('new.csv', 'w').write('x')")
    _, reply, _ = run(kernel, "%changes keep", *answers)
    assert (reply["ename"], reply["evalue"]) == ("ChangesError", "nothing was kept: you said no")
    assert names(project) == ["old.csv"]


ALONE = "%changes keep must be in a cell of its own"
ATTACKS = {
    "x = 1\n%changes keep": ALONE,
    "get_ipython().run_line_magic('changes', 'keep new.csv')": ALONE,
    "for _ in 'a':\n    %changes keep": ALONE,
    "%time %changes keep": ALONE,
}


@pytest.mark.parametrize("code", ATTACKS)
def test_a_cell_that_does_more_keeps_nothing_and_nobody_is_asked(kernel, project, code):
    kernel.run("_ = open('new.csv', 'w').write('x')")
    _, reply, published = run(kernel, code)
    assert ALONE in reply.get("evalue", "") + reading.notices(published)
    assert names(project) == ["old.csv"]


def test_a_thread_that_swaps_the_file_while_the_user_reads_has_nothing_kept(kernel, project):
    kernel.run(
        "import threading, time\n"
        "open('new.csv', 'w').write('good')\n"
        "def swap():\n"
        "    time.sleep(1)\n"
        "    open('new.csv', 'w').write('evil')\n"
        "threading.Thread(target=swap).start()"
    )
    mid = kernel.execute_send("%changes keep", allow_stdin=True)
    code = code_in(kernel.recv("stdin")["content"]["prompt"])
    (staged,) = kernel.world.home.glob(".local/share/cellblock/changes/*/0/upper/new.csv")
    until(lambda: staged.read_text() == "evil")
    kernel.send("input_reply", {"value": code}, "stdin")
    reply = kernel.reply(mid)["content"]
    kernel.until_idle(mid)
    assert reply["evalue"] == f"nothing was kept: {project}/new.csv: it changed meanwhile"
    assert names(project) == ["old.csv"]


def test_a_file_that_the_user_changed_is_refused_with_a_remedy_that_works(kernel, project):
    kernel.run("_ = open('old.csv', 'a').write('cell\\n')")
    kernel.world.write("old.csv", "the user's\n")
    _, reply, _ = run(kernel, "%changes keep")
    assert "old.csv was changed by somebody else at" in reply["evalue"]
    assert "--overwrite" in reply["evalue"]
    assert (project / "old.csv").read_text() == "the user's\n"
    _, reply, _ = run(kernel, "%changes keep --overwrite old.csv", "{}")
    assert reply["status"] == "ok"
    assert (project / "old.csv").read_text() == "before\ncell\n"
    kernel.world.write("old.csv", "before\n")


def test_an_interrupt_takes_the_question_back(kernel, project):
    kernel.run("_ = open('new.csv', 'w').write('x')")
    mid = kernel.execute_send("%changes keep", allow_stdin=True)
    code = code_in(kernel.recv("stdin")["content"]["prompt"])
    kernel.interrupt()
    reply = kernel.reply(mid)["content"]
    kernel.until_idle(mid)
    assert reply["evalue"] == "nothing was kept: it was interrupted"
    kernel.send("input_reply", {"value": code}, "stdin")
    drop_questions(kernel)
    assert run(kernel, "1")[1]["status"] == "ok"
    assert names(project) == ["old.csv"]


def test_where_nobody_can_be_asked_the_command_that_it_names_keeps_it(kernel, project):
    kernel.run("_ = open('it\\'s new', 'w').write('x')")
    reply, _ = kernel.run('%changes keep "it\'s new"', allow_stdin=False)
    said, command, where = reply["evalue"].split("`")
    assert said == "nobody can be asked here, and keeping is yours to say: "
    assert where == " in a terminal"
    environment = kernel.world.environment() | {"PATH": f"{sys.prefix}/bin:/usr/bin:/bin"}
    ran = subprocess.run(
        [*kernel.prefix, "bash", "-c", command],
        env=environment,
        cwd="/",
        check=True,
        capture_output=True,
        text=True,
    )
    assert ran.stdout == f"new      {project}/it's new\nkept 1\n"
    assert names(project) == ["it's new", "old.csv"]
