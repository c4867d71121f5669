"""What JupyterLab's extension is told, and how what it asks is bounded."""

import hashlib
import hmac
import json
import re
import subprocess
import sys
import typing
from base64 import b64encode
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from cellblock.analysis import analyse
from cellblock.host.audit import records
from cellblock.host.audit.log import Entry
from cellblock.host.services.tools.calls import CallRecord
from cellblock.jupyter import lab as front
from cellblock.jupyter import lab_messages as lab
from cellblock.jupyter.messages import Message
from cellblock.policy.model import Policy
from cellblock.policy.vocabulary import LAB_TARGET
from cellblock.wire import messages, values

SECRET = bytes(range(32))


def test_each_message_has_the_next_number_and_a_code_that_takes_the_secret():
    comm = lab.LabComm("a", SECRET, [])
    for number in range(3):
        said = comm.seal("state", {"name": "sicher ✓"})
        mac = hmac.new(SECRET, said["body"].encode(), hashlib.sha256).hexdigest()
        assert said["mac"] == mac
        assert json.loads(said["body"]) == {"n": number, "kind": "state", "name": "sicher ✓"}


@pytest.mark.parametrize(
    "data",
    [
        None,
        {"version": 1},
        {"version": "1", "secret": "A" * 43 + "="},
        {"version": 1, "secret": "A" * 44},
        {"version": 1, "secret": "A" * 42 + "=="},
        {"version": 1, "secret": "\N{SNOWMAN}" * 44},
        {"version": 1, "secret": ["A"]},
    ],
)
def test_a_secret_is_32_bytes_in_base64(data):
    assert isinstance(lab.read_secret(data), str)
    assert lab.read_secret({"version": 1, "secret": "A" * 43 + "="}) == bytes(32)


@pytest.mark.parametrize(
    ("code", "places"),
    [
        ("open('a')", [(1, 0, 4)]),
        ("x = 1\n\topen('a')", []),  # no Python
        ("if 1:\n\topen('a')", [(2, 1, 5)]),
        ("'🙂é'; open('a')", [(1, 7, 11)]),
        ("'🙂'\r\n'🙂'; open('🙂')", [(2, 6, 10)]),
    ],
)
def test_findings_stand_where_an_editor_counts_them(code, places):
    told = lab.finding_words(analyse(code, Policy.preset("safe").rules()), code)
    assert [(one["line"], one["column"], one["end_column"]) for one in told] == places


@pytest.mark.parametrize(
    "asked",
    [
        {"kind": "answer", "id": "1", "choice": "x" * 21},
        {"kind": "check", "id": "x" * 101, "code": ""},
        {"kind": "checkpoint", "id": "1", "name": "a b"},
        {"kind": "checkpoint", "id": "1", "name": "a\n%restore b"},
        {"kind": "diff", "id": "1", "path": "x" * 5_000},
        {"kind": "drop", "id": "1", "paths": "all"},
        {"kind": "drop", "id": "1", "paths": ["x"] * 101},
        {"kind": "keep", "id": "1", "digest": "x" * 65, "paths": []},
        {"kind": "keep", "id": "1", "digest": "x", "paths": [], "overwrite": True},
        {"kind": "restore", "id": "1", "name": "x" * 41},
        {"kind": "undo", "id": 1},
        {"kind": "undo"},
    ],
)
def test_what_is_out_of_bounds_is_no_request(asked):
    with pytest.raises(msgspec.ValidationError):
        lab.read_request(asked)


def test_a_call_is_told_of_in_bounds_and_without_its_secrets():
    parameters = (messages.Parameter(name="token", kind=1, secret=True),)
    tool = messages.Tool(name="log_in", parameters=parameters)
    encoded = values.encode((["hunter2"], {"text": "x" * 2_000 + "\u202e"}), 2**20)
    record = CallRecord(number=7, tool=tool, arguments=bytes(encoded), status="unfinished")
    told = lab.call_json(record, 3)
    assert (told["id"], told["cell"], told["state"], told["seconds"]) == ("7", 3, "running", None)
    assert told["arguments"].startswith("'•••', text='xxx")
    assert "hunter2" not in told["arguments"]
    assert len(told["arguments"]) <= 500


