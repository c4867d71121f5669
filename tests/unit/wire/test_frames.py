"""Frames: whatever bytes come, they become messages or a WireError, within bounds."""

from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cellblock import errors
from cellblock.wire import frames, messages

decode = frames.Decoder(messages.FromGuest)
STREAM = messages.Stream(name="stdout", text="text")


@given(st.lists(st.text(max_size=50), max_size=10), st.data())
def test_messages_arrive_however_the_bytes_are_cut(texts, data):
    sent = [messages.Stream(name="stdout", text=text) for text in texts]
    stream = b"".join(map(bytes, map(frames.encode, sent)))
    splitter, got = frames.Splitter(), []
    while stream:
        cut = data.draw(st.integers(1, len(stream)))
        got += map(decode, splitter.feed(stream[:cut]))
        stream = stream[cut:]
    assert got == sent


@pytest.mark.parametrize("read", [1_000, 1 << 16, 1 << 20])
@pytest.mark.parametrize("into", [False, True], ids=["handed over", "read into their place"])
def test_large_messages_arrive_whole_between_small_ones(read, into):
    sent = [STREAM, messages.Stream(name="stdout", text="x" * 300_000), STREAM] * 2
    stream = b"".join(map(bytes, map(frames.encode, sent)))
    splitter, got = frames.Splitter(), []
    while stream:
        with splitter.room() as room:
            size = min(read, len(room)) if into and room else read
            data, stream = stream[:size], stream[size:]
            if filled := into and bool(room):
                room[: len(data)] = data
        got += map(decode, splitter.filled(len(data)) if filled else splitter.feed(data))
    assert got == sent
    assert not splitter.partial


@given(st.binary(max_size=300))
def test_no_bytes_do_anything_but_decode_or_raise(data):
    try:
        for payload in frames.Splitter().feed(data):
            decode(payload)
    except errors.WireError:
        pass


def test_a_frame_over_the_cap_is_refused_on_its_header_and_before_it_is_sent():
    with pytest.raises(errors.WireError, match="announces 101 bytes"):
        list(frames.Splitter(cap=100).feed((101).to_bytes(4, "big")))
    assert list(frames.Splitter(cap=100).feed((100).to_bytes(4, "big") + b"x" * 99)) == []

    with pytest.raises(errors.WireError, match="in one Stream"):
        frames.encode(messages.Stream(name="stdout", text="x" * (frames.MAX_FRAME + 1)))


def test_nothing_is_kept_of_frames_that_were_yielded():
    splitter = frames.Splitter()
    frame = bytes(frames.encode(STREAM))
    assert len(list(splitter.feed(frame * 100))) == 100
    assert len(splitter._buffer) == 0


def plain(**fields):
    return msgspec.msgpack.encode(fields)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xc1",
        plain(),
        plain(type="sudo"),
        plain(type="stream", name="stdout"),
        plain(type="stream", name="stdout", text=7),
        plain(type="stream", name="stdout", text="x", root=True),
        plain(type="stream", name="n" * 1001, text="x"),
        plain(type="done", id=-1),
        plain(type="done", id=2**60),
        plain(type="done", id="1"),
        plain(type="display", data={"x" * 1001: 1}),
        plain(type="comm_out", kind="comm_msg", content={}, buffers=[b""] * 10_001),
        plain(type="completed", id=1, matches="abc", start=0, end=0),
        plain(type="execute", id=1, source="", raw="", execution_count=1),
        b"\x81\xa4type" + b"\x91" * 50_000,
        b"\x82\xa4type\xa6stream\xa4text\xa2\xff\xfe",
        plain(type="stream", name="stdout", text="x") + b"trailing",
    ],
    ids=range(18),
)
def test_what_the_protocol_does_not_know_is_refused(payload):
    with pytest.raises(errors.WireError, match="undecodable frame"):
        decode(payload)


@pytest.mark.parametrize(
    "lie",
    [{"type": "clear", "\x1b[2J\u202e" * 1_000_000: 1}, {"type": "\n\x07" * 1_000_000}],
    ids=["field", "tag"],
)
def test_what_is_said_of_a_frame_is_short_and_can_be_shown_whatever_stands_in_it(lie):
    with pytest.raises(errors.WireError) as told:
        decode(plain(**lie))
    said = str(told.value)
    assert said.startswith(("undecodable frame: Object contains", "undecodable frame: Invalid"))
    assert said.isprintable()
    assert len(said) < frames.LONGEST_WHY + 30


@pytest.mark.parametrize(
    ("union", "one"),
    [
        (messages.ToGuest, messages.Execute(id=1, source="a", raw="a", execution_count=1)),
        (messages.FromGuest, STREAM),
        (messages.ToZygote, messages.Fork(id=1)),
        (messages.FromZygote, messages.Reaped(pid=1, status=9)),
    ],
)
def test_each_direction_speaks_its_own_messages_only(union, one):
    (payload,) = frames.Splitter().feed(bytes(frames.encode(one)))
    assert frames.Decoder(union)(payload) == one
    unions = {messages.ToGuest, messages.FromGuest, messages.ToZygote, messages.FromZygote}
    for other in unions - {union}:
        with pytest.raises(errors.WireError):
            frames.Decoder(other)(payload)


def test_each_message_has_one_direction():
    unions = (messages.ToGuest, messages.FromGuest, messages.ToZygote, messages.FromZygote)
    spoken = [one for union in unions for one in get_args(union)]
    found = {
        one
        for one in vars(messages).values()
        if isinstance(one, type)
        and issubclass(one, messages.Message)
        and one.__module__ == messages.__name__
    }
    bases = {one for one in found if one.__subclasses__()}
    assert len(spoken) == len({*spoken})
    assert {*spoken} == found - bases
