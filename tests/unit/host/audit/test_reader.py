"""Whatever is done to a log is found, and where; what can't be found is found by a kept head."""

import hashlib
import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cellblock.host.audit import log as chain
from cellblock.host.audit import records
from cellblock.host.audit.log import Log, body, verify


def _session():
    """Return the files of a session that was ended in good order: name to lines."""
    with tempfile.TemporaryDirectory() as name:
        log = Log(Path(name, "audit"), max_bytes=2_000, fsync=False)
        for number in range(20):
            log.write([body(records.Notice(text=f"notice {number}"))])
        log.write([body(records.SessionEnd(cells=0))])
        log.close()
        return {
            path.name: path.read_bytes().splitlines(keepends=True)
            for path in sorted(Path(name, "audit").iterdir())
        }


FILES = _session()
NAMES = sorted(FILES)
LAST = NAMES[-1]
PLACES = [(name, line) for name in NAMES for line in range(len(FILES[name]))]
places = st.sampled_from(PLACES)
few = settings(max_examples=20)


def looked_at(files, **options):
    """Write the files somewhere and return the verdict on them."""
    with tempfile.TemporaryDirectory() as name:
        for each, lines in files.items():
            Path(name, each).write_bytes(b"".join(lines))
        (session,) = chain.sessions(Path(name))
        return verify(session, **options)


def copied():
    return {name: list(lines) for name, lines in FILES.items()}


def first(verdict):
    problem = verdict.problems[0]
    return problem.file.name, problem.line


def test_a_session_of_several_files_is_whole():
    verdict = looked_at(FILES)
    assert len(NAMES) > 2
    assert (verdict.problems, verdict.state) == ([], "ended")
    assert (verdict.seq, verdict.records) == (len(PLACES) - 1, len(PLACES))
    assert verdict.head == json.loads(FILES[LAST][-1])["hash"]
    # A head that was kept earlier is found in what came after.
    assert looked_at(FILES, head=json.loads(FILES[NAMES[0]][1])["hash"]).anchored


@few
@given(place=places, data=st.data())
def test_a_record_of_which_a_byte_was_changed_is_found(place, data):
    (name, line), files = place, copied()
    old = files[name][line]
    at = data.draw(st.integers(0, len(old) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda b: b != old[at]))
    files[name][line] = old[:at] + bytes([byte]) + old[at + 1 :]
    assert first(looked_at(files)) == (name, line + 1)


def hashed(told):
    """Return a line of these fields, with a right hash."""
    return told + b',"hash":"' + hashlib.sha256(told).hexdigest().encode() + b'"}\n'


def test_a_record_that_is_nested_beyond_reading_is_found():
    files = copied()
    start = b'{"v":1,"seq":0,"session":"s","prev":"' + chain.FIRST.encode() + b'","x":'
    files[NAMES[0]][0] = hashed(start + b"[" * 10_000 + b"]" * 10_000)
    assert first(looked_at(files)) == (NAMES[0], 1)


@few
@given(place=places, data=st.data())
def test_a_record_into_which_something_was_put_is_found(place, data):
    (name, line), files = place, copied()
    old = files[name][line]
    at = data.draw(st.integers(0, len(old)))
    more = data.draw(st.binary(min_size=1, max_size=30))
    files[name][line] = old[:at] + more + old[at:]
    found, number = first(looked_at(files))
    assert found == name
    assert number == line + 2 or (at < len(old) and number == line + 1)


@few
@given(place=places, count=st.integers(1, 5))
def test_records_that_were_removed_are_found_but_for_the_last(place, count):
    (name, line), files = place, copied()
    cut = files[name][line : line + count]
    del files[name][line : line + count]
    verdict = looked_at(files)
    left = PLACES[PLACES.index(place) + len(cut) :]
    if not left:
        assert (verdict.problems, verdict.state) == ([], "open")
        return
    place_after = (name, line + 1) if files[name][line:] else (left[0][0], 1)
    assert first(verdict) == place_after
    assert "missing before" in verdict.problems[0].what