class Page:
    """A kernel's end of the comms of its front ends; nothing is said of what is in force."""

    def __init__(self, monkeypatch):
        for name in ("_tell_cells", "_tell_question", "on_guest"):
            monkeypatch.setattr(front.Lab, name, lambda *_: None)
        self.said, self.guests = [], set()
        guests = SimpleNamespace(knows=self.guests.__contains__)
        outputs = SimpleNamespace(open_comms=guests, host_comms=set())
        channels = SimpleNamespace(publish=lambda *said: self.said.append(said))
        kernel = SimpleNamespace(
            cell=None, outputs=outputs, channels=channels, views=None, audit=None
        )
        self.comms, self.lab = outputs.host_comms, front.Lab(kernel, None)

    def send(self, kind, name, data, client=b"page"):
        """Receive a message; return what was said to that."""
        self.said.clear()
        content = {"comm_id": name, "target_name": LAB_TARGET, "data": data}
        empty = {"raw_header": b"", "parent": {}, "metadata": {}, "buffers": []}
        header = {"msg_type": kind}
        self.lab.receive(Message(identities=[client], header=header, content=content, **empty))
        return [(kind, content["comm_id"]) for kind, content, _ in self.said]

    def open(self, name, client=b"page"):
        data = {"version": 1, "secret": b64encode(SECRET).decode()}
        return self.send("comm_open", name, data, client)


@pytest.fixture
def page(monkeypatch):
    return Page(monkeypatch)


def test_only_who_opened_a_comm_has_a_part_in_it(page):
    page.open("a")
    assert page.send("comm_msg", "a", {"kind": "nothing", "id": "1"}, b"another") == []
    assert page.send("comm_close", "a", {}, b"another") == []
    assert page.comms == {"a"}
    # Positive controls.
    assert page.send("comm_msg", "a", {"kind": "nothing", "id": "1"}) == [("comm_msg", "a")]
    page.send("comm_close", "a", {})
    assert page.comms == set()


@pytest.mark.parametrize("name", ["of a cell", "", "x" * 201])
def test_no_comm_takes_the_place_of_a_cells_or_has_a_name_without_end(page, name):
    page.guests.add("of a cell")
    assert page.open(name) == [("comm_close", name[:200])]
    assert page.comms == set()
    assert page.open("x" * 200) == []  # positive control


def test_the_comm_that_was_silent_longest_makes_room(page):
    for number in range(front.MOST_COMMS):
        assert page.open(str(number)) == []
    page.send("comm_msg", "0", {})
    assert page.open("one more") == [("comm_close", "1")]
    assert len(page.comms) == front.MOST_COMMS


def test_records_of_the_audit_log_are_told_in_words():
    said = [
        {"kind": "cell", "cell": 7, "count": 4, "decision": "allowed"},
        {"kind": "tool", "cell": 7, "name": "ops.list_dir", "outcome": "ok"},
        {"kind": "outcome", "cell": 7, "status": "error", "error": "ZeroDivisionError"},
        {"kind": "outcome", "cell": 2, "status": "ok"},
        {"kind": "kill", "why": "\x1b[2J" + "x" * 200},
        {"kind": "tomorrow's"},
    ]
    told = [each["words"] for each in lab.record_words(Entry(1, "", "", "", r, True) for r in said)]
    assert told[:4] == [
        "Cell 4 checked: allowed",
        "Tool called: ops.list_dir, ok",
        "Cell 4 ended: ZeroDivisionError",
        "Cell ended: ok",
    ]
    assert "\x1b" not in told[4]
    assert len(told[4]) <= 130
    assert told[5] == "tomorrow's"
    tags = {each.__struct_config__.tag for each in records.Record.__subclasses__()}
    assert tags == set(lab._RECORDS)


def test_the_documentation_has_every_request_and_its_fields():
    page = (Path(__file__).parents[3] / "docs/lab-comm.md").read_text()
    table = page.partition("## What a front end may ask")[2]
    rows = dict(re.findall(r"^\| `(\w+)` \|([^|]*)\|", table, re.MULTILINE))
    requests = typing.get_args(lab.AnyRequest)
    assert {one.__struct_config__.tag for one in requests} == rows.keys()
    for one in requests:
        fields = re.findall(r"`(\w+)`", rows[one.__struct_config__.tag].partition(":")[0])
        assert ["id", *fields] == list(one.__struct_fields__)


def test_a_kernel_imports_nothing_of_it_at_its_start():
    code = "import sys, cellblock.jupyter.assembly; print([m for m in sys.modules if '.lab' in m])"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert told.stdout == "[]\n"
