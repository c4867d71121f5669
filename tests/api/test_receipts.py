"""Receipts: what a host signs of a result, and what is no receipt of it."""

import base64
import dataclasses
import hashlib
import json
import subprocess
import sys

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from typer.testing import CliRunner

from cellblock import Policy, Sandbox
from cellblock.api import receipts
from cellblock.cli.main import app
from cellblock.errors import PolicyError, ReceiptError
from support import machines

needs_bwrap = pytest.mark.skipif(
    bool(why := machines.no_bubblewrap()), reason=f"no bubblewrap: {why}"
)


def price(item: str) -> float:
    """Look up a price."""
    return len(item) + 0.5


@pytest.fixture(scope="module")
def result(home):
    """The result of a cell that printed, called a tool and has a value."""
    assert home
    with Sandbox("safe", tools=[price]) as s:
        return s.execute("print('hi')\nprice('tea')")


@pytest.fixture
def run(home, tmp_path, monkeypatch):
    """Run `cellblock receipt verify` on a text, with more arguments; return status and output."""
    assert home
    monkeypatch.chdir(tmp_path)

    def run(receipt, *arguments):
        (tmp_path / "r.json").write_bytes(
            receipt if isinstance(receipt, bytes) else receipt.encode()
        )
        done = CliRunner().invoke(app, ["receipt", "verify", "r.json", *arguments])
        return done.exit_code, done.output

    return run


def own():
    return receipts.own_key().public_key()


def resigned(payload, kind=receipts.PAYLOAD_TYPE, signed_kind=None):
    """Sign a payload with the host's own key, as a type."""
    key, named = receipts.own_key(), (signed_kind or kind).encode()
    pae = b"DSSEv1 %d %s %d %s" % (len(named), named, len(payload), payload)
    signature = {"sig": base64.b64encode(key.sign(pae)).decode()}
    encoded = base64.b64encode(payload).decode()
    return json.dumps({"payload": encoded, "payloadType": kind, "signatures": [signature]})


def payload_of(receipt):
    return base64.b64decode(json.loads(receipt)["payload"])


@pytest.mark.quick
def test_a_receipt_says_how_a_result_was_made_by_hashes(result, home):
    said = receipts.verify(result.receipt, own())
    made = said.predicate
    assert (made.policy, made.status, made.execution_count) == ("safe", "ok", 1)
    assert made.source_sha256 == hashlib.sha256(result.source.encode()).hexdigest()
    assert {one.name: one.digest["sha256"] for one in said.subject} == {
        "outputs": receipts.outputs_digest(result.outputs),
        "stdout": hashlib.sha256(b"hi\n").hexdigest(),
        "result": hashlib.sha256(b"3.5").hexdigest(),
    }
    arguments = hashlib.sha256(b'[["tea"],{}]').hexdigest()
    assert made.tool_calls == (
        receipts.Call("price", "ok", arguments, hashlib.sha256(b"3.5").hexdigest()),
    )
    (log,) = (home / "cache" / "cellblock" / "audit").glob(f"*{made.session}*")
    records = [json.loads(line) for line in log.open()]
    assert made.policy_sha256 == records[0]["digest"]
    enforced = next(one for one in records if one["kind"] == "enforcement")
    assert (made.backend, made.capabilities) == (records[0]["backend"], enforced["capabilities"])
    assert b"tea" not in payload_of(result.receipt)
    assert result.receipt == result.receipt


def test_openssl_verifies_what_was_signed_with_the_key_that_is_given_away(result, tmp_path):
    payload = payload_of(result.receipt)
    head = b"DSSEv1 28 application/vnd.in-toto+json %d " % len(payload)
    (tmp_path / "signed").write_bytes(head + payload)
    (tmp_path / "key").write_text(CliRunner().invoke(app, ["receipt", "key"]).output)
    (one,) = json.loads(result.receipt)["signatures"]
    (tmp_path / "sig").write_bytes(base64.b64decode(one["sig"]))
    command = "openssl pkeyutl -verify -pubin -inkey key -rawin -in signed -sigfile sig"
    assert subprocess.run(command.split(), cwd=tmp_path, check=False).returncode == 0


