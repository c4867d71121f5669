"""What a tool did is done once: a cell that called one is kept, not run again."""

from types import SimpleNamespace

import msgspec

from cellblock.host.services.tools.calls import Answer, Tooling
from cellblock.policy.model import Policy
from cellblock.wire import messages
from support.stepwise import INEXACT, outcome_of_loss


def at_once(call):
    call.answer(Answer(b"\xc0"))


def with_a_tool(sim, begin=at_once):
    """Give a session, whose guest is told of none, one tool; return what is seen of calls."""
    seen = []
    broker = sim.session.requests.tools
    tools = {"tool": messages.Tool(name="tool")}
    broker._providers = SimpleNamespace(
        tool=tools.get,
        withheld={},
        begin=begin,
        cancel=lambda _number: None,
        awaited=False,
        paths=(),
        close=lambda: None,
    )
    policy = Policy(tool_max_in_flight=3, tool_max_calls=5)
    broker._tooling = Tooling(policy=policy)
    broker._audit = SimpleNamespace(called=seen.append, barred=lambda: None)
    return seen


def calls(sim):
    arguments = msgspec.Raw(msgspec.msgpack.encode(([], {})))
    sim.guest.send(messages.ToolCall(id=1, name="tool", arguments=arguments))
    sim.reactor.turn()


def cell_with_a_call(sim):
    request = sim.begin()
    calls(sim)
    sim.guest.send(messages.Done(id=request.id))
    sim.reactor.turn()


def loses_its_newer_copy(sim):
    newer = sim.guest.copy()
    sim.reaped(9)
    newer.close()
    sim.reactor.turn()


def test_a_call_that_the_end_of_its_session_cuts_off_is_entered(sim):
    seen = with_a_tool(sim, begin=lambda _call: None)
    sim.begin()
    calls(sim)
    sim.session.disconnect()
    assert [record.status for record in seen] == ["withdrawn"]


def test_a_short_cell_that_called_a_tool_is_answered_when_a_copy_holds_what_it_did(sim):
    seen = with_a_tool(sim)
    cell_with_a_call(sim)
    assert [record.status for record in seen] == ["ok"]
    assert sim.outcomes == []
    sim.stands(sim.guest.copy())
    assert [outcome.status for outcome in sim.outcomes] == ["ok"]


def test_a_cell_that_called_a_tool_is_not_run_again_for_a_state_that_was_lost(sim):
    seen = with_a_tool(sim)
    older = sim.guest.copy()
    cell_with_a_call(sim)
    loses_its_newer_copy(sim)
    assert sim.takes_over(older).inputs == [(1, INEXACT)]
    assert sim.outcomes[-1].stopped == outcome_of_loss()
    assert len(seen) == 1


def test_one_that_calls_a_tool_only_when_it_is_run_again_costs_its_copy(sim):
    seen = with_a_tool(sim)
    older = sim.guest.copy()
    sim.cell()
    loses_its_newer_copy(sim)
    sim.takes_over(older)
    sim.guest.read()
    calls(sim)
    assert older.gone()
    assert seen == []
