"""Calls in a worker whose answers nobody hears for a while: they have come, and are not late."""

import msgspec
import pytest

from cellblock.host.services.tools import worker as protocol
from cellblock.host.services.tools.calls import Answer, Call
from cellblock.wire import messages
from support.simulator import Reactor

TOOL = messages.Tool(name="fetch", is_async=True)
LIMIT = 30.0


class Worker:
    """Says what the test has it say; keeps it to itself while it is held."""

    def __init__(self, _reactor, _module, _union, on_message, _on_lost, started=None):
        self.on_message, self.started = on_message, started
        self.held, self.killed, self.unread, self.sent = False, False, [], []

    def says(self, message):
        self.unread.append(message)
        self.hold(held=self.held)

    def send(self, message):
        self.sent.append(message)

    def hold(self, *, held):
        self.held = held
        while self.unread and not self.held:
            self.on_message(self.unread.pop(0))

    def kill(self):
        self.killed = True

    def close(self):
        self.kill()


@pytest.fixture
def reactor():
    return Reactor()


@pytest.fixture
def provider(monkeypatch, reactor):
    """Return a provider with a call under way, whose answers nobody hears for now."""
    monkeypatch.setattr(protocol, "Worker", Worker)
    made = protocol.WorkerProvider(
        reactor, protocol.WorkerSettings(entries=("x",), timeout=LIMIT, max_bytes=1_000)
    )
    made.open(lambda _tools: None, pytest.fail)
    made._worker.says(protocol.Loaded(tools=(TOOL,)))
    made.answers = begin(made)
    made.hold(held=True)
    return made


@pytest.fixture
def worker(provider):
    return provider._worker


def begin(provider):
    answers = []
    nothing = msgspec.Raw(msgspec.msgpack.encode(((), {})))
    provider.begin(Call(1, TOOL, nothing, answer=answers.append))
    return answers


def test_a_worker_that_was_started_ahead_is_told_nothing_again_and_serves_once(
    monkeypatch, reactor
):
    monkeypatch.setattr(protocol, "Worker", Worker)
    settings, ahead = protocol.WorkerSettings(entries=("x",)), object()
    provider = protocol.WorkerProvider(reactor, settings, ahead)
    provider.open(lambda _tools: None, pytest.fail)
    assert (provider._worker.started, provider._worker.sent) == (ahead, [])
    provider._worker.says(protocol.Loaded(tools=(TOOL,)))
    provider._on_lost("exit status 1")
    begin(provider)
    assert provider._worker.started is None
    assert isinstance(provider._worker.sent[0], protocol.Load)


def test_a_worker_whose_tools_are_known_starts_with_the_first_call_which_waits_for_it(
    monkeypatch, reactor
):
    monkeypatch.setattr(protocol, "Worker", Worker)
    provider = protocol.WorkerProvider(reactor, protocol.WorkerSettings(entries=("x",)))
    provider.expect((TOOL,))
    assert provider._worker is None
    answers = begin(provider)
    assert [type(one) for one in provider._worker.sent] == [protocol.Load]
    provider._worker.says(protocol.Loaded(tools=(TOOL,)))
    assert [type(one) for one in provider._worker.sent] == [protocol.Load, protocol.Begin]
    provider._worker.says(RETURNED)
    assert [one.value for one in answers] == [b"\x05"]


@pytest.mark.parametrize("fails", ["says so", "takes too long", "ends"])
def test_a_call_whose_worker_never_has_the_tools_that_are_known_is_answered(
    monkeypatch, reactor, fails
):
    monkeypatch.setattr(protocol, "Worker", Worker)
    provider = protocol.WorkerProvider(reactor, protocol.WorkerSettings(entries=("x",)))
    provider.expect((TOOL,))
    answers = begin(provider)
    if fails == "says so":
        provider._worker.says(protocol.LoadFailed(entry="x", message="it is gone", remedy=""))
    elif fails == "takes too long":
        reactor.advance(protocol.LOADING + 1)
    else:
        for _ in range(protocol.MAX_FAILED_STARTS):
            provider._on_lost("exit status 1")
    assert [one.kind for one in answers] == ["WorkerLost"]


