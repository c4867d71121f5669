"""What counts as approved is what the key vouches for, here and now; anything else is nothing."""

import dataclasses
import json
import os
import subprocess

import pytest

from cellblock.analysis.admission import sha256
from cellblock.errors import AdmissionError
from cellblock.host.consent import review, store
from cellblock.host.consent.admission import AdmissionGate, of_notebook
from cellblock.host.consent.grants import GrantContext, Grants
from cellblock.host.consent.request import ApprovalRequest
from cellblock.host.consent.store import MOST_BYTES, Store, of_cells

CELL, EVIL = "x = 1", "evil()"
IMPORT = ApprovalRequest(of="import", subjects=("bz2",), sha256="", asks="", all_of="")


def admits(desk, cell=CELL, policy=None, project=None):
    """Say whether a kernel that starts now runs the cell; raises as its gate does."""
    gate = AdmissionGate(policy or desk.policy, project or desk.project)
    return gate.judge(cell).findings == ()


def refused(desk, **elsewhere):
    with pytest.raises(AdmissionError) as failure:
        admits(desk, **elsewhere)
    assert failure.value.file
    assert failure.value.remedy
    return str(failure.value.message)


def test_the_signature_key_and_manifest_are_for_their_owner_alone(desk):
    desk.approve(CELL)
    modes = {path: path.stat().st_mode & 0o777 for path in (desk.place.key, desk.place.file)}
    assert set(modes.values()) == {0o600}
    assert desk.data.stat().st_mode & 0o777 == 0o700
    secret = desk.place.key.read_text().strip()
    assert len(bytes.fromhex(secret)) == 32
    assert secret not in desk.place.file.read_text()
    assert secret not in repr(store.read_key(desk.place.key))


def test_approving_anew_takes_back_what_is_not_there_any_more(desk):
    desk.approve(CELL, "", "%usage", "y = 2")
    assert admits(desk)
    assert not admits(desk, EVIL)
    desk.approve("y = 2", name="a.ipynb")
    assert not admits(desk)
    assert admits(desk, "y = 2")


def test_what_is_revoked_runs_no_more(desk):
    path = desk.approve(CELL)
    desk.approve("y = 2", name="b.ipynb")
    path.unlink()
    assert review.revoke(desk.place, path) == 1
    assert not admits(desk)
    assert admits(desk, "y = 2")
    with pytest.raises(AdmissionError, match=r"nothing of a\.ipynb was approved"):
        review.revoke(desk.place, path)


def test_a_cell_with_crlf_is_approved_as_it_stands_and_as_front_ends_send_it(desk):
    desk.approve("x = '''a\r\nb'''")
    assert admits(desk, "x = '''a\r\nb'''")
    assert admits(desk, "x = '''a\nb'''")
    assert not admits(desk, "x = '''a\rb'''")


@pytest.mark.parametrize("cell", ["x = f \\\r\r\n('a')", "# a\rx = 1\r\n"])
def test_a_cell_with_a_carriage_return_that_ends_no_line_is_approved_only_as_it_stands(desk, cell):
    """Without the line ends of CR LF it would be another program: a call in two lines is in one."""
    desk.approve(cell)
    assert admits(desk, cell)
    assert not admits(desk, cell.replace("\r\n", "\n"))


# --- attacks on the file ----------------------------------------------------------------------


def lines(desk):
    head, payload = desk.place.file.read_bytes().split(b"\n", 1)
    return json.loads(head), payload


def rewrite(desk, head, payload):
    desk.place.file.write_bytes(json.dumps(head).encode() + b"\n" + payload)


def with_evil(payload):
    manifest = json.loads(payload)
    cell = {"number": 9, "sha256": sha256(EVIL), "source": EVIL}
    manifest["records"][0]["cells"].append(cell)
    return json.dumps(manifest).encode()


def test_each_byte_of_what_is_signed_counts(desk):
    desk.approve(CELL)
    head, payload = lines(desk)
    rewrite(desk, head, payload)
    assert admits(desk)  # control: it is not the rewriting
    other = payload.replace(b"x = 1", b"x = 2")
    for changed in (with_evil(payload), payload + b" ", payload[:-1], other):
        rewrite(desk, head, changed)
        assert refused(desk) == "it was changed since it was signed"


