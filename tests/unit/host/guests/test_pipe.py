"""Raw output: whatever the reads cut, nothing that is shown is cut."""

import os

import pytest

from cellblock.host.guests.process import PIPE_READ, Pipe
from support.simulator import Reactor


@pytest.fixture
def pipe():
    """The writing end of a pipe, its reader, and what that passed on."""
    read, write = os.pipe()
    said = []
    reader = Pipe(read, said.append, Reactor())
    yield write, reader, said
    reader.close()
    os.close(write)


@pytest.mark.parametrize("text", ["\x1b[31m", "\u6f22"])
def test_what_a_read_cuts_in_two_is_passed_on_whole(pipe, text):
    write, reader, said = pipe
    for cut in range(1, len(text.encode())):
        said.clear()
        written = b"x" * (PIPE_READ - cut) + text.encode()
        for part in (written[:PIPE_READ], written[PIPE_READ:]):
            os.write(write, part)
            reader.drain()
        assert said == ["x" * (PIPE_READ - cut), text]
