"""The broker: every call judged, answered once, and accounted for."""

from types import SimpleNamespace

import msgspec
import pytest
from msgspec import structs

from cellblock.host.services.tools.broker import MAX_ARGUMENTS, MAX_BACKLOG, MAX_RECORDS, Broker
from cellblock.host.services.tools.calls import Answer, Tooling
from cellblock.host.session.types import ExecuteRequest
from cellblock.policy.model import Policy
from cellblock.wire import messages
from support.approvals import Desk as Asking
from support.simulator import Reactor


def limited(*, in_flight=3, calls=5, max_bytes=2**20):
    return Policy(
        tool_max_in_flight=in_flight,
        tool_max_calls=calls,
        tool_max_bytes=max_bytes,
    )


class Providers:
    """Runs nothing: the test answers."""

    def __init__(self):
        self.calls, self.cancelled, self.held = [], [], []
        #: Calls whose arguments are validated until the test answers; None answers at once.
        self.checking = None
        secret = messages.Parameter(name="key", kind=3, secret=True)
        parameters = (messages.Parameter(name="value", kind=1), secret)
        large = messages.Tool(name="ops.large", max_bytes=3_000_000)
        self.tools = {"tool": messages.Tool(name="tool", parameters=parameters), large.name: large}
        self.tool = self.tools.get
        self.withheld = {"ops.none": "this policy does not grant it"}

    def narrow_to(self, _tooling, gone):
        for name in gone:
            self.tools.pop(name, None)

    def precheck(self, _call):
        return None

    def carries(self, _call):
        return ()

    def check(self, call):
        if self.checking is None:
            call.answer(Answer())
        else:
            self.checking.append(call)

    def begin(self, call):
        self.calls.append(call)

    def cancel(self, number):
        self.cancelled.append(number)

    def hold(self, *, held):
        self.held.append(held)

    def close(self):
        pass


class Harness:
    """A broker between a provider and a guest that says what the test says."""

    def __init__(self, approval=None, **limits):
        self.reactor, self.provider = Reactor(), Providers()
        self.sent, self.seen, self.told, self.breaches = [], [], [], []
        self.unlisted, self.barred = [], None
        self.tooling = Tooling(policy=limited(**limits), approval=approval)
        audit = SimpleNamespace(
            called=self.seen.append,
            refused_more=self.unlisted.append,
            barred=lambda: self.barred,
        )
        self.guest = SimpleNamespace(closed=False, backlog=0, send=self.sent.append)
        cell = messages.Execute(id=1, source="", raw="", execution_count=1)
        self.request = SimpleNamespace(message=cell, subshell=0)
        self.broker = Broker(
            self.reactor,
            SimpleNamespace(guest=self.guest),
            self.tooling,
            audit,
            clock=lambda: self.reactor.now,
            requests=self,
            violation=self.breaches.append,
            show=lambda line: self.told.append(line.text),
        )
        self.broker._providers = self.provider
        self.broker.begin()

    def is_read(self):
        return True

    def narrow_to(self, *gone, **limits):
        self.broker.narrow_to(structs.replace(self.tooling, policy=limited(**limits)), gone)

    def call(self, number=1, name="tool", arguments=([1], {}), *, querying=False):
        """Return how the call breaks the protocol, if it does."""
        raw = msgspec.Raw(msgspec.msgpack.encode(arguments))
        message = messages.ToolCall(id=number, name=name, arguments=raw)
        query = messages.Complete(id=2, code="", cursor=0)
        request = SimpleNamespace(message=query if querying else self.request.message, subshell=0)
        self.broker.handle(message, request)
        return self.breaches.pop() if self.breaches else ""

    def withdraw(self, number):
        self.broker.handle(messages.ToolWithdrawn(id=number), self.request)


def test_calls_count_for_the_request_of_their_subshell(harness):
    harness.narrow_to(calls=1, in_flight=4)
    harness.broker.begin(7, number=3)
    for number, subshell in enumerate((0, 7, 7, 9)):
        message = messages.ToolCall(id=number, name="tool", arguments=msgspec.Raw(b"\x92\x90\x80"))
        request = SimpleNamespace(message=harness.request.message, subshell=subshell)
        harness.broker.handle(message, request)
        assert not harness.breaches
    assert [call.number for call in harness.provider.calls] == [1, 2]
    own, mains = harness.broker.end(7), harness.broker.end()
    assert [(one.number, one.status, one.cell) for one in own.records] == [
        (3, "refused", 3),
        (2, "unfinished", 3),
    ]
    assert [(one.number, one.status) for one in mains.records] == [
        (4, "refused"),
        (1, "unfinished"),
    ]


@pytest.fixture
def harness():
    return Harness()


class Asked:
    """Approves of nothing by itself: the test decides."""

    def __init__(self):
        self.calls, self.proceed, self.refuse, self.gone = [], [], [], []

    def decide(self, call, proceed, refuse):
        self.calls.append(call)
        self.proceed.append(proceed)
        self.refuse.append(refuse)

    def dropped(self, number):
        self.gone.append(number)


@pytest.fixture
def asked():
    return Asked()