def test_a_signature_made_by_hand_or_by_another_key_is_none(desk, tmp_path):
    desk.approve(CELL)
    head, payload = lines(desk)
    own = store.read_key(desk.place.key)
    other = store.read_or_make_key(tmp_path / "other" / "key")
    evil = with_evil(payload)
    rewrite(desk, {**head, "signature": "hmac-sha256:" + own.sign(evil)}, evil)
    assert admits(desk, EVIL)  # control: this is what the key is for
    upper = own.sign(evil).upper()
    for signature in (other.sign(evil), sha256(evil.decode()), "", "0" * 64, upper, "é"):
        rewrite(desk, {**head, "signature": f"hmac-sha256:{signature}"}, evil)
        assert refused(desk) == "it was changed since it was signed"
    rewrite(desk, {**head, "key": other.id, "signature": f"hmac-sha256:{other.sign(evil)}"}, evil)
    assert refused(desk) == f"it was signed with another key: {other.id!r}, not {own.id!r}"


def test_a_manifest_of_a_policy_with_a_key_of_its_own_is_listed_as_that(desk, tmp_path):
    desk.approve(CELL)
    store.read_or_make_key(tmp_path / "other" / "key")
    (found,) = store.Store(desk.place.file.parent, tmp_path / "other" / "key").manifests()
    assert found.key == "approval.key"
    assert "Use it under a policy whose approval.key is that one" in found.remedy


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b"{}",
        b"[]\n{}",
        b"[" * 100_000,
        b"\xff\xfe",
        b'{"cellblock": "approval"}\n{}',
        b'{"cellblock":"grants","version":1,"grants":[]}',
        b'{"cellblock":"approval","version":2,"key":"","signature":"","more":1}\n{}',
        b'{"cellblock":"approval","version":%s,"key":"","signature":""}\n{}' % (b"9" * 4000),
        b'{"cellblock":"approval","version":2,"key":"%s","signature":""}\n{}' % (b"a" * 4000),
    ],
)
def test_what_is_no_signed_manifest_admits_nothing(desk, content):
    desk.approve(CELL)
    desk.place.file.write_bytes(content)
    assert refused(desk) == "it is not a signed manifest"


def test_what_another_version_wrote_is_said_to_be_that_and_its_remedy_works(desk):
    desk.approve(CELL)
    head, payload = lines(desk)
    rewrite(desk, {**head, "version": 1}, payload)
    with pytest.raises(AdmissionError) as failure:
        admits(desk)
    assert failure.value.message == "another version of cellblock wrote it (format 1)"
    pasted = failure.value.remedy.removeprefix("Remove it, and approve again: ")
    subprocess.run(["sh", "-c", pasted], check=True)
    desk.approve(CELL)
    assert admits(desk)


def test_an_older_manifest_is_refused_though_its_signature_holds(desk):
    path = desk.approve(CELL, EVIL)
    older = desk.place.file.read_bytes()
    desk.approve(CELL)
    newer = desk.place.file.read_bytes()
    desk.place.file.write_bytes(older)
    assert refused(desk) == "it is number 1, and number 2 was written since"
    desk.place.file.write_bytes(newer)
    assert admits(desk)
    # What is approved after it was put back counts; what the older one had does not.
    desk.place.file.write_bytes(older)
    desk.approve(CELL)
    assert admits(desk)
    assert not admits(desk, EVIL)
    # So it is after everything was taken back.
    review.revoke(desk.place, path)
    assert not admits(desk)
    desk.place.file.write_bytes(older)
    assert refused(desk).startswith("it is number 1, and number ")


@pytest.mark.parametrize(
    ("folder", "key"),
    [
        ("approved", "approval.key"),  # the user's own, which cells have by default
        ("approved", "answers.key"),  # the policy's cells have a key of their own
        ("answers", "approval.key"),  # or a folder of their own
    ],
)
def test_an_answer_for_always_is_in_the_way_of_no_approved_cell(desk, folder, key):
    desk.approve(CELL)
    under = GrantContext(scope=str(desk.project), policy=desk.policy.name, digest="d")
    grants = Grants(under, Store(desk.data / folder, desk.data / key))
    assert grants.add(IMPORT, "always") == ""
    assert admits(desk)
    desk.approve(CELL, "y = 2")
    assert grants.covers(IMPORT) == "always"


def test_answers_are_no_cells_and_cells_are_no_answers(desk):
    desk.approve(CELL)
    store_of_both = Store(desk.place.file.parent, desk.place.key)
    answers = store_of_both.answers(str(desk.project), desk.policy.name)
    answers.change(lambda _: [store.record("import", "bz2", "d")])
    cells = desk.place.file.read_bytes()
    desk.place.file.write_bytes(answers.file.read_bytes())
    assert refused(desk) == "it holds answers, not cells"
    answers.file.write_bytes(cells)
    with pytest.raises(AdmissionError, match="it holds cells, not answers"):
        answers.read()


