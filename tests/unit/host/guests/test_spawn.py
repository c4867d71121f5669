"""A zygote's place among processes: what a Ctrl-C in the host's terminal reaches."""

from __future__ import annotations

import contextlib
import os
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
