"""Records the frames that a real guest sends, at the host's end of its channel."""

from __future__ import annotations

import tempfile
from pathlib import Path

from cellblock.backends.base import choose
from cellblock.backends.plan import make_plan
from cellblock.host.audit.recorder import Audit
from cellblock.host.consent.admission import AdmissionGate
from cellblock.host.guests import process, spawn
from cellblock.host.guests.zygote import ZygoteSource
from cellblock.host.session.config import prepare_message
from cellblock.host.session.session import Session
from cellblock.host.session.types import ExecuteRequest, SessionSettings
from cellblock.jupyter.reactor import ZmqReactor
from cellblock.policy import load
from cellblock.wire import frames

DEADLINE = 20.0
CELL = "print(1)\ndisplay({2: 3})\nprint(4, flush=True)\n[5, 6][0]"


class Front:
    """A front that ignores all calls."""

    audit = Audit()

    def __getattr__(self, _name):
        return lambda *_: ""


def real_session(folder: Path, reactor: ZmqReactor, front: object) -> Session:
    """Return a session with a zygote and guests of its own, under preset safe."""
    policy = load.load("safe", project=folder, scratch=folder, allow_unsafe=False)
    chosen = choose(policy, "attempt")
    plan = make_plan(policy, chosen.backend, scratch=folder, project=folder)
    settings = SessionSettings(
        policy=policy.replace(snapshots="off", timeout=None),
        rules=policy.rules(),
        gate=AdmissionGate(policy, folder),
        prepare=prepare_message(policy, plan, folder, folder),
        zygote=spawn.start,
    )
    return Session(reactor, front, settings, ZygoteSource(reactor, spawn.start))


class _Recorder:
    def __init__(self, folder: Path) -> None:
        self.parts: list[list[bytes]] = [[]]
        self._reactor = ZmqReactor()
        self._session = real_session(folder, self._reactor, Front())

    def run(self) -> list[list[bytes]]:
        take = process.Guest._take

        def recorded(guest, data):
            for payload in frames.Splitter().feed(data):
                self.parts[-1].append(len(payload).to_bytes(4, "big") + payload)
            take(guest, data)

        process.Guest._take = recorded
        try:
            self._session.start()
            self._next(
                lambda d: self._session.execute(ExecuteRequest(code=CELL, execution_count=1), d)
            )
            self._next(lambda d: self._session.complete("pri", 3, d))
            self._next(lambda d: self._session.inspect("print", 5, 0, d))
        finally:
            process.Guest._take = take
            self._session.close()
        return self.parts[:-1]

    def _next(self, ask) -> None:
        def done(_reply):
            self.parts.append([])
            self._reactor.stop()

        late = self._reactor.call_later(DEADLINE, self._reactor.stop)
        ask(done)
        self._reactor.run()
        late.cancel()


def record() -> list[list[bytes]]:
    """Return the frames that a guest sent for a cell, a completion and an inspection."""
    with tempfile.TemporaryDirectory() as folder:
        parts = _Recorder(Path(folder)).run()
    if len(parts) != 3 or not all(parts):
        raise RuntimeError(f"the guest did not answer: {parts}")
    return parts
