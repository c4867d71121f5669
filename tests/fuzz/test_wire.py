"""Mutated frames against the decoders, and mutated traffic against a session (P3).

Without FUZZ_SECONDS they are so many, and the same each time. With it they are ten times as many at
the least, and its four parts go on that long together, from a seed that a failure names and
FUZZ_SEED repeats.
"""

import itertools
import os
import random
import resource
import time

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cellblock.errors import WireError
from cellblock.host.session.types import ExecuteRequest
from cellblock.wire import frames, messages
from support.recorded_frames import record
from support.simulator import Simulation

SECONDS = float(os.environ.get("FUZZ_SECONDS", "0")) / 4
SEED = int(os.environ.get("FUZZ_SEED", random.SystemRandom().randrange(2**32) if SECONDS else 1))
FRAMES, SEQUENCES = (1_000_000, 4_000) if SECONDS else (100_000, 400)
MEBIBYTE = 2**20
DIRECTIONS = {
    "to guest": messages.ToGuest,
    "from guest": messages.FromGuest,
    "to zygote": messages.ToZygote,
    "from zygote": messages.FromZygote,
}
COLUMN = messages.Column(name="a", type="int8", length=1, buffers=(None, b"1"))
LIMITS = messages.Limits(memory_max_bytes=1)
SEEDS = [
    messages.Ready(report=messages.LockReport(achieved={"landlock": "ABI 7"})),
    messages.NotReady(lock="seccomp", detail="none"),
    messages.TrialResults(results={"tcp": messages.Attempt(outcome="refused", detail="EPERM")}),
    messages.Began(id=3),
    messages.Stream(name="stdout", text="text \u00e9 \U0001f600"),
    messages.Display(data={"text/plain": "x", "image/png": b"\x89", "application/json": {"a": [1]}}),
    messages.Display(data={}, metadata={"a": {"b": None}}, display_id="d", update=True),
    messages.Result(data={"text/html": "<b>"}),
    messages.Clear(wait=True),
    messages.Error(ename="E", evalue="v", traceback=["a", "b"]),
    messages.InputRequest(id=3, prompt="?", password=True),
    messages.Done(id=3, user_expressions={"a": {"status": "ok"}}, payload=[{"source": "page"}]),
    messages.Done(id=3, error=messages.Error(ename="E", evalue="v", traceback=[])),
    messages.Completed(id=3, matches=["a", "b"], start=0, end=1, types=[{"type": "x"}]),
    messages.Inspected(id=3, data={"text/plain": "x"}),
    messages.Variables(id=3, variables=(messages.Variable(name="x", type="int"),)),
    messages.VariableValue(id=3, value=messages.Data(b"\x91\x01")),
    messages.VariableValue(id=3, value=messages.Array("<f8", (1,), b"12345678")),
    messages.VariableValue(id=3, value=messages.Frame(library="pandas", columns=(COLUMN,))),
    messages.CommOut(kind="comm_msg", content={"data": {"x": 1.5}}, buffers=[b"", b"x"]),
    messages.Show(what="policy"),
    messages.Show(what="output", argument="7 stderr last"),
    messages.NotThere(kind="folder", name="/mnt/data"),
    messages.NotThere(kind="variable", name="TOKEN", direct=False),
    messages.Execute(id=3, source="x", raw="x", execution_count=1, user_expressions={"a": "b"}),
    messages.Complete(id=3, code="x", cursor=1),
    messages.Inspect(id=3, code="x", cursor=1),
    messages.ListVariables(id=3),
    messages.GetVariable(id=3, name="x"),
    messages.SetVariables(id=3, values={"x": messages.Data(b"\x91\x01")}),
    messages.Input(id=3, value="x"),
    messages.CommIn(id=3, kind="comm_open", content={"a": 1}, buffers=[b"x"]),
    messages.Fork(id=3),
    messages.Forked(id=3, pid=7),
    messages.ForkFailed(id=3, detail="x"),
    messages.Reaped(pid=7, status=9),
    messages.ZygoteFailed(detail="x"),
    messages.Prepare(
        rules={}, preload=(), pre_imported=(), policy_name="p", ipython_dir="/", scratch="/",
        cwd="/", environment={"A": "b"}, plan=messages.Plan(limits=LIMITS),
    ),
]  # fmt: skip
#: Heads that lie about what follows, and values of every kind.
TOKENS = [bytes([first]) for first in range(0x80, 0x100)] + [
    b"\xdf\xff\xff\xff\xff", b"\xdd\x7f\xff\xff\xff", b"\xdb\xff\xff\xff\xff", b"\xc6\0\1\0\0",
    b"\xd6\xff\0\0\0\1", b"\xc7\x0c\xff" + b"\xff" * 12, b"\xcb\x7f\xf8\0\0\0\0\0\0",
    b"\xcf" + b"\xff" * 8, b"\xd3\x80\0\0\0\0\0\0\0", b"\x81\x91\0\0", b"\x81\x80\0", b"\xa4type",
]  # fmt: skip


def corpus():
    return [bytes(frames.encode(message)[frames.HEADER :]) for message in SEEDS]


