"""A spare guest serves a first cell that names what it has imported; one that lies is ended."""

import signal

import pytest

from cellblock.host.guests import spare as spares
from cellblock.host.guests.process import Guest
from cellblock.host.guests.spare import SpareGuest, imported_ahead
from cellblock.host.guests.zygote import Standing, Zygote
from cellblock.policy.model import Policy
from cellblock.wire import messages

POLICY = Policy().replace(
    mode="safe",
    snapshots="off",
    allowed_modules=("numpy",),
    preload_when_idle=("numpy.linalg", "gc"),
)
NAMES_IT = "numpy = 1"


@pytest.fixture
def waiting(simulate):
    """Return a session whose guest waits for its first cell, that guest, and the spare one."""
    sim = simulate(policy=POLICY)
    serving = sim.guest
    sim.reactor.advance(spares.IDLE)
    (asked,) = sim.guest.read()
    assert asked == messages.Preload(modules=("numpy.linalg",))
    return sim, serving, sim.guest


def test_a_first_cell_that_names_a_module_runs_where_that_is_imported(waiting):
    sim, serving, other = waiting
    sim.hears(messages.Preloaded(same=True))
    sim.runs(NAMES_IT)
    (request,) = other.read()
    assert request.source == NAMES_IT
    assert serving.gone()
    sim.hears(messages.Began(id=request.id))
    sim.done(request)
    assert sim.ended.status == "ok"


@pytest.mark.parametrize(
    "code",
    ["x = 1", "numpy = environ = 1", "sys = path = numpy = 1", "#" * spares._MOST + "\nnumpy"],
    ids=["names none", "an environment", "a search path", "too long to look at"],
)
def test_any_other_first_cell_runs_where_nothing_is(waiting, code):
    sim, serving, other = waiting
    sim.hears(messages.Preloaded(same=True))
    sim.signals()
    sim.runs(code)
    assert [request.raw for request in serving.read()] == [code]
    assert sim.signals() == [signal.SIGSTOP]
    sim.reactor.advance(spares.DISMISSED)
    assert other.gone()


@pytest.mark.parametrize(
    ("beside", "served_by"),
    [(["Untitled.ipynb", "matplotlibrc"], 0), (["Untitled.ipynb", ".ipynb_checkpoints"], 1)],
    ids=["a file of settings", "a notebook"],
)
def test_what_is_put_beside_the_notebook_meanwhile_counts_but_notebooks(
    waiting, monkeypatch, beside, served_by
):
    sim, *guests = waiting
    sim.hears(messages.Preloaded(same=True))
    monkeypatch.setattr("os.listdir", lambda _: beside)
    sim.runs(NAMES_IT)
    assert [request.raw for request in guests[served_by].read()] == [NAMES_IT]


LIES = {
    "had something in its way": messages.Preloaded(same=False),
    "reports other locks": messages.Ready(report=messages.LockReport(achieved={"a": "b"})),
    "printed something": messages.Stream(name="stdout", text="x"),
    "shows a result": messages.Began(id=1),
    "asks for a tool": messages.Breach(operation="x"),
}


@pytest.mark.parametrize("said", LIES.values(), ids=LIES)
def test_one_that_says_anything_else_is_ended_and_nobody_is_told(waiting, said):
    sim, serving, other = waiting
    sim.hears(said)
    assert other.gone()
    sim.runs(NAMES_IT)
    assert [request.raw for request in serving.read()] == [NAMES_IT]
    assert [kind for kind, _ in sim.notes] == ["locked"]


def test_one_with_other_locks_than_the_guest_that_serves_imports_nothing(simulate, monkeypatch):
    asked = []
    monkeypatch.setattr(SpareGuest, "_is_equal", lambda _, report: asked.append(report))
    sim = simulate(policy=POLICY)
    serving = sim.guest
    sim.reactor.advance(spares.IDLE)
    assert asked
    assert sim.guest is serving or sim.guest.gone()


def test_no_cell_waits_for_it(waiting):
    sim, serving, other = waiting
    sim.runs(NAMES_IT)
    assert [request.raw for request in serving.read()] == [NAMES_IT]
    sim.hears(messages.Preloaded(same=True), by=other)  # it was about to say so
    assert other.gone()


