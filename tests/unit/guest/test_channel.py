"""The guest's end of the wire: whole frames, whatever interrupts and whoever sends."""

import os
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from cellblock.descriptors import is_readable
from cellblock.errors import FrameTooLargeError
from cellblock.guest.channel import Channel, HostGone, take_input
from cellblock.wire import frames, messages

decode = frames.Decoder(messages.FromGuest)


@pytest.fixture
def ends():
    ours, theirs = socket.socketpair()
    yield Channel(theirs), ours
    ours.close()
    theirs.close()


def received(ours, count):
    """Return the next ``count`` messages that the guest sent."""
    splitter, got = frames.Splitter(), []
    while len(got) < count:
        got += map(decode, splitter.feed(ours.recv(1 << 20)))
    return got


def request(number):
    return messages.Complete(id=number, code="a", cursor=1)


def test_messages_arrive_in_order_even_when_they_came_at_once_and_a_loop_can_watch(ends):
    channel, ours = ends
    ours.sendall(b"".join(bytes(frames.encode(request(n))) for n in range(3)))
    assert channel.recv().id == 0
    assert channel.waiting()
    assert [channel.recv().id for _ in range(2)] == [1, 2]
    assert not channel.waiting()

    channel, ours = ends
    ours.sendall(frames.encode(request(1)))
    assert os.get_blocking(channel.fileno())
    channel.read()
    assert channel.waiting()


def test_when_the_host_hangs_up_the_guest_ends(ends):
    channel, ours = ends
    ours.close()
    with pytest.raises(HostGone):
        channel.recv()
    assert issubclass(HostGone, SystemExit)


def test_frames_of_many_threads_do_not_mix(ends):
    channel, ours = ends

    def send(text):
        for _ in range(20):
            channel.send(messages.Stream(name="stdout", text=text))

    texts = [letter * 20_000 for letter in "abcd"]
    with ThreadPoolExecutor(4) as threads:
        threads.map(send, texts)
        got = received(ours, 80)
    assert sorted(m.text for m in got) == [text for text in texts for _ in range(20)]


def test_an_interrupt_in_the_middle_of_a_frame_waits_for_its_end(ends):
    channel, ours = ends

    def interrupt(_number, _frame):
        if not channel.defer_interrupt():
            raise KeyboardInterrupt

    def interrupt_and_read():
        is_readable(ours, 30)  # a part of the frame is there, and the rest does not fit
        signal.pthread_kill(threading.main_thread().ident, signal.SIGALRM)
        time.sleep(0.1)
        box.extend(received(ours, 1))

    reader = threading.Thread(target=interrupt_and_read)
    box = []
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        reader.start()
        with pytest.raises(KeyboardInterrupt):
            # Larger than a socket's buffer: sending blocks until the reader reads.
            channel.send(messages.Stream(name="stdout", text="x" * (4 << 20)))
    finally:
        signal.signal(signal.SIGALRM, before)
    reader.join()
    assert len(box[0].text) == 4 << 20
    assert not channel.defer_interrupt()


def test_what_can_not_be_carried_is_refused_before_a_byte_is_sent(ends):
    channel, ours = ends
    ours.setblocking(False)
    with pytest.raises(FrameTooLargeError):
        channel.send(messages.Stream(name="stdout", text="x" * (frames.MAX_FRAME + 1)))
    with pytest.raises(TypeError):
        channel.send(messages.Display(data={"a/b": object()}))
    with pytest.raises(BlockingIOError):
        ours.recv(1)


def test_an_answer_to_another_question_is_passed_over(ends):
    channel, ours = ends
    for number, value in ((6, "old"), (7, "mine")):
        ours.sendall(frames.encode(messages.Input(id=number, value=value)))
    assert take_input(channel, messages.InputRequest(id=7, prompt="?")) == "mine"