@pytest.mark.quick
def test_what_is_not_what_was_signed_does_not_hold(result, run):
    envelope = json.loads(result.receipt)
    payload = payload_of(result.receipt)
    changed = base64.b64encode(payload.replace(b'"status":"ok"', b'"status":"no"', 1)).decode()
    again = "Get the receipt again from whoever made it.\n"
    changed_text = (
        "cellblock: r.json: it was changed after it was signed: the signature does not match. "
    )
    assert run(json.dumps(envelope | {"payload": changed})) == (1, changed_text + again)
    other_type = json.dumps(envelope | {"payloadType": "text/plain"})
    said = "cellblock: r.json: it is signed as another type than application/vnd.in-toto+json. "
    assert run(other_type) == (1, said + again)
    # The type counts to what is signed: nothing that was signed as another can be passed off.
    assert run(resigned(payload, signed_kind="text/plain"))[0] == 1
    for length in (0, 1, len(result.receipt) // 2, len(result.receipt) - 1):
        status, said = run(result.receipt[:length])
        assert status == 1
        assert said.startswith("cellblock: r.json: it is not a whole receipt: ")
    for nothing in (
        b"\xff",
        b"[" * 100_000,
        b"{}",
        b'{"payload":"!","payloadType":"","signatures":[]}',
    ):
        assert run(nothing)[0] == 1
    assert run(json.dumps(envelope | {"signatures": []}))[0] == 1
    assert run(result.receipt + " " * receipts.MOST_BYTES)[0] == 1
    assert run(result.receipt)[0] == 0


def test_another_hosts_receipt_holds_by_its_key_alone(result, run, tmp_path):
    other = Ed25519PrivateKey.generate().public_key()
    (tmp_path / "other.pem").write_bytes(receipts.public_pem(other))
    status, said = run(result.receipt, "--key", "other.pem")
    assert (status, said) == (
        1,
        (
            f"cellblock: r.json: it is not signed by the key {receipts.key_id(other)}. Get the "
            "host's public key from somebody you trust, and name it: --key FILE.\n"
        ),
    )
    (tmp_path / "own.pem").write_bytes(receipts.public_pem(own()))
    status, said = run(result.receipt, "--key", "own.pem")
    assert (status, said.splitlines()[0]) == (0, f"signed by {receipts.key_id(own())}")
    (tmp_path / "none.pem").write_text("-----BEGIN PUBLIC KEY-----\n")
    assert isinstance(CliRunner().invoke(app, ["receipt", "verify", "r.json", "--key", "none.pem"]).exception, ReceiptError)  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        {"_type": "https://in-toto.io/Statement/v0.1"},
        {"predicateType": "https://slsa.dev/provenance/v1"},
        {"predicate": {}},
    ],
)
def test_a_statement_of_another_type_is_no_receipt_though_the_key_signed_it(result, run, change):
    payload = json.dumps(json.loads(payload_of(result.receipt)) | change).encode()
    status, said = run(resigned(payload))
    assert status == 1
    assert "that key signed it, but it is not a statement of this type" in said


def test_an_output_that_was_replaced_is_not_what_the_receipt_is_for(result, run, tmp_path):
    (tmp_path / "said").write_text("hi\n")
    status, said = run(result.receipt, "--file", "said")
    assert (status, said.splitlines()[-1]) == (0, "said: stdout")
    (tmp_path / "said").write_text("ho\n")
    assert run(result.receipt, "--file", "said") == (
        1,
        "cellblock: said: the receipt is not for this file. Don't rely on it.\n",
    )
    other = dataclasses.replace(result.outputs[0], content={"name": "stdout", "text": "ho\n"})
    replaced = receipts.outputs_digest((other, *result.outputs[1:]))
    subjects = receipts.verify(result.receipt, own()).subject
    assert replaced not in [one.digest["sha256"] for one in subjects]


def test_what_a_signer_wrote_moves_no_cursor(result, run):
    said = json.loads(payload_of(result.receipt))
    said["predicate"]["policy"] = "\x1b[2J\nsigned by"
    status, shown = run(resigned(json.dumps(said).encode()))
    assert status == 0
    assert "\x1b" not in shown
    assert sum(line.startswith("signed by") for line in shown.splitlines()) == 1


def origin(result):
    """Return what a result's receipt says of where its variables came from."""
    return receipts.verify(result.receipt, own()).predicate.variables_from