def test_it_is_ended_when_imports_take_too_long(waiting):
    sim, _, other = waiting
    sim.reactor.advance(spares.PATIENCE)
    assert other.gone()


def test_it_is_not_kept_for_ever(waiting):
    sim, serving, other = waiting
    sim.hears(messages.Preloaded(same=True))
    sim.reactor.advance(spares.KEPT)
    assert other.gone()
    sim.runs(NAMES_IT)
    assert [request.raw for request in serving.read()] == [NAMES_IT]


def test_a_guest_that_serves_can_not_pass_for_one(simulate):
    sim = simulate(policy=POLICY)
    sim.hears(messages.Preloaded(same=True))
    assert sim.guests[0].gone()


def test_what_is_no_cell_decides_nothing(waiting):
    sim, serving, other = waiting
    sim.hears(messages.Preloaded(same=True))
    sim.session.complete("x", 1, lambda _: None)
    (query,) = serving.read()
    sim.hears(messages.Completed(id=query.id, matches=[], start=0, end=0), by=serving)
    sim.session.comm("comm_open", {"comm_id": "a"}, {}, [], lambda _: None)
    assert [type(message) for message in serving.read()] == [messages.CommIn]
    assert not other.gone()


# --- one that was forked ahead: a kernel waited for its launch ------------------------------------


@pytest.fixture
def launched(simulate):
    """Return a session whose zygote stood, with a spare guest that has imported."""

    def make(report=None, *, starts=True):
        def ahead(sim, prepare):
            zygote = Zygote(sim.reactor, sim.spawn, prepare)

            def fork(guest):
                zygote.fork(guest)
                return zygote

            spare = SpareGuest(sim.reactor, fork, imported_ahead(POLICY), "/x")
            sim.start_well = False
            spare.fork_ahead()
            sim.reactor.turn()
            sim.hears(messages.Ready(report=report or messages.LockReport()))
            sim.hears(messages.Preloaded(same=True))
            sim.start_well = starts
            guest = Guest(sim.reactor, print, print, print)
            guest.hold(held=True)
            zygote.fork(guest)
            sim.reactor.turn()
            return Standing(zygote, (guest, spare))

        sim = simulate(policy=POLICY, ahead=ahead)
        other, serving = sim.guests
        assert other.read() == [messages.Preload(modules=("numpy.linalg",))]
        return sim, serving, other

    return make


def test_one_forked_ahead_serves_without_being_waited_for(launched):
    sim, serving, other = launched()
    sim.runs(NAMES_IT)
    assert [request.raw for request in other.read()] == [NAMES_IT]
    assert serving.gone()


@pytest.mark.parametrize(("code", "served_by"), [(NAMES_IT, 1), ("x = 1", 0)])
def test_a_cell_that_comes_first_of_all_waits_for_locks_to_be_compared(launched, code, served_by):
    sim, *guests = launched(starts=False)
    sim.runs(code)
    assert [guest.read() for guest in guests] == [[], []]
    sim.hears(messages.Ready(report=messages.LockReport()), by=guests[0])
    assert [request.raw for request in guests[served_by].read()] == [code]


def test_a_guest_that_ended_before_the_launch_is_replaced(launched):
    sim, serving, other = launched(starts=False)
    serving.close()
    sim.start_well = True
    sim.reactor.turn()
    sim.tell_reaped(serving, 0)
    sim.reactor.turn()
    sim.runs("x = 1")
    assert [request.raw for request in sim.guest.read()] == ["x = 1"]
    assert sim.guest not in (serving, other)


def test_one_forked_ahead_is_kept_as_long_as_any_other(launched):
    sim, serving, other = launched()
    sim.reactor.advance(spares.KEPT)
    assert other.gone()
    sim.runs(NAMES_IT)
    assert [request.raw for request in serving.read()] == [NAMES_IT]


def test_one_forked_ahead_with_other_locks_is_ended(launched):
    sim, serving, other = launched(messages.LockReport(achieved={"a": "b"}))
    assert other.gone()
    sim.runs(NAMES_IT)
    assert [request.raw for request in serving.read()] == [NAMES_IT]
    assert len(sim.guests) == 2
