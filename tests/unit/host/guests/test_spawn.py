"""A zygote's place among processes: what a Ctrl-C in the host's terminal reaches; and the host's memory."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass

import pytest

from cellblock.host.guests import spawn
from support import processes


@dataclass(frozen=True)
class Wrap:
    """What is put in front: it becomes the zygote, or waits for one."""

    words: tuple[str, ...]
    stays: bool

    def __call__(self, argv):
        return contextlib.nullcontext([*self.words, *argv])


@pytest.fixture(params=[None, Wrap(("/usr/bin/env",), stays=False)], ids=["alone", "behind env"])
def zygote(request):
    sock, pid = spawn.start(request.param)
    yield pid
    spawn.drop(sock, pid)


def test_a_zygote_leads_a_session_whatever_became_it(zygote):
    assert processes.until(lambda: os.getsid(zygote) == zygote)


def test_what_stays_in_front_is_in_no_group_of_the_hosts():
    wait = ("/bin/sh", "-c", '"$@" & wait', "sh")
    sock, pid = spawn.start(Wrap(wait, stays=True))
    try:
        assert os.getpgid(pid) == pid
        assert os.getsid(pid) == os.getsid(0)
    finally:
        spawn.drop(sock, pid)


def test_a_zygote_that_reads_nothing_holds_up_nobody_without_end():
    sock, pid = spawn.start()
    try:
        assert sock.gettimeout() == spawn.SENDING
    finally:
        spawn.drop(sock, pid)


COPIES = """
import resource, sys
from cellblock.host.guests import spawn
def copies():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        one = bytes(range(250)) * 20_000
        others = [bytearray(one) for _ in range(3)]
        del one, others
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
clears = copies()
spawn.keep_free_memory()
copies()
print(clears, copies())
"""


def test_a_kernels_host_makes_large_copies_in_memory_that_it_has():
    """Five megabytes are 1,200 pages, each of which the OS kernel would clear and map anew."""
    said = subprocess.check_output([sys.executable, "-c", COPIES], text=True)
    clears, kept = map(int, said.split())
    assert clears > 10_000
    assert kept < 1_000


def test_a_zygote_is_started_without_environment_and_with_no_signal_ignored(monkeypatch):
    started = []

    def start_process(_path, _argv, environment, **options):
        started.append((environment, options["setsigdef"]))
        return 1

    monkeypatch.setattr(os, "posix_spawn", start_process)
    monkeypatch.setenv("TOKEN", "secret")
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert spawn._spawn([sys.executable], theirs) == 1
    ((environment, defaults),) = started
    assert environment == {}
    assert {signal.SIGINT, signal.SIGXCPU} <= defaults