def test_two_working_copies_of_a_named_scope_make_neither_old(desk, tmp_path):
    named = dataclasses.replace(desk.policy.approval, scope="lab")
    copies = []
    for name in ("one", "two"):
        copy = dataclasses.replace(named, folder=str(tmp_path / name / ".cellblock"))
        copies.append(desk.policy.replace(approval=copy))
    for policy, cells in ((copies[0], (CELL,)), (copies[1], (CELL,)), (copies[1], (EVIL,))):
        desk.policy, desk.place = policy, of_cells(policy, desk.project)
        desk.approve(*cells)
    assert admits(desk, policy=copies[0])
    assert admits(desk, EVIL, policy=copies[1])


def test_another_path_to_a_manifest_does_not_make_an_older_one_new(desk, tmp_path):
    desk.approve(CELL, EVIL)
    older = desk.place.file.read_bytes()
    desk.approve(CELL)
    (tmp_path / "link").symlink_to(desk.data)
    linked = dataclasses.replace(desk.policy.approval, folder=str(tmp_path / "link" / "approved"))
    desk.place.file.write_bytes(older)
    said = refused(desk, policy=desk.policy.replace(approval=linked))
    assert said == "it is number 1, and number 2 was written since"


def test_a_manifest_for_another_policy_folder_or_scope_admits_nothing(desk, tmp_path):
    desk.approve(CELL)
    content = desk.place.file.read_bytes()
    other_policy = desk.policy.replace(name="loose")
    named = dataclasses.replace(desk.policy.approval, scope="reports")
    other_scope = desk.policy.replace(approval=named)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    cases = {
        "it is for policy 'lab', not for 'loose'": (other_policy, desk.project),
        f"it is for '{desk.project}', not for 'reports'": (other_scope, desk.project),
        f"it is for '{desk.project}', not for '{elsewhere}'": (desk.policy, elsewhere),
    }
    for said, (policy, project) in cases.items():
        file = of_cells(policy, project).file
        assert file != desk.place.file
        assert "no notebook" in refused(desk, policy=policy, project=project)
        file.write_bytes(content)
        assert refused(desk, policy=policy, project=project) == said
    # A scope of the operator's counts in any folder.
    desk.policy, desk.place = other_scope, of_cells(other_scope, desk.project)
    desk.place.file.unlink()
    desk.approve(CELL)
    assert admits(desk, project=elsewhere)


def test_who_checks_a_notebook_has_that_notebooks_cells_only(desk):
    path, other = desk.approve(CELL), desk.approve("y = 2", name="b.ipynb")
    assert [c.source for c in of_notebook(desk.policy, path).cells.values()] == [CELL]
    assert [c.source for c in of_notebook(desk.policy, other).cells.values()] == ["y = 2"]
    assert of_notebook(desk.policy.replace(admission="any"), path).cells == {}


# --- attacks on places ------------------------------------------------------------------------


def link(path):
    path.rename(path.with_suffix(".real"))
    path.symlink_to(path.with_suffix(".real"))


def pipe(path):
    path.unlink()
    os.mkfifo(path)


def folder(path):
    path.unlink()
    path.mkdir()


def huge(path):
    with path.open("r+b") as file:
        file.truncate(MOST_BYTES + 1)


REPLACED = {
    link: "a link",
    pipe: "not a regular file",
    folder: "not a regular file",
    huge: f"larger than {MOST_BYTES:,} bytes",
}


@pytest.mark.parametrize("change", REPLACED)
def test_a_manifest_or_key_that_is_no_plain_file_admits_nothing(desk, change):
    desk.approve(CELL)
    change(desk.place.file)
    assert refused(desk) == f"the manifest is {REPLACED[change]}"
    change(desk.place.key)
    assert refused(desk).startswith("the key is ")


def test_without_a_key_or_without_a_manifest_nothing_runs(desk):
    assert refused(desk) == "there is no key, so nothing can have been approved"
    desk.approve(CELL)
    desk.place.file.unlink()
    assert refused(desk) == f"no notebook in {desk.project} was approved"
    desk.place.key.unlink()
    assert refused(desk) == "there is no key, so nothing can have been approved"


def test_a_key_that_others_can_read_or_write_itself_or_its_folder_is_none(desk):
    desk.approve(CELL)
    for mode in (0o644, 0o640, 0o604, 0o660, 0o602, 0o666):
        desk.place.key.chmod(mode)
        assert refused(desk) == f"others can read or write it (mode {mode:04o})"
    desk.place.key.chmod(0o600)
    desk.data.chmod(0o777)
    assert refused(desk) == "others can write it (mode 0777)"