def test_a_call_is_answered_once_whatever_its_provider_says(harness):
    assert not harness.call(7)
    (call,) = harness.provider.calls
    call.tell("half of it")
    assert harness.told == ["half of it\n"]
    call.answer(Answer(b"\x05"))
    call.answer(Answer(b"\x06"))
    (result,) = harness.sent
    assert (result.id, bytes(result.value), result.kind) == (7, b"\x05", "")
    assert [record.status for record in harness.seen] == ["ok"]


def test_a_tool_that_is_taken_away_is_none_and_lower_limits_count_at_once(harness):
    harness.narrow_to(in_flight=1)
    assert not harness.call(1)
    assert harness.call(2) == "more calls at once than there may be"
    harness.narrow_to("another", in_flight=1)
    harness.broker.drop()
    assert not harness.call(3)
    harness.narrow_to("tool", in_flight=1)
    assert harness.call(4) == "a call of what is no tool"


LARGER = "a call with larger arguments than there may be"


@pytest.mark.parametrize(
    ("before", "call", "breach"),
    [
        ([], {"name": "other"}, "a call of what is no tool"),
        ([1], {"number": 1}, "a call under an id that is in use"),
        ([1, 2, 3], {"number": 4}, "more calls at once than there may be"),
        ([], {"arguments": (["x" * 2**20], {})}, LARGER),
        # An operation has a size of its own.
        ([], {"name": "ops.large", "arguments": (["x" * 3_000_000], {})}, LARGER),
    ],
)
def test_what_no_honest_guest_asks_is_a_breach(harness, before, call, breach):
    for number in before:
        assert not harness.call(number)
    assert harness.call(**call) == breach
    assert len(harness.provider.calls) == len(before)


def test_too_many_calls_of_one_cell_are_refused_and_the_next_cell_may(harness):
    for number in range(6):
        assert not harness.call(number)
        if number < 5:
            harness.provider.calls[-1].answer(Answer())
    assert harness.sent[-1].kind == "CallRefused"
    assert len(harness.provider.calls) == 5
    harness.broker.begin()
    assert not harness.call(9)
    assert len(harness.provider.calls) == 6


def test_what_calls_hold_together_is_bounded():
    harness = Harness(in_flight=100, calls=None, max_bytes=16 * 2**20)
    for number in range(10):
        assert not harness.call(number, arguments=(["x" * (10 * 2**20)], {}))
    assert len(harness.provider.calls) == MAX_ARGUMENTS // (10 * 2**20)
    harness.provider.calls[0].answer(Answer())
    assert not harness.call(50, arguments=(["x" * (10 * 2**20)], {}))
    assert harness.sent[-1].kind == ""


def test_an_answer_to_a_call_that_was_withdrawn_reaches_nobody(harness):
    harness.call(1)
    harness.withdraw(1)
    harness.call(1)  # the next guest counts from one, too
    first, second = harness.provider.calls
    assert harness.provider.cancelled == [first.number]
    first.answer(Answer(b"\x01"))
    assert not harness.sent
    second.answer(Answer(b"\x02"))
    assert [bytes(result.value) for result in harness.sent] == [b"\x02"]
    # Nor does one that a guest which is gone waited for.
    harness.call(3)
    harness.broker.drop()
    harness.provider.calls[2].answer(Answer())
    assert len(harness.sent) == 1
    assert harness.provider.cancelled == [first.number, harness.provider.calls[2].number]


def test_answers_are_kept_back_while_a_guest_does_not_take_them(harness):
    harness.call(1)
    harness.guest.backlog = MAX_BACKLOG + 1
    harness.provider.calls[0].answer(Answer())
    assert harness.provider.held == [True]
    harness.reactor.advance(1)
    assert harness.provider.held == [True]
    harness.guest.backlog = 0
    harness.reactor.advance(1)
    assert harness.provider.held == [True, False]


def test_the_account_tells_of_what_is_unfinished_masks_secrets_and_measures_what_is_large(harness):
    harness.call(1, arguments=(["a"], {"key": "hunter2"}))
    harness.call(2)
    harness.call(3, name="ops.large", arguments=(["x" * 2_000_000], {}))
    harness.reactor.advance(2)
    harness.provider.calls[1].answer(Answer(kind="ValueError", message="no"))
    failed, open_, large = harness.broker.end().as_list()
    assert failed == {
        "name": "tool",
        "args": [1],
        "kwargs": {},
        "status": "error",
        "error": {"type": "ValueError", "message": "no"},
        "seconds": 2.0,
    }
    assert open_["status"] == "unfinished"
    assert open_["kwargs"] == {"key": "•••"}
    assert large["args"] == ["… 2,000,008 bytes"]


def test_an_earlier_cells_call_is_not_on_a_later_ones_account(harness):
    harness.call(1)
    harness.broker.begin()
    harness.provider.calls[0].answer(Answer())
    made = harness.broker.end()
    assert (made.records, made.left_out) == ((), 0)
    assert len(harness.seen) == 1


# --- operations, and approval -----------------------------------------------------------------


