"""Whatever is done to a log is found, and where; what can't be found is found by a kept head."""

import hashlib
import json
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from cellblock.host.audit import log as chain
from cellblock.host.audit import records
from cellblock.host.audit.log import Log, body, verify


def _session():
    """Return the lines of a session that was ended in good order."""
    with tempfile.TemporaryDirectory() as name:
        log = Log(Path(name, "audit"), max_bytes=1 << 20, fsync=False)
        for number in range(20):
            log.write([body(records.Notice(text=f"notice {number}"))])
        log.write([body(records.SessionEnd(cells=0))])
        log.close()
        return log.path.name, log.path.read_bytes().splitlines(keepends=True)


NAME, LINES = _session()
places = st.integers(0, len(LINES) - 1)
few = settings(max_examples=20)


def looked_at(lines, **options):
    """Write the lines somewhere and return the verdict on them."""
    with tempfile.TemporaryDirectory() as name:
        Path(name, NAME).write_bytes(b"".join(lines))
        (session,) = chain.sessions(Path(name))
        return verify(session, **options)


def first(verdict):
    return verdict.problems[0].line


def test_a_session_is_whole():
    verdict = looked_at(LINES)
    assert (verdict.problems, verdict.state) == ([], "ended")
    assert (verdict.seq, verdict.records) == (len(LINES) - 1, len(LINES))
    assert verdict.head == json.loads(LINES[-1])["hash"]
    # A head that was kept earlier is found in what came after.
    assert looked_at(LINES, head=json.loads(LINES[1])["hash"]).anchored


@few
@given(line=places, data=st.data())
def test_a_record_of_which_a_byte_was_changed_is_found(line, data):
    old, lines = LINES[line], list(LINES)
    at = data.draw(st.integers(0, len(old) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda b: b != old[at]))
    lines[line] = old[:at] + bytes([byte]) + old[at + 1 :]
    assert first(looked_at(lines)) == line + 1


def hashed(told):
    """Return a line of these fields, with a right hash."""
    return told + b',"hash":"' + hashlib.sha256(told).hexdigest().encode() + b'"}\n'


def test_a_record_that_is_nested_beyond_reading_is_found():
    start = b'{"v":1,"seq":0,"session":"s","prev":"' + chain.FIRST.encode() + b'","x":'
    nested = hashed(start + b"[" * 10_000 + b"]" * 10_000)
    assert first(looked_at([nested, *LINES[1:]])) == 1


@few
@given(line=places, data=st.data())
def test_a_record_into_which_something_was_put_is_found(line, data):
    old, lines = LINES[line], list(LINES)
    at = data.draw(st.integers(0, len(old)))
    more = data.draw(st.binary(min_size=1, max_size=30))
    lines[line] = old[:at] + more + old[at:]
    number = first(looked_at(lines))
    assert number == line + 2 or (at < len(old) and number == line + 1)


@few
@given(line=places, count=st.integers(1, 5))
def test_records_that_were_removed_are_found_but_for_the_last(line, count):
    verdict = looked_at([*LINES[:line], *LINES[line + count :]])
    if line + count >= len(LINES):
        assert (verdict.problems, verdict.state) == ([], "open")
        return
    assert first(verdict) == line + 1
    assert "missing before" in verdict.problems[0].what


@few
@given(one=places, other=places)
def test_records_that_changed_places_are_found(one, other):
    if one == other:
        return
    lines = list(LINES)
    lines[one], lines[other] = lines[other], lines[one]
    assert first(looked_at(lines)) == min(one, other) + 1


@few
@given(one=places, other=places)
def test_a_record_that_stands_there_again_is_found(one, other):
    one, other = sorted((one, other))
    verdict = looked_at([*LINES[: other + 1], LINES[one], *LINES[other + 1 :]])
    assert first(verdict) == other + 2
    assert verdict.problems[0].what.endswith("stands here again")


@few
@given(line=places, data=st.data())
def test_a_log_that_was_cut_has_a_torn_line_or_an_open_end(line, data):
    at = data.draw(st.integers(0, len(LINES[line]) - 1))
    verdict = looked_at([*LINES[:line], LINES[line][:at]])
    assert verdict.state == "open"
    assert verdict.sound == (at == 0)
    assert at == 0 or first(verdict) == line + 1


def rewritten(line):
    """Return the lines with one record exchanged for another with a right hash."""
    lines, entry = list(LINES), chain.read(LINES[line])
    told = body(records.Notice(text="it was another"))
    lines[line], digest = chain.entry_line(
        told, seq=entry.seq, session=entry.session, prev=entry.prev
    )
    return lines, digest


@few
@given(line=places)
def test_a_record_that_was_exchanged_is_found_by_the_one_behind_it(line):
    verdict = looked_at(rewritten(line)[0])
    if line + 1 < len(LINES):
        assert first(verdict) == line + 2
        assert verdict.problems[0].what.endswith("one was exchanged")
    else:
        assert (verdict.problems, verdict.state) == ([], "open")


def test_an_end_that_was_written_anew_is_found_by_a_head_that_was_kept():
    kept = looked_at(LINES).head
    lines, digest = rewritten(len(LINES) - 1)
    assert looked_at(LINES, head=kept).sound
    assert looked_at(lines).sound, "nothing else tells"
    (problem,) = looked_at(lines, head=kept).problems
    assert problem.what == "the hash that was kept is not here: records were exchanged or cut off"
    assert looked_at(lines, head=digest).sound


def test_a_record_of_another_session_or_one_behind_the_end_is_found():
    notice, entry = body(records.Notice(text="x")), chain.read(LINES[-1])
    other, _ = chain.entry_line(notice, seq=0, session="0" * 16, prev=chain.FIRST)
    verdict = looked_at([other, *LINES[1:]])
    assert verdict.problems[0].what == "a record of another session"
    seq = entry.seq + 1
    line, _ = chain.entry_line(notice, seq=seq, session=entry.session, prev=entry.hash)
    (problem,) = looked_at([*LINES, line]).problems
    assert problem.what == f"record {seq} stands after the session's end"


@few
@given(st.binary(max_size=500))
def test_no_bytes_make_reading_fail(junk):
    verdict = looked_at([junk])
    assert verdict.state == "open"
    assert verdict.sound == (not junk)


@few
@given(st.recursive(st.none() | st.integers() | st.text(), st.lists, max_leaves=5))
def test_no_field_makes_reading_fail(value):
    for key in ("v", "seq", "session", "prev", "kind", "time"):
        fields = {"v": 1, "seq": 0, "session": "a", "prev": chain.FIRST, key: value}
        looked_at([hashed(json.dumps(fields).encode()[:-1])])
