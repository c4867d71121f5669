"""Imports that users are asked about in a kernel, and what is kept of their answers."""

import json

import pytest

from cellblock.host.consent.store import Store
from support import reading
from support.approvals import run
from support.kernels import argv_for


@pytest.fixture(scope="module")
def kernel(shared_world, start_shared):
    policy = shared_world.policy('approvals = "prompt"')
    return start_shared(argv=argv_for(policy), world=shared_world)


def kept_in(world):
    """Return the store of what is allowed for always."""
    data = world.home / ".local/share/cellblock"
    return Store(data / "approved", data / "approval.key")


@pytest.mark.quick
def test_an_import_is_asked_about_before_the_cell_starts(kernel):
    code = "print('began')\nimport shlex\n[shlex.split('a b')]"
    mid = kernel.execute_send(code, allow_stdin=True)
    prompt = kernel.recv("stdin")["content"]["prompt"]
    assert "┃   module = shlex\n" in prompt
    assert not reading.stream(kernel.until(lambda m: m["msg_type"] == "execute_input", mid))
    code = prompt.partition("type ")[2][:3]
    kernel.send("input_reply", {"value": code}, "stdin")
    assert kernel.reply(mid)["content"]["status"] == "ok"
    assert reading.result(kernel.until_idle(mid)) == "[['a', 'b']]"


def test_an_import_once_is_for_that_cell_and_its_functions(kernel):
    run(kernel, "import lzma\ndef pack(data):\n    import bz2\n    return bz2.compress(data)", "{}")
    assert reading.result(run(kernel, "lzma.decompress(lzma.compress(b'x'))")[2]) == "b'x'"
    _, reply, _ = run(kernel, "pack(b'x')")
    assert reply["ename"] == "ImportViolation"
    _, reply, _ = run(kernel, "import lzma", "no")
    assert reply["ename"] == "PolicyDenied"


def test_an_import_for_the_session_is_for_what_is_called_later_too(kernel):
    run(
        kernel, "def parse(text):\n    import tomllib\n    return tomllib.loads(text)", "{} session"
    )
    assert reading.result(run(kernel, "parse('a = 1')")[2]) == "{'a': 1}"
    assert reading.result(run(kernel, "import tomllib; tomllib.loads('b = 2')")[2]) == "{'b': 2}"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import argparse; argparse.ArgumentParser('x').parse_args([])", "Namespace()"),
        ("import bz2; bz2.decompress(bz2.compress(b'a'))", "b'a'"),
        ("import configparser as c; p = c.ConfigParser(); p.read_string('[a]\\nb=1'); p['a']['b']", "'1'"),
        ("import fnmatch; fnmatch.filter(['a.py', 'b'], '*.py')", "['a.py']"),
        ("import getopt; getopt.getopt(['-a'], 'a')", "([('-a', '')], [])"),
        ("from html.entities import html5; html5['lt;']", "'<'"),
        ("from html.parser import HTMLParser; HTMLParser().feed('<p>')", None),
        ("import lzma; lzma.decompress(lzma.compress(b'a'))", "b'a'"),
        ("import optparse; optparse.OptionParser().parse_args([])[1]", "[]"),
        ("import plistlib; plistlib.loads(plistlib.dumps({'a': 1}))", "{'a': 1}"),
        ("import quopri; quopri.encodestring(b'=')", "b'=3D'"),
        ("import sched, time; s = sched.scheduler(time.time, time.sleep); s.enter(0, 1, print); s.run()", None),
        ("import shlex; shlex.split('a \"b c\"')", "['a', 'b c']"),
        ("import stringprep; stringprep.in_table_a1('a')", "False"),
        ("import wave, io; w = wave.open(io.BytesIO(), 'wb'); w.setnchannels(1); w.getnchannels()", "1"),
    ],
)  # fmt: skip
def test_what_can_be_approved_works_in_memory(kernel, code, expected):
    _, reply, published = run(kernel, code, "{}")
    assert reply["status"] == "ok", reply
    assert reading.result(published) == expected


@pytest.mark.parametrize(
    "code",
    [
        "import bz2; bz2.open('/etc/passwd')",
        "import lzma; lzma.open('/etc/passwd')",
        "import wave; wave.open('/etc/passwd')",
        "import argparse; argparse.FileType()('/etc/passwd')",
        "import configparser; configparser.ConfigParser().read_file(open)",
    ],
)
def test_what_was_approved_opens_no_file(kernel, code):
    answers = [] if "open)" in code else ["{}"]
    _, reply, published = run(kernel, code, *answers)
    assert reply["status"] == "error"
    assert "root:" not in json.dumps(published, default=str)
    assert reading.result(run(kernel, "1 + 1")[2]) == "2"


@pytest.mark.parametrize("code", ["import gc", "import numpy", "import bz2, gc", "import wcwidth"])
def test_what_can_not_be_approved_is_denied_unasked(kernel, code):
    _, reply, published = run(kernel, code)
    assert reply["ename"] == "PolicyDenied"
    assert reading.cards(published, "denial")


def test_without_input_an_import_is_denied_as_ever_and_says_what_could_be(kernel):
    reply, published = kernel.run("import quopri")
    assert reply["ename"] == "PolicyDenied"
    text = " ".join(reading.card_text(published).split())
    assert "Instead: approve it where you can be asked. To allow it, " in text
    assert text.endswith('add.allowed_modules = ["quopri"]')


def test_each_answer_is_on_the_audit_log_before_the_cell(kernel, shared_world, records):
    known = len(records(shared_world, "approval", "cell"))
    run(kernel, "import bz2", "{}")
    run(kernel, "import lzma", "no")
    run(kernel, "import lzma", allow_stdin=False)
    told = records(shared_world, "approval", "cell")[known:]
    assert [(r["kind"], r["decision"]) for r in told] == [
        ("approval", "once"), ("cell", "allowed"),
        ("approval", "no"), ("cell", "denied"),
        ("approval", "no"), ("cell", "denied"),
    ]  # fmt: skip
    first, _, second, _, third, _ = told
    assert (first["of"], first["subjects"], first["asked"]) == ("import", ["bz2"], True)
    assert (second["asked"], second["why"]) == (True, "you said no")
    assert third["why"] == "nobody can be asked: this front end takes no input"
    assert records(shared_world)[0]["approvals"] == "prompt"


def test_what_is_allowed_for_always_is_so_until_the_policy_changes_or_it_is_taken_back(
    start, world
):
    policy = world.policy('approvals = "prompt"\nallowed_modules = ["tqdm"]')
    kernel = start(policy, world=world)
    (prompt,), _, published = run(kernel, "import wcwidth\nwcwidth.wcswidth('abc')", "{} always")
    assert "┃   package = wcwidth\n┃       as it is; trusted with all" in prompt
    assert reading.result(published) == "3"
    ((place, manifest),) = kept_in(world).manifests()
    (kept,) = manifest.records
    assert (kept.kind, kept.subject, place.policy) == ("import", "wcwidth", "mine")
    text = policy.read_text()
    policy.write_text(f"{text}\ntimeout = 59.0")
    changed = start(policy, world=world)
    assert run(changed, "import wcwidth", "no")[1]["ename"] == "PolicyDenied"
    policy.write_text(text)
    later = start(policy, world=world)
    assert run(later, "from wcwidth import wcswidth; wcswidth('a')")[1]["status"] == "ok"
    kept_in(world).revoke(frozenset({kept.id}))
    for each in (kernel, later):
        assert run(each, "import wcwidth", "no")[1]["ename"] == "PolicyDenied"
