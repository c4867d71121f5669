"""IPython's comforts that policies allow, and those they refuse."""

import pytest

from support import reading


def printed(kernel, code):
    reply, published = kernel.run(code)
    assert reply["status"] == "ok", reply
    return reading.stream(published)


@pytest.fixture(params=["safe", "unsafe"])
def kernel(request):
    return request.getfixturevalue(request.param)


def test_time_runs_its_code_in_the_namespace_and_says_how_long(kernel):
    assert "Wall time" in printed(kernel, "%time timed = sum(range(10))")
    assert "Wall time" in printed(kernel, "%%time\nin_cell = timed + 1")
    assert printed(kernel, "print(timed, in_cell)") == "45 46\n"


def test_timeit_says_how_long_a_loop_takes(kernel):
    assert "per loop" in printed(kernel, "%timeit -n 2 -r 2 sum(range(10))")
    assert "per loop" in printed(kernel, "%%timeit -n 2 -r 2\nsum(range(10))")


def test_who_and_whos_list_the_users_names_and_none_of_ours(start):
    kernel = start("safe")
    assert printed(kernel, "%who") == "Interactive namespace is empty.\n"
    kernel.run("apples = 3\npears = 'p'")
    assert printed(kernel, "%who").split() == ["apples", "pears"]
    table = printed(kernel, "%whos")
    assert "apples" in table
    assert "int" in table
    assert reading.result(kernel.run("%who_ls")[1]) == "['apples', 'pears']"


def test_capture_keeps_output_in_a_variable(kernel):
    assert printed(kernel, "%%capture kept\nprint('hidden')") == ""
    assert printed(kernel, "print(repr(kept.stdout))") == "'hidden\\n'\n"


def test_precision_changes_how_numbers_are_shown(kernel):
    kernel.run("%precision 3")
    assert reading.result(kernel.run("3.14159265")[1]) == "3.142"
    kernel.run("%precision")


def test_xmode_changes_how_errors_are_shown(kernel):
    kernel.run("%xmode Minimal")
    assert reading.traceback(kernel.run("1/0")[1]).strip() == "ZeroDivisionError: division by zero"
    kernel.run("%xmode Context")
    assert "----> 1 1/0" in reading.traceback(kernel.run("1/0")[1])


def test_a_question_mark_pages_the_help(kernel):
    reply, _ = kernel.run("len?")
    (page,) = reply["payload"]
    assert page["source"] == "page"
    assert "Return the number of items" in page["data"]["text/plain"]


def test_policy_shows_what_is_in_force(kernel):
    reply, published = kernel.run("%policy")
    assert reply["status"] == "ok"
    (table,) = reading.cards(published, "policy")
    assert table["policy"]["mode"] in {"safe", "unsafe"}


def test_pwd_is_where_the_guest_may_work(unsafe):
    assert "cellblock-" in reading.result(unsafe.run("%pwd")[1])


@pytest.mark.parametrize(
    "code",
    [
        "!id",
        "x = !id",
        "%cd /",
        "%run /etc/passwd",
        "%env",
        "%load_ext autoreload",
        "%%bash\nid",
        "%%writefile x\ny",
        "%pip install x",
        "%time __import__('os')",
        "%timeit open('/etc/passwd')",
        "%%capture\nimport os",
        "%%time\n\nimport socket",
    ],
)
def test_safe_refuses_magics_that_reach_out_and_code_they_carry(safe, code):
    reply, published = safe.run(code)
    assert (reply["status"], reply["ename"]) == ("error", "PolicyDenied")
    assert reading.kinds(published) == ["display_data", "error"]


def test_a_finding_inside_a_cell_magic_names_its_line_in_the_cell(safe):
    (card,) = reading.cards(safe.run("%%time\n\nimport socket")[1], "denial")
    assert [f["line"] for f in card["findings"]] == [3]


def test_a_magic_called_by_a_computed_name_is_refused(safe):
    reply, _ = safe.run("get_ipython().run_line_magic('c' + 'd', '/')")
    assert (reply["status"], reply["ename"]) == ("error", "PolicyDenied")