def directions():
    """Return, for each of ``SEEDS``, the direction it travels in."""
    return [next(u for u in DIRECTIONS.values() if type(m) in u.__args__) for m in SEEDS]


class Mutator:
    """Frames that are nearly right."""

    def __init__(self, seed):
        self._random, self._corpus = random.Random(seed), corpus()

    def payload(self):
        """Return a message with one fault or a few."""
        return self.one()[1]

    def one(self):
        """Return which of ``SEEDS`` it was, and what became of it."""
        chance = self._random.random
        seed = int(chance() * len(self._corpus))
        made = bytearray(self._corpus[seed])
        for _ in range(1 + int(chance() ** 2 * 4)):
            at, kind = int(chance() * (len(made) + 1)), int(chance() * 6)
            if kind == 0 and at < len(made):
                made[at] ^= 1 << int(chance() * 8)
            elif kind == 1:
                made[at:at] = TOKENS[int(chance() * len(TOKENS))]
            elif kind == 2:
                token = TOKENS[int(chance() * len(TOKENS))]
                made[at : at + len(token)] = token
            elif kind == 3:
                del made[at : at + 1 + int(chance() * 8)]
            elif kind == 4:
                other = self._corpus[int(chance() * len(self._corpus))]
                made[at:] = other[int(chance() * len(other)) :]
            else:
                made[at:at] = made[int(chance() * len(made)) :][: 1 + int(chance() * 32)]
        return seed, bytes(made)


def keys_of(value):
    """Yield every key of every map in what a payload decodes to."""
    if isinstance(value, dict):
        yield from value
        value = [*value.values(), *value]
    if isinstance(value, list | tuple):
        for item in value:
            yield from keys_of(item)


def enough(count, target):
    """Yield numbers up to ``target``, or for as long as the environment says."""
    started = time.monotonic()
    for number in itertools.count():
        if number >= target and (number % count or time.monotonic() - started >= SECONDS):
            return
        yield number


def accepted(decode, payload):
    try:
        return decode(payload)
    except WireError:
        return None


@pytest.mark.timeout(600 + 2 * SECONDS)
def test_frames_become_whole_messages_or_wire_errors():
    mutate = Mutator(SEED).one
    unions = directions()
    decoders = {union: frames.Decoder(union) for union in DIRECTIONS.values()}
    others = list(DIRECTIONS.values())
    taken = 0
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in enough(1_000, FRAMES):
        seed, payload = mutate()
        # One in eight travels in a direction that need not be its own.
        union = others[number % 4] if number % 8 == 0 else unions[seed]
        decode = decoders[union]
        message = accepted(decode, payload)
        if message is not None:
            taken += 1
            whole = msgspec.msgpack.decode(payload)
            assert msgspec.convert(whole, union, builtin_types=(bytes,)) == message or has_nan(
                whole
            )
            assert whole.keys() <= {"type", *message.__struct_fields__}, (SEED, payload)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert taken > FRAMES / 100  # faults were small enough to reach what is behind the tag
    assert grown * 1024 < 64 * MEBIBYTE


def has_nan(value):
    return "nan" in repr(value)


@pytest.mark.timeout(600 + 2 * SECONDS)
def test_what_is_looked_through_is_what_is_decoded():
    mutate = Mutator(SEED + 1).payload
    dear = 0
    for _ in enough(1_000, FRAMES):
        payload = mutate()
        try:
            whole = msgspec.msgpack.decode(payload)
        except (msgspec.DecodeError, RecursionError, ValueError, TypeError):
            continue
        found = any(isinstance(key, tuple) for key in keys_of(whole))
        dear += found
        assert refused(payload) == found, (SEED, payload)
    assert dear > FRAMES / 10_000


def refused(payload):
    try:
        frames._walk(payload, 0)
    except WireError:
        return True
    return False


@pytest.mark.timeout(600 + 2 * SECONDS)
def test_a_stream_of_bytes_is_never_held_beyond_its_cap():
    chance, mutate = random.Random(SEED + 2), Mutator(SEED + 2).payload
    for _ in enough(100, FRAMES // 100):
        splitter, sent = frames.Splitter(cap=4_096), b""
        for _ in range(chance.randrange(1, 8)):
            payload = mutate()
            lie = chance.choice([len(payload)] * 6 + [0, len(payload) + 1, 2**32 - 1])
            sent += lie.to_bytes(frames.HEADER, "big") + payload
        try:
            while sent:
                cut = chance.randrange(1, 400)
                piece, sent = sent[:cut], sent[cut:]
                assert all(len(payload) <= 4_096 for payload in splitter.feed(piece))
                assert len(splitter._buffer) <= 4_096 + frames.HEADER
        except WireError:
            continue


# --- what honest peers say ------------------------------------------------------------------------

names = st.text(st.characters(codec="utf-8"), max_size=20)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False)
    | names | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(names, inner, max_size=5),
    max_leaves=20,
)  # fmt: skip
objects = st.dictionaries(names, values, max_size=4)
ids = st.integers(0, 2**53)
errors = st.builds(messages.Error, ename=names, evalue=names, traceback=st.lists(names, max_size=3))
said = st.one_of(
    st.builds(messages.Stream, name=st.sampled_from(["stdout", "stderr"]), text=names),
    st.builds(
        messages.Display, data=objects, metadata=objects, display_id=st.none() | names,
        update=st.booleans(),
    ),
    st.builds(messages.Done, id=ids, error=st.none() | errors, payload=st.lists(objects, max_size=2)),
    st.builds(messages.Inspected, id=ids, data=objects),
    st.builds(
        messages.CommOut, kind=st.sampled_from(["comm_open", "comm_msg", "comm_close"]),
        content=objects, metadata=objects, buffers=st.lists(st.binary(max_size=20), max_size=3),
    ),
    errors,
)  # fmt: skip


