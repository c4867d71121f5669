"""Keys of a policy's in sandboxes of a program: forks, narrowed ones, pools, and who is asked."""

import base64
import json

import pytest

from cellblock import Policy, Sandbox, SandboxPool
from cellblock.api import explained
from cellblock.errors import PolicyError
from support.web import Web, answer

SECRET = "sk-51f0c0ffee-0123456789abcdef"
pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture(scope="module")
def web():
    with Web(lambda _, head: answer(head.encode())) as made:
        yield made


@pytest.fixture(autouse=True)
def secret(monkeypatch, web):
    monkeypatch.setenv("API_KEY", SECRET)
    web.asked.clear()


def policy(web, value="env:API_KEY", http=(), **changes):
    at = f"127.0.0.1:{web.port}"
    ops = {"http": {"hosts": [f"http://{at}"], "allow_private": True, **dict(http)}}
    ops |= changes.pop("ops", {})
    key = {"hosts": [at], "prefix": "Bearer ", "value": value}
    changes = {"extends": "data", **changes}
    return Policy.preset(changes.pop("extends"), ops=ops, credentials={"API": key}, **changes)


def ask(sandbox, web):
    result = sandbox.execute(f"r = ops.http('http://127.0.0.1:{web.port}/')\nprint(r.text)")
    assert SECRET not in result.to_string() + repr(result)
    return result


def sent(web):
    found = [f"authorization: Bearer {SECRET}" in head for head in web.asked]
    web.asked.clear()
    return found


def test_neither_result_nor_receipt_nor_record_has_the_key(web):
    with Sandbox(policy(web)) as s:
        result = ask(s, web)
        assert (result.success, sent(web)) == (True, [True])
        assert "Bearer [credential API]" in result.output
        receipt = result.receipt
        payload = base64.b64decode(json.loads(receipt)["payload"])
        assert SECRET not in receipt + payload.decode()
        assert SECRET not in json.dumps([repr(call) for call in result.tool_calls])
        told = explained.run_cell_description(s)
        assert SECRET not in told + repr(s) + repr(s.policy) + repr(vars(s))
        at = f"127.0.0.1:{web.port}"
        assert f"requests to {at} carry your key API (cells do not see it)" in told


def test_forks_send_what_their_parent_may_and_a_narrowed_one_sends_none(web):
    with Sandbox(policy(web)) as s:
        (fork,) = s.fork()
        ask(fork, web)
        assert sent(web) == [True]
        assert fork.execute("%policy narrow credentials=[]").success
        ask(fork, web)
        ask(s, web)
        assert sent(web) == [False, True]


def test_forks_of_a_narrowed_sandbox_send_none_either(web):
    with Sandbox(policy(web)) as s:
        assert s.execute("%policy narrow credentials=[]").success
        (fork,) = s.fork()
        ask(fork, web)
        assert not fork.execute('%policy narrow credentials=["API"]').success
        ask(fork, web)
        assert sent(web) == [False, False]


def test_of_two_sandboxes_of_a_pool_only_the_narrowed_one_sends_none(web):
    with SandboxPool(policy(web)) as pool, pool.sandbox() as one, pool.sandbox() as other:
        assert one.execute("%policy narrow credentials=[]").success
        ask(one, web)
        ask(other, web)
        assert sent(web) == [False, True]


def test_a_request_under_way_when_the_key_is_taken_away_leaves_nothing_to_the_next(web):
    with Sandbox(policy(web)) as s:
        code = f"import threading\nurl = 'http://127.0.0.1:{web.port}/'\nsaid = []\n"
        s.execute(
            f"{code}t = threading.Thread(target=lambda: said.append(ops.http(url)))\nt.start()"
        )
        s.execute("%policy narrow credentials=[]")
        s.execute("t.join()")
        sent(web)
        ask(s, web)
        assert sent(web) == [False]


def test_a_missing_key_is_said_once_with_its_remedy(web, monkeypatch):
    monkeypatch.delenv("API_KEY")
    with Sandbox(policy(web)) as s:
        notices = s.execute("1").notices
        assert [
            one for one in notices if "the host's environment has no API_KEY. Set API_KEY" in one
        ]
        result = s.execute(f"ops.http('http://127.0.0.1:{web.port}/')")
        assert "NoKey" in result.to_string()
        assert not [one for one in result.notices if "API_KEY" in one]
    assert web.asked == []


def test_who_is_asked_about_a_call_reads_which_key_it_carries(web):
    asked = []

    def approve(request):
        asked.append(request.text)
        return True

    url = f"http://127.0.0.1:{web.port}/"
    with Sandbox(policy(web, approvals="prompt"), approve=approve) as s:
        assert s.execute(f"ops.http({url!r})").success
        refused = s.execute(f"ops.http({url!r}, headers={{'AUTHORIZATION': 'x'}})")
        assert "NotGranted" in refused.to_string()
    (text,) = asked
    assert "\n  it carries your key API, which the cell does not see\n" in text
    assert SECRET not in text
    assert sent(web) == [True]


# --- files ------------------------------------------------------------------------------------


def test_a_file_that_holds_a_key_is_no_cells_by_operations_either(web, home):
    folder = home / "project" / "keys"
    folder.mkdir(exist_ok=True)
    (folder / "key").write_text(SECRET)
    (folder / "beside").write_text("beside")
    ops = {"read_file": {"roots": [str(folder)]}, "list_dir": {"roots": [str(folder)]}}
    with Sandbox(policy(web, f"file:{folder}/key", ops=ops)) as s:
        ask(s, web)
        assert sent(web) == [True]
        assert s.execute(f"ops.read_file('{folder}/beside')").value == "beside"
        for name in ("key", "../keys/key", "./key"):
            result = s.execute(f"ops.read_file('{folder}/{name}')")
            assert not result.success
            assert SECRET not in result.to_string()


@pytest.mark.parametrize("where", ["written by cells", "written by the host", "scratch"])
def test_a_file_that_cells_could_write_holds_no_key(web, home, where):
    folder = home / "project" / "written"
    folder.mkdir(exist_ok=True)
    (folder / "key").write_text(SECRET)
    changes, path = {}, f"{folder}/key"
    if where == "written by cells":
        changes = {"filesystem_write_roots": ["{scratch}", str(folder)]}
    elif where == "written by the host":
        changes = {"ops": {"write_file": {"roots": [str(folder)]}}}
    else:
        path = "{scratch}/key"
    with pytest.raises(PolicyError):
        Sandbox(policy(web, f"file:{path}", **changes)).open()