def test_what_is_known_and_not_granted_is_refused_on_record_and_never_run(harness):
    assert not harness.call(name="ops.none", arguments=(["secret.txt"], {}))
    (result,) = harness.sent
    assert (result.kind, result.message) == ("NotGranted", "this policy does not grant it")
    assert not harness.provider.calls
    (record,) = harness.seen
    assert (record.status, record.as_dict()["args"]) == ("refused", ["secret.txt"])


def test_a_flood_of_refusals_is_entered_a_hundred_times_a_cell_and_the_rest_counted():
    harness = Harness(calls=None)
    for _ in range(2):
        for number in range(150):
            harness.call(number, name="ops.none")
        harness.broker.end()
        harness.broker.begin()
    assert (len(harness.sent), len(harness.seen), harness.unlisted) == (300, 200, [50, 50])
    # Those after a cell are counted before the next, or when all ends.
    for number in range(101):
        harness.call(number, name="ops.none")
    harness.broker.end()
    harness.call(1, name="ops.none")
    harness.broker.begin()
    for number in range(103):
        harness.call(number, name="ops.none")
    harness.broker.close()
    harness.broker.close()
    assert harness.unlisted[2:] == [1, 1, 3]


def test_nothing_is_run_before_it_is_approved_or_where_it_is_not(asked):
    harness = Harness(asked)
    harness.call(1)
    assert (len(asked.calls), harness.provider.calls) == (1, [])
    asked.proceed[0]()
    assert harness.provider.calls == asked.calls
    harness.provider.calls[0].answer(Answer(b"\x05"))
    assert [bytes(result.value) for result in harness.sent] == [b"\x05"]
    harness.call(2)
    asked.refuse[1]("nobody was there to ask")
    asked.proceed[1]()
    assert len(harness.provider.calls) == 1
    refused = harness.sent[1]
    assert (refused.kind, refused.message) == ("NotApproved", "nobody was there to ask")
    assert [record.status for record in harness.seen] == ["ok", "refused"]


def test_a_call_that_is_withdrawn_while_it_is_asked_about_is_not_run(asked):
    harness = Harness(asked)
    harness.call(1)
    harness.withdraw(1)
    assert asked.gone == [asked.calls[0].number]
    asked.proceed[0]()
    asked.refuse[0]("no")
    assert (harness.provider.calls, harness.sent) == ([], [])
    harness.call(2)
    harness.broker.drop()
    assert set(asked.gone) == {call.number for call in asked.calls}


def test_nobody_is_asked_about_a_call_that_can_not_run_and_about_others_in_their_order(asked):
    harness = Harness(asked, in_flight=10, calls=10)
    harness.provider.checking = checking = []
    for number in range(1, 6):
        harness.call(number)
    assert asked.calls == []
    checking[1].answer(Answer())
    checking[2].answer(Answer(kind="ValidationError", message="value: no"))
    assert asked.calls == []
    assert [(one.id, one.kind) for one in harness.sent] == [(3, "ValidationError")]
    checking[0].answer(Answer())
    assert [call.number for call in asked.calls] == [1, 2]
    checking[4].answer(Answer())
    harness.withdraw(4)
    assert [call.number for call in asked.calls] == [1, 2, 5]
    harness.call(6)
    harness.call(7)
    checking[6].answer(Answer())
    harness.broker.drop()
    checking[5].answer(Answer())
    assert len(asked.calls) == 3
    assert harness.provider.calls == []


def test_where_all_calls_are_dropped_nobody_is_asked_about_the_next(tmp_path):
    one = Asking(tmp_path)
    one.approver.begin(ExecuteRequest(code="x", execution_count=1, allow_stdin=True))
    harness = Harness(one.approver, in_flight=10)
    for number in range(5):
        harness.call(number, arguments=([number], {}))
    assert len(one.user.questions) == 1
    harness.broker.drop()
    assert len(one.user.questions) == 1
    assert [record.status for record in harness.seen] == ["withdrawn"] * 5


def test_how_many_calls_were_refused_is_told_where_all_are_dropped(harness):
    harness.narrow_to(calls=0)
    for number in range(250):
        harness.call(number)
    for end in (harness.broker.drop, harness.broker.close):
        end()
        assert (len(harness.seen), harness.unlisted) == (MAX_RECORDS, [250 - MAX_RECORDS])


def test_a_call_begins_only_where_what_comes_of_it_can_be_entered_also_one_that_waited(asked):
    harness = Harness(asked)
    harness.call(1)
    harness.barred = "why"
    asked.proceed[-1]()
    assert harness.provider.calls == []
    assert harness.sent[-1].message == "it would not be in the audit log"
    harness = Harness()
    harness.barred = "why"
    assert not harness.call(1)
    assert harness.provider.calls == []
    assert harness.sent[0].message == "it would not be in the audit log"
    harness.barred = None
    assert not harness.call(2)
    assert len(harness.provider.calls) == 1


def test_nobody_is_asked_about_what_is_refused_anyhow_as_to_complete_a_name(asked):
    harness = Harness(asked)
    assert not harness.call(1, name="ops.none")
    assert not harness.call(2, querying=True)
    assert asked.calls == harness.provider.calls == []
    assert [result.kind for result in harness.sent] == ["NotGranted", "CallRefused"]