def test_a_receipt_after_a_fork_names_the_session_that_its_variables_came_from(home, run):
    assert home
    with Sandbox("safe") as s:
        assert origin(s.execute("x = 1")) is None
        (fork,) = s.fork()
        made = fork.execute("x += 1")
        assert origin(made) == receipts.Origin(session=s.session, execution_count=1)
        assert fork.session != s.session
        status, told = run(made.receipt)
        assert status == 0
        assert f"variables from session {s.session} after cell 1\n" in told

        found = s.try_variants(["x = 10", "x = 20"], lambda _: 1)
        variant = found.results[1].provenance
        assert origin(found.results[1]) == receipts.Origin(session=s.session, execution_count=1)
        after = receipts.Origin(session=variant.session, execution_count=2)
        assert [origin(s.execute("x")) for _ in range(2)] == [after, after]
        # Of none that was picked nothing came.
        s.try_variants(["x = 30"], lambda _: None)
        assert origin(s.execute("x")) == after
        (late,) = s.fork()
        assert origin(late.execute("x")).session == s.session


def test_a_receipt_of_an_earlier_version_says_nothing_of_a_fork(result):
    said = json.loads(payload_of(result.receipt))
    del said["predicate"]["variablesFrom"]
    older = resigned(json.dumps(said).encode())
    assert receipts.verify(older, own()).predicate.variables_from is None


def test_files_that_were_copied_out_and_kept_are_what_it_is_for(home, run):
    policy = Policy.preset(
        "data",
        filesystem_read_roots=("{project}",),
        filesystem_staged_roots=("{project}",),
        artifact_export_paths=("{project}/*.txt",),
    )
    with Sandbox(policy, project=home / "project", artifacts=home / "out") as s:
        result = s.execute("open('kept.csv', 'w').write('a'); open('out.txt', 'w').write('b')")
        before = receipts.verify(result.receipt, own())
        s.keep(["kept.csv"])
        after = receipts.verify(result.receipt, own())
        s.drop()
    assert before.predicate.changes == ()
    digest = hashlib.sha256(b"a").hexdigest()
    assert after.predicate.changes == (receipts.Change("kept.csv", "new", digest),)
    names = {one.name: one.digest["sha256"] for one in after.subject}
    assert names["kept/kept.csv"] == digest
    assert names["artifacts/out.txt"] == hashlib.sha256(b"b").hexdigest()
    status, said = run(result.receipt, "--file", str(home / "project" / "kept.csv"))
    assert (status, said.splitlines()[-1]) == (0, f"{home}/project/kept.csv: kept/kept.csv")
    (home / "project" / "kept.csv").unlink()


def test_of_files_with_one_name_in_two_folders_each_is_what_it_is_for(home, run):
    one, other = home / "one", home / "other"
    one.mkdir()
    other.mkdir()
    roots = (str(one), str(other))
    policy = Policy.preset("data", filesystem_read_roots=roots, filesystem_staged_roots=roots)
    with Sandbox(policy, project=one) as s:
        write = "for name, text in {}: open(name, 'w').write(text)"
        files = [(f"{one}/a.csv", "1"), (f"{other}/a.csv", "2"), (f"{other}/b.csv", "3")]
        s.execute(write.format(files))
        s.keep()
        result = s.execute(write.format([(f"{other}/a.csv", "4")]))
        s.keep()
        said = receipts.verify(result.receipt, own())
    digests = {f"{one}/a.csv": "1", f"{other}/a.csv": "4", "b.csv": "3"}
    wanted = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in digests.items()}
    assert {each.name: each.sha256 for each in said.predicate.changes} == wanted
    subjects = {each.name: each.digest["sha256"] for each in said.subject}
    assert (
        wanted.items()
        <= {name.removeprefix("kept/"): digest for name, digest in subjects.items()}.items()
    )
    for name in (f"{one}/a.csv", f"{other}/a.csv"):
        assert run(result.receipt, "--file", f"kept/{name}={name}")[0] == 0


# --- the key --------------------------------------------------------------------------------------


@pytest.fixture
def key_file(result):
    """The user's key, as it is; it is put back afterwards."""
    assert result.receipt
    path = receipts.key_file()
    content = path.read_bytes()
    yield path
    path.unlink(missing_ok=True)
    path.write_bytes(content)
    path.chmod(0o600)