@settings(max_examples=50)
@given(st.lists(said, max_size=6), st.data())
def test_what_is_encoded_arrives_as_it_was(sent, data):
    stream = b"".join(bytes(frames.encode(message)) for message in sent)
    splitter, decode = frames.Splitter(), frames.Decoder(messages.FromGuest)
    got = []
    while stream:
        cut = data.draw(st.integers(1, len(stream)))
        got += map(decode, splitter.feed(stream[:cut]))
        stream = stream[cut:]
    assert got == sent
    assert not splitter.partial


@given(values)
def test_what_holds_text_keys_alone_is_let_through(value):
    payload = msgspec.msgpack.encode(value)
    frames._walk(payload, 0)


# --- traffic --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def traffic():
    """What a real guest said to three requests: a list of frames for each, the report first."""
    return record()


class Traffic:
    """Recorded frames, disordered."""

    def __init__(self, seed, recorded):
        self._random = random.Random(seed)
        self._recorded, self._all = recorded, [f for part in recorded for f in part]
        self._mutate = Mutator(seed).payload

    def part(self, number):
        """Return what a guest says to request ``number``, more or less."""
        chance, out = self._random, list(self._recorded[number])
        for _ in range(chance.randrange(4)):
            at = chance.randrange(len(out) + 1)
            match chance.randrange(7):
                case 0:
                    out.insert(at, chance.choice(self._all))
                case 1:
                    del out[at : at + 1]
                case 2:
                    chance.shuffle(out)
                case 3 if out:
                    out.append(chance.choice(out))
                case 4:
                    payload = self._mutate()
                    out.insert(at, len(payload).to_bytes(4, "big") + payload)
                case 5 if out:
                    at = chance.randrange(len(out))
                    out[at] = out[at][: chance.randrange(len(out[at]) + 1)]
                case 6:
                    out = out[:at]
        return b"".join(out)


def requests(sim, answered):
    """The requests that the recording answers, as the same calls."""
    yield lambda: sim.session.execute(
        ExecuteRequest(code="x = 1", execution_count=1), answered.append
    )
    yield lambda: sim.session.complete("pri", 3, answered.append)
    yield lambda: sim.session.inspect("print", 5, 0, answered.append)


def play(monkeypatch, traffic):
    sim, answered = Simulation(monkeypatch), []
    try:
        sim.session.start()
        sim.reactor.turn()
        for number, request in enumerate(requests(sim, answered)):
            request()
            sim.reactor.turn()
            say(sim, traffic.part(number))
            sim.reactor.advance(60.0)
            honest(sim)
            assert len(answered) == number + 1
        serves(sim)
    finally:
        sim.close()


def say(sim, data):
    try:
        sim.guest.sock.sendall(data)
    except OSError:
        return
    sim.reactor.turn()


def honest(sim):
    """Have whatever guest there is now answer what it was asked, until all is answered."""
    for _ in range(4):
        if sim.session.requests.request is None:
            return
        for asked in sim.guest.read():
            say(sim, b"".join(map(bytes, map(frames.encode, answers(asked)))))
        sim.reactor.advance(60.0)


def answers(asked):
    match asked:
        case messages.Execute():
            return [messages.Began(id=asked.id), messages.Done(id=asked.id)]
        case messages.Complete():
            return [messages.Completed(id=asked.id, matches=[], start=0, end=0)]
        case messages.Inspect():
            return [messages.Inspected(id=asked.id, data={})]
        case messages.ListVariables():
            return [messages.Variables(id=asked.id)]
        case messages.GetVariable():
            return [messages.VariableValue(id=asked.id, why="none")]
    return []


def serves(sim):
    """The session runs one more cell, in this guest or the next."""
    outcomes = []
    sim.session.execute(ExecuteRequest(code="y = 2", execution_count=2), outcomes.append)
    for _ in range(4):
        sim.reactor.turn()
        honest(sim)
    assert len(outcomes) == 1


@pytest.mark.timeout(600 + 2 * SECONDS)
def test_whatever_becomes_of_its_traffic_a_session_answers_and_goes_on(monkeypatch, traffic):
    for number in enough(1, SEQUENCES):
        try:
            play(monkeypatch, Traffic((SEED, number).__hash__(), traffic))
        except BaseException as exc:
            exc.add_note(f"seed {SEED}, sequence {number}")
            raise
