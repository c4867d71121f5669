"""After a snapshot the guest goes the way of a cell by itself: nobody can tell."""

import time

from support import reading

COUNTED = """
seen = []
shell = get_ipython()
for name in ("pre_execute", "pre_run_cell", "post_execute", "post_run_cell"):
    shell.events.register(name, lambda *_, name=name: seen.append(name))
7
"""
STATE = "shell.execution_count, len(In), len(Out), _, len(seen), sorted(k for k in globals())"

SPOILT = """
kept, real = 7, get_ipython().compile.ast_parse
def ast_parse(source, *rest, **more):
    if source == "None":
        raise SystemExit
    return real(source, *rest, **more)
get_ipython().compile.ast_parse = ast_parse
"""


def idle():
    time.sleep(0.3)


def test_neither_names_nor_numbers_nor_hooks_learn_of_it(start):
    kernel = start("unsafe", "--allow-unsafe")
    kernel.run(COUNTED)
    idle()
    before = reading.result(kernel.run(STATE)[1])
    for _ in range(3):
        idle()
    kernel.run("del seen[:]", silent=True)
    after = reading.result(kernel.run("len(seen), _oh[1], shell.execution_count")[1])
    assert before.startswith("(3,\n 3,\n 1,\n 7,\n 4,\n")
    assert after == "(3, 7, 4)"


def test_a_shell_that_is_spoilt_does_not_end_the_guest(start):
    kernel = start("unsafe", "--allow-unsafe")
    kernel.run(SPOILT)
    idle()
    assert reading.result(kernel.run("kept")[1]) == "7"


def test_a_policy_that_is_safe_takes_it(start):
    kernel = start("safe")
    guest = kernel.guest()
    for _ in range(3):
        kernel.run("x = 1")
        idle()
    assert kernel.guest() == guest