_ATTACK = """
import os
done = []
folder, _, name = {key!r}.rpartition('/')
os.chdir({own!r})
open('own.txt', 'w').write('0' * 64)
def tried(what, act):
    try:
        act()
    except OSError:
        return
    done.append(what)
tried('read', lambda: open({key!r}).read())
tried('list', lambda: os.listdir(folder))
tried('write', lambda: open({key!r}, 'w').write('0' * 64))
tried('move', lambda: os.rename({key!r}, folder + '/other'))
tried('link', lambda: os.link({key!r}, 'linked.txt'))
tried('replace', lambda: os.replace('own.txt', {key!r}))
def through_a_link():
    os.symlink({key!r}, 'symbolic.txt')
    open('symbolic.txt').read()
tried('symlink', through_a_link)
def through_the_parent():
    at = os.open(os.path.dirname(folder), os.O_RDONLY)
    os.open(os.path.basename(folder) + '/' + name, os.O_RDONLY, dir_fd=at)
tried('dir_fd', through_the_parent)
open({beside!r}).read(), done
"""


@pytest.mark.parametrize("made", ["before", "after"])
@pytest.mark.parametrize("backend", ["landlock", pytest.param("bubblewrap", marks=needs_bwrap)])
def test_no_cell_reads_or_changes_the_key(home, key_file, monkeypatch, backend, made):
    monkeypatch.setenv("PATH", machines.path(backend))
    if made == "after":
        key_file.unlink()
    (home / "beside.txt").write_text("readable")
    policy = Policy.preset(
        "unsafe",
        backend=backend,
        filesystem_read_roots=(str(home),),
        filesystem_write_roots=(str(home / "project"),),
    )
    with Sandbox(policy, allow_unsafe=True) as s:
        first = s.execute("1").receipt
        content = key_file.read_bytes()
        places = {"own": str(home / "project"), "beside": str(home / "beside.txt")}
        found = s.execute(_ATTACK.format(key=str(key_file), **places))
        assert found.result == "('readable', [])", found.to_string()
        assert key_file.read_bytes() == content
        assert receipts.verify(first, own()).predicate.backend == backend


def test_a_policy_whose_cells_may_write_where_the_key_is_does_not_start(key_file):
    policy = Policy.preset("unsafe", filesystem_write_roots=(str(key_file.parent.parent),))
    with pytest.raises(PolicyError), Sandbox(policy, allow_unsafe=True):
        pass


def test_no_operation_reads_the_key_for_a_cell(home, key_file):
    policy = Policy.preset("safe", ops={"read_file": {"roots": [str(home)]}})
    (home / "beside.txt").write_text("readable")
    with Sandbox(policy) as s:
        assert s.execute(f"ops.read_file({str(home / 'beside.txt')!r})").success
        assert s.execute(f"ops.read_file({str(key_file)!r})").status == "error"


@pytest.mark.parametrize("spoilt", ["readable by others", "a link", "no key", "too short"])
def test_a_key_that_is_not_the_users_alone_signs_nothing(result, key_file, tmp_path, spoilt):
    content = key_file.read_bytes()
    if spoilt == "readable by others":
        key_file.chmod(0o644)
    elif spoilt == "a link":
        (tmp_path / "key").write_bytes(content)
        key_file.unlink()
        key_file.symlink_to(tmp_path / "key")
    else:
        key_file.write_text("no key" if spoilt == "no key" else "00" * 31)
    with pytest.raises(ReceiptError) as raised:
        result.receipt  # noqa: B018 - it is made when asked for
    assert str(raised.value) == {
        "readable by others": f"{key_file}: others can read or write it (mode 0644). "
        f"chmod go-rwx {key_file}",
        "a link": f"{key_file}: the key is a link. Remove it: the next receipt is then signed with a "
        "new key.",
    }.get(
        spoilt,
        f"{key_file}: it does not hold a key (32 bytes in hexadecimal). Remove it: the next receipt "
        "is then signed with a new key.",
    )


def test_of_two_programs_that_make_the_key_at_once_neither_loses_its_own(key_file):
    key_file.unlink()
    program = "from cellblock.api import receipts as r; print(r.key_id(r.own_key().public_key()))"
    command = [sys.executable, "-c", program]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(4)]
    assert len({one.communicate()[0] for one in running}) == 1