@few
@given(one=places, other=places)
def test_records_that_changed_places_are_found(one, other):
    if one == other:
        return
    (a, i), (b, j) = sorted((one, other), key=PLACES.index)
    files = copied()
    files[a][i], files[b][j] = files[b][j], files[a][i]
    assert first(looked_at(files)) == (a, i + 1)


@few
@given(one=places, other=places)
def test_a_record_that_stands_there_again_is_found(one, other):
    (a, i), (b, j) = sorted((one, other), key=PLACES.index)
    files = copied()
    files[b].insert(j + 1, FILES[a][i])
    verdict = looked_at(files)
    assert first(verdict) == (b, j + 2)
    assert verdict.problems[0].what.endswith("stands here again")


@few
@given(place=places, data=st.data())
def test_a_log_that_was_cut_has_a_torn_line_or_an_open_end(place, data):
    (name, line), files = place, copied()
    for later in NAMES[NAMES.index(name) + 1 :]:
        del files[later]
    at = data.draw(st.integers(0, len(files[name][line]) - 1))
    files[name][line:] = [files[name][line][:at]] if at else []
    verdict = looked_at(files)
    assert verdict.state == "open"
    assert verdict.sound == (at == 0)
    assert at == 0 or first(verdict) == (name, line + 1)


@pytest.mark.parametrize("gone", range(len(NAMES)))
def test_a_file_that_was_removed_is_found(gone):
    files = copied()
    del files[NAMES[gone]]
    (problem,) = looked_at(files).problems
    after = NAMES[gone + 1] if gone + 1 < len(NAMES) else NAMES[gone - 1]
    assert problem.file.name == after
    assert "missing" in problem.what


def rewritten(place):
    """Return the files with one record exchanged for another with a right hash."""
    (name, line), files = place, copied()
    entry = chain.read(files[name][line])
    told = body(records.Notice(text="it was another"))
    files[name][line], digest = chain.entry_line(
        told, seq=entry.seq, session=entry.session, prev=entry.prev
    )
    return files, digest


@few
@given(place=places)
def test_a_record_that_was_exchanged_is_found_by_the_one_behind_it(place):
    files, _ = rewritten(place)
    verdict = looked_at(files)
    left = PLACES[PLACES.index(place) + 1 :]
    if left:
        assert first(verdict) == (left[0][0], left[0][1] + 1)
        assert verdict.problems[0].what.endswith("one was exchanged")
    else:
        assert (verdict.problems, verdict.state) == ([], "open")


def test_an_end_that_was_written_anew_is_found_by_a_head_that_was_kept():
    kept = looked_at(FILES).head
    files, digest = rewritten(PLACES[-1])
    assert looked_at(FILES, head=kept).sound
    assert looked_at(files).sound, "nothing else tells"
    (problem,) = looked_at(files, head=kept).problems
    assert problem.what == "the hash that was kept is not here: records were exchanged or cut off"
    assert looked_at(files, head=digest).sound


def test_a_record_of_another_session_or_one_behind_the_end_is_found():
    files, notice = copied(), body(records.Notice(text="x"))
    files[NAMES[0]][0], _ = chain.entry_line(notice, seq=0, session="0" * 16, prev=chain.FIRST)
    assert looked_at(files).problems[0].what == "a record of another session"
    files, entry = copied(), chain.read(FILES[LAST][-1])
    seq = entry.seq + 1
    line, _ = chain.entry_line(notice, seq=seq, session=entry.session, prev=entry.hash)
    files[LAST].append(line)
    (problem,) = looked_at(files).problems
    assert problem.what == f"record {seq} stands after the session's end"


@few
@given(st.binary(max_size=500))
def test_no_bytes_make_reading_fail(junk):
    verdict = looked_at({NAMES[0]: [junk]})
    assert verdict.state == "open"
    assert verdict.sound == (not junk)


@few
@given(st.recursive(st.none() | st.integers() | st.text(), st.lists, max_leaves=5))
def test_no_field_makes_reading_fail(value):
    for key in ("v", "seq", "session", "prev", "kind", "time"):
        fields = {"v": 1, "seq": 0, "session": "a", "prev": chain.FIRST, key: value}
        looked_at({NAMES[0]: [hashed(json.dumps(fields).encode()[:-1])]})