def test_serial_numbers_that_others_can_write_or_that_are_damaged_admit_nothing(desk):
    desk.approve(CELL)
    numbers = desk.place.key.with_name("approval.key.serials")
    numbers.chmod(0o622)
    assert refused(desk) == "others can write it (mode 0622)"
    numbers.chmod(0o600)
    for damage in ("", "[]", '{"a": "1"}', '{"a": true}', "{" * 100_000):
        numbers.write_text(damage)
        assert refused(desk) == "it does not hold the numbers of manifests"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_key_of_another_users_is_none(desk):
    desk.approve(CELL)
    os.chown(desk.place.key, 65534, -1)
    assert refused(desk) == "it belongs to uid 65534, who is neither you nor root"


@pytest.mark.parametrize("content", [b"", b"00", b"zz" * 32, b"00" * 33, b"\xff" * 64])
def test_a_file_that_holds_no_key_is_none(desk, content):
    desk.approve(CELL)
    desk.place.key.write_bytes(content)
    assert refused(desk) == "it does not hold a key (32 bytes in hexadecimal)"


def test_a_manifest_that_can_not_be_written_leaves_the_old_one_whole(desk, monkeypatch):
    desk.approve(CELL)
    before = desk.place.file.read_bytes()

    def fail(*_, **_named):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("cellblock.host.files.os.replace", fail)
    with pytest.raises(AdmissionError, match="No space left on device"):
        desk.approve(EVIL)
    assert desk.place.file.read_bytes() == before
    assert sorted(p.name for p in desk.place.file.parent.iterdir()) == [desk.place.file.name]
    assert admits(desk)


def test_who_reads_while_another_approves_is_not_told_that_the_manifest_is_old(desk, monkeypatch):
    desk.approve(CELL)
    real, others = store.read_file, []

    def read_file(path, most, **said):
        if not others:  # each file is read just after another process has approved
            others.append(path)
            desk.place.change(lambda before: before.records)
            others.clear()
        return real(path, most, **said)

    monkeypatch.setattr(store, "read_file", read_file)
    assert admits(desk)
    assert desk.place.read().serial > 1


# --- while a kernel runs ----------------------------------------------------------------------


def test_what_is_approved_or_taken_back_meanwhile_counts_from_the_next_cell_on(desk):
    told = []
    path = desk.approve(CELL)
    gate = AdmissionGate(
        desk.policy, desk.project, lambda admitted, _: told.append(len(admitted.cells))
    )
    assert gate.judge(EVIL).findings
    desk.approve(CELL, EVIL)
    assert not gate.judge(EVIL).findings
    review.revoke(desk.place, path)
    assert gate.judge(EVIL).findings
    assert told == [1, 2, 0]


def test_a_manifest_is_read_once_while_it_stays_as_it_is(desk, monkeypatch):
    desk.approve(CELL)
    gate = AdmissionGate(desk.policy, desk.project)
    monkeypatch.setattr("cellblock.host.consent.store.UNSEEN", -(10**12))
    gate.judge(CELL)
    reads = []
    monkeypatch.setattr(store.ManifestFile, "_read", lambda *_: reads.append(1))
    assert not gate.judge(CELL).findings
    assert reads == []


def removed(key):
    key.unlink()


def another(key):
    key.write_text("00" * 32)


def opened(key):
    key.chmod(0o644)


def tampered(file):
    """Change what it says, but neither its size nor its time."""
    status = file.stat()
    file.write_bytes(file.read_bytes().replace(b"x = 1", b"x = 2"))
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize(
    ("which", "change", "why"),
    [
        ("key", removed, "there is no key"),
        ("key", another, "signed with another key"),
        ("key", link, "the key is a link"),
        ("key", opened, "others can read or write it"),
        ("file", tampered, "changed since it was signed"),
    ],
)
def test_a_key_or_manifest_that_is_no_more_what_it_was_stops_the_kernel(
    desk, monkeypatch, which, change, why
):
    monkeypatch.setattr("cellblock.host.consent.store.UNSEEN", -(10**12))
    desk.approve(CELL)
    gate, path = AdmissionGate(desk.policy, desk.project), getattr(desk.place, which)
    assert not gate.judge(CELL).findings
    kept = path.read_bytes()
    change(path)
    for _ in range(2):
        with pytest.raises(AdmissionError, match=why):
            gate.judge(CELL)
    path.unlink(missing_ok=True)
    path.write_bytes(kept)
    path.chmod(0o600)
    assert not gate.judge(CELL).findings
