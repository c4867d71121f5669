"""Sessions whose guests are the test's to drive, and files that somebody has spoilt."""

import contextlib
import gc
import os
from pathlib import Path

import pytest

from cellblock.host import threads
from cellblock.host.session.types import ExecuteRequest
from cellblock.host.snapshots.driver import Snapshots
from cellblock.policy.model import Policy
from cellblock.wire import messages
from support.simulator import Simulation
from support.stepwise import Stepwise


class Driven:
    """What tests have a guest say, and its copies do."""

    def hears(self, *said, by=None):
        """Have the host hear what the guest says, or a copy."""
        (by or self.guest).send(*said)
        self.reactor.turn()

    def end(self, *copies):
        """Have copies end, one after the other."""
        for copy in copies:
            copy.close()
            self.reactor.turn()


class Simulated(Driven, Simulation):
    """A session without snapshots, which has a guest."""

    def __init__(self, monkeypatch, **options):
        super().__init__(monkeypatch, **options)
        self.session.start()
        self.reactor.turn()

    def runs(self, code="x = 1", **fields):
        self.run(ExecuteRequest(code=code, execution_count=1, **fields))

    def sent(self):
        """Return what the guest was sent."""
        self.reactor.turn()
        (request,) = self.guest.read()
        return request

    def begins(self):
        """Have the guest take up what it was sent; return that."""
        request = self.sent()
        self.hears(messages.Began(id=request.id))
        return request

    def took_up(self, code="x = 1", **fields):
        """Run a cell and have the guest take it up; return the request."""
        self.runs(code, **fields)
        return self.begins()

    def interrupted_at_once(self):
        """Run a cell and interrupt it before it was sent."""
        self.session.execute(ExecuteRequest(code="1", execution_count=1), self.outcomes.append)
        self.session.interrupt()

    def done(self, request, **said):
        self.hears(messages.Done(id=request.id, **said))

    @property
    def ended(self):
        (outcome,) = self.outcomes
        return outcome


class Stepped(Driven, Stepwise):
    """A session with snapshots."""


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """Have work that is for a thread be done at once: a simulated loop waits for none."""
    monkeypatch.setattr(threads, "_start", lambda run: run())


@pytest.fixture
def closing():
    with contextlib.ExitStack() as stack:
        yield lambda made: stack.enter_context(contextlib.closing(made))


@pytest.fixture
def simulate(monkeypatch, closing):
    return lambda **options: closing(Simulated(monkeypatch, **options))


@pytest.fixture
def stepped(monkeypatch, closing):
    """Return what makes sessions with snapshots, none of which stands."""
    return lambda **settings: closing(Stepped(monkeypatch, **settings))


@pytest.fixture
def stepwise(stepped):
    """Return what makes sessions whose first copy stands."""

    def made(**settings):
        sim = stepped(**settings)
        sim.stands(sim.guest.copy())
        return sim

    return made


@pytest.fixture
def sim(stepwise):
    return stepwise()


@pytest.fixture
def descriptors():
    """Return what counts the descriptors of this process."""
    gc.collect()  # sockets of earlier tests' simulations would be closed meanwhile
    return lambda: len(list(Path("/proc/self/fd").iterdir()))


class Zygote:
    """Takes note of what it is asked for: leave to fork, and which processes there may be."""

    def __init__(self):
        self.told = []

    def allow_fork(self, _lineage, _pid):
        self.told.append("allow")

    def protect(self, _guest):
        pass

    def serves(self, _guest):
        pass

    def keep_only(self, _lineage, _user, pids, others=()):
        assert not [*others]
        self.told.append(tuple(pids))


@pytest.fixture
def zygote():
    return Zygote()


class Supervisor:
    """Has a zygote, and takes note of what snapshots tell it; a session that is idle."""

    relay = list

    def __init__(self, zygote):
        self.zygote, self.notices, self.owner = zygote, [], self

    def idle(self):
        return True

    def runs_beside(self):
        return False

    def running(self):
        return None

    def on_notice(self, text):
        self.notices.append(text)

    def on_stopping(self):
        pass

    def on_ending(self, guest, *, has_failed):
        pass

    def on_waking(self, guest):
        pass

    def empty_shared_memory(self):
        return False


@pytest.fixture
def serving(zygote):
    """Return what has a guest serve, and returns its snapshots, of which none was taken."""

    def made(reactor, guest, **settings):
        policy, supervisor = Policy().replace(**settings), Supervisor(zygote)
        snapshots = Snapshots(reactor, lambda: reactor.now, policy, supervisor)
        snapshots.supervisor = supervisor
        snapshots.start(guest)
        snapshots.begin(idle=True)
        return snapshots

    return made


def a_link(file):
    file.symlink_to(file.rename(file.with_name("moved")))


def a_pipe(file):
    file.unlink()
    os.mkfifo(file)


SPOILT = {
    "writable by others": lambda file: file.chmod(0o622),
    "a link": a_link,
    "a pipe": a_pipe,
    "empty": lambda file: os.truncate(file, 0),
    "gone": Path.unlink,
}
if os.geteuid() == 0:  # only root can give a file to somebody else
    SPOILT["another user's"] = lambda file: os.chown(file, 65534, 65534)


@pytest.fixture(params=SPOILT)
def spoil(request):
    """Return what makes of a file one that is not to be trusted, or none."""
    return SPOILT[request.param]
