"""IPython's comforts that policies allow, and those they refuse."""

import pytest

from support import reading


def printed(kernel, code):
    reply, published = kernel.run(code)
    assert reply["status"] == "ok", reply
    return reading.stream(published)


@pytest.mark.quick
def test_time_runs_its_code_in_the_namespace_and_says_how_long(either):
    assert "Wall time" in printed(either, "%time timed = sum(range(10))")
    assert "Wall time" in printed(either, "%%time\nin_cell = timed + 1")
    assert printed(either, "print(timed, in_cell)") == "45 46\n"


def test_timeit_says_how_long_a_loop_takes(either):
    assert "per loop" in printed(either, "%timeit -n 2 -r 2 sum(range(10))")
    assert "per loop" in printed(either, "%%timeit -n 2 -r 2\nsum(range(10))")


def test_who_and_whos_list_the_users_names_and_none_of_ours(start):
    kernel = start("safe")
    assert printed(kernel, "%who") == "Interactive namespace is empty.\n"
    kernel.run("apples = 3\npears = 'p'")
    assert printed(kernel, "%who").split() == ["apples", "pears"]
    table = printed(kernel, "%whos")
    assert "apples" in table
    assert "int" in table
    assert reading.result(kernel.run("%who_ls")[1]) == "['apples', 'pears']"


def test_capture_keeps_output_in_a_variable(either):
    assert printed(either, "%%capture kept\nprint('hidden')") == ""
    assert printed(either, "print(repr(kept.stdout))") == "'hidden\\n'\n"


def test_precision_changes_how_numbers_are_shown(either):
    either.run("%precision 3")
    assert reading.result(either.run("3.14159265")[1]) == "3.142"
    either.run("%precision")


def test_xmode_changes_how_errors_are_shown(either):
    either.run("%xmode Minimal")
    assert reading.traceback(either.run("1/0")[1]).strip() == "ZeroDivisionError: division by zero"
    either.run("%xmode Context")
    assert "----> 1 1/0" in reading.traceback(either.run("1/0")[1])


def test_a_question_mark_pages_the_help(either):
    reply, _ = either.run("len?")
    (page,) = reply["payload"]
    assert page["source"] == "page"
    assert "Return the number of items" in page["data"]["text/plain"]


@pytest.mark.quick
def test_policy_shows_what_is_in_force(either):
    reply, published = either.run("%policy")
    assert reply["status"] == "ok"
    (table,) = reading.cards(published, "policy")
    assert table["policy"]["mode"] in {"safe", "unsafe"}


def test_pwd_is_where_the_guest_may_work(unsafe):
    assert "cellblock-" in reading.result(unsafe.run("%pwd")[1])


REFUSED = (
    "!id",
    "x = !id",
    "%cd /",
    "%run /etc/passwd",
    "%env",
    "%load_ext sql",
    "%%bash\nid",
    "%%writefile x\ny",
    "%pip install x",
    "%time __import__('gc')",
    "%timeit open('/etc/passwd')",
    "%%capture\nimport gc",
    "%%time\n\nimport socket",
)


@pytest.mark.quick
def test_safe_refuses_magics_that_reach_out_and_code_they_carry(safe):
    for code in REFUSED:
        reply, published = safe.run(code)
        assert (reply["status"], reply["ename"]) == ("error", "PolicyDenied"), code
        assert reading.kinds(published) == ["display_data", "error"], code


def test_a_magic_called_by_a_computed_name_is_refused(safe):
    reply, _ = safe.run("get_ipython().run_line_magic('c' + 'd', '/')")
    assert (reply["status"], reply["ename"]) == ("error", "PolicyDenied")


def test_lsmagic_lists_what_cells_may_use_and_no_more(safe, unsafe):
    listed = {"%timeit", "%%capture", "%changes"}
    refused = {"%cd", "%pip", "%%writefile"}
    assert set(printed(safe, "%lsmagic").split()) & (listed | refused) == listed
    shown = reading.result(unsafe.run("%lsmagic")[1])
    assert set(shown.replace("\\n", " ").split()) >= listed | refused


def test_exit_alone_ends_the_front_ends_session_and_no_other_code_does(either):
    for code, keeps in {"exit": False, " quit()\n": False, "exit(keep_kernel=True)": True}.items():
        reply, published = either.run(code)
        assert reading.kinds(published) == [], code
        assert reply["payload"] == [{"source": "ask_exit", "keepkernel": keeps}], code
    for code in ("1\nexit()", "exit(1 == 1)", "f = 'exit()'\neval(f)"):
        assert not either.run(code)[0].get("payload"), code
