"""A real zygote and its end: guests first, the folder whatever it takes; and pidfds."""

import os
import signal
import subprocess
import sys

import pytest

from cellblock.host.guests import zygote
from cellblock.jupyter.reactor import ZmqReactor
from support import processes
from support.recorded_frames import Front, real_session


class Ready(Front):
    def __init__(self, reactor):
        self._reactor = reactor

    def on_locks(self, _report):
        self._reactor.call_later(0, self._reactor.stop)
        return ""


@pytest.fixture
def session(tmp_path):
    """A session whose guest is ready; its folder is `tmp_path / scratch`."""
    (tmp_path / "scratch").mkdir()
    reactor = ZmqReactor()
    made = real_session(tmp_path / "scratch", reactor, Ready(reactor))
    made.start()
    reactor.run()
    yield made
    made.close()


def ends(session):
    """Return the reaper, the zygote and the guest of a session."""
    reaper = session.requests.supervisor.zygote.pid
    (zygote,) = [pid for pid in processes.tree(reaper) if processes.name(pid) == "cb-zygote"]
    return reaper, zygote, session.requests.supervisor.guest.pid


def test_a_zygote_with_much_to_remove_goes_on_alone(session, tmp_path, monkeypatch):
    scratch = tmp_path / "scratch"
    for number in range(5_000):
        (scratch / f"{number}").touch()
    monkeypatch.setattr(zygote, "REMOVAL", 0.0)
    reaper, _, guest = ends(session)
    assert session.close() is False
    assert guest not in processes.parents()  # guests are gone before it is left to itself
    assert os.waitstatus_to_exitcode(os.waitpid(reaper, 0)[1]) == 0  # it was not killed
    assert not scratch.exists()


def test_a_zygote_with_little_to_remove_is_waited_for(session, tmp_path):
    all_of_them = ends(session)
    assert session.close() is True
    assert processes.gone([*all_of_them]) == []
    assert not (tmp_path / "scratch").exists()


def test_a_zygote_that_does_not_end_its_guests_is_killed_and_they_with_it(session, monkeypatch):
    monkeypatch.setattr(zygote, "PATIENCE", 0.3)
    all_of_them = ends(session)
    os.kill(all_of_them[1], signal.SIGSTOP)
    assert session.close() is True  # their folder is the caller's to remove
    assert processes.gone([*all_of_them]) == []


def test_a_guest_is_signalled_even_when_its_pid_is_anothers_by_now(session):
    guest = session.requests.supervisor.guest
    real = guest.pid
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        guest.pid = other.pid
        guest.signal(signal.SIGKILL)
        assert processes.until(lambda: real not in processes.parents())
        assert other.poll() is None
        other.kill()


def test_no_program_that_the_host_starts_inherits_a_guests_pidfd(session):
    assert not os.get_inheritable(session.requests.supervisor.guest.pidfd)