def test_a_tool_that_a_later_worker_has_otherwise_is_not_called(provider, worker):
    """A server is started again with a call, and says anew what it has."""
    provider.hold(held=False)
    more = messages.Parameter(name="b", kind=1)
    for tools, kinds in {
        (messages.Tool(name="fetch", is_async=True, doc="of today"),): [],
        (messages.Tool(name="fetch", is_async=True, parameters=(more,)),): ["WorkerLost"],
        (): ["WorkerLost"],
    }.items():
        worker.says(protocol.Loaded(tools=tools))
        assert [answer.kind for answer in begin(provider)] == kinds


RETURNED = protocol.Answered(number=1, answer=Answer(b"\x05"))
STOPPED = protocol.Answered(number=1, answer=Answer(kind="Cancelled"))


def test_an_answer_that_came_in_time_and_was_not_heard_is_one(provider, worker, reactor):
    worker.says(RETURNED)
    reactor.advance(10 * LIMIT)
    assert provider.answers == []
    provider.hold(held=False)
    reactor.advance(10 * LIMIT)
    assert [one.value for one in provider.answers] == [b"\x05"]
    assert not worker.killed


def test_a_call_that_does_not_end_is_over_its_time_once_answers_are_heard(
    provider, worker, reactor
):
    reactor.advance(10 * LIMIT)
    provider.hold(held=False)
    reactor.advance(2 * protocol.GRACE)
    assert [one.kind for one in provider.answers] == ["TimeoutError"]
    reactor.advance(2 * protocol.GRACE)
    assert worker.killed


def test_a_call_that_nobody_waits_for_is_not_ended_over_an_answer_that_was_not_heard(
    provider, worker, reactor
):
    provider.cancel(1)
    worker.says(STOPPED)
    reactor.advance(10 * LIMIT)
    provider.hold(held=False)
    reactor.advance(10 * LIMIT)
    assert not worker.killed


def test_a_call_that_was_cancelled_is_not_answered(provider, worker):
    """What quotas rest on: they count such a call as all that it might have taken."""
    provider.hold(held=False)
    provider.cancel(1)
    worker.says(RETURNED)
    provider.give_up("the policy has become narrower")
    assert provider.answers == []


def told_to_stop(worker):
    return [one.number for one in worker.sent if isinstance(one, protocol.Cancel)]


def test_a_call_is_told_to_stop_in_time_where_nobody_hears_answers(provider, worker, reactor):
    reactor.advance(LIMIT + protocol.GRACE)
    assert told_to_stop(worker) == [1]
    worker.says(STOPPED)
    reactor.advance(10 * LIMIT)
    assert (told_to_stop(worker), provider.answers, worker.killed) == ([1], [], False)
    provider.hold(held=False)
    assert [one.kind for one in provider.answers] == ["TimeoutError"]


def test_a_call_that_does_not_stop_ends_its_worker_though_nobody_hears_it(
    provider, worker, reactor
):
    reactor.advance(LIMIT + protocol.MAX_EXTENSION - protocol.GRACE)
    assert not worker.killed
    reactor.advance(4 * protocol.GRACE)
    assert worker.killed
    assert [one.kind for one in provider.answers] == ["TimeoutError"]


def test_an_answer_that_is_heard_a_moment_after_others_is_in_time(provider, worker, reactor):
    reactor.advance(LIMIT - 0.001)
    provider.hold(held=False)  # it lies in the pipe behind others
    reactor.advance(protocol.GRACE / 2)
    worker.says(RETURNED)
    assert [one.value for one in provider.answers] == [b"\x05"]


def test_a_worker_that_begins_while_nobody_hears_answers_is_heard_until_it_has_imported(
    provider, reactor
):
    provider._on_lost("it was killed")
    answers, worker = begin(provider), provider._worker
    worker.says(protocol.Loaded(tools=(TOOL,)))
    assert [type(one) for one in worker.sent] == [protocol.Load, protocol.Begin]
    worker.says(RETURNED)
    reactor.advance(2 * protocol.LOADING)
    assert answers == []
    provider.hold(held=False)
    assert [one.value for one in answers] == [b"\x05"]
