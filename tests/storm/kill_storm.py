"""A storm: a kernel, a script, a model, and kills at moments that nobody chose."""

from __future__ import annotations

import contextlib
import os
import random
import re
import select
import signal
import time
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from script import CELLS, DIGEST, HEAP, PRESSED, Model, cells, setup

from support.guest_processes import guests_and_copies, replaceable_guest

if TYPE_CHECKING:
    from support.kernels import Kernel

AGAIN = re.compile(r"had just ended and was run again$")
OUTCOME = "application/vnd.cellblock.outcome+json"
#: Seconds that any reply may take on a machine that has other things to do; else it hangs.
HANG = 30.0
#: Seconds without a cell after which a guest has forked each copy that it is going to.
QUIET = 10.0
#: Cells between two looks at everything.
LOOK = 12
MOMENTS = ("running", "running", "replied", "replied", "idle", "restoring", "queued", "copy")


class LossError(AssertionError):
    """The namespace is not what the model says."""


def kill(pids: list[int]) -> bool:
    """Kill the youngest of ``pids`` and wait for its end; say whether there was one.

    One that is about to end still looks like a copy that holds a state.
    """
    if not pids:
        return False
    with contextlib.suppress(ProcessLookupError), contextlib.ExitStack() as stack:
        pidfd = os.pidfd_open(pids[-1])
        stack.callback(os.close, pidfd)
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        poll.poll(HANG * 1000)
        return True
    return False


@dataclass
class Tally:
    """What a storm did."""

    kills: int = 0
    cells: int = 0
    stopped: int = 0
    #: Cells that the kernel says it ran again, being too young for a snapshot.
    again: int = 0
    slowest: float = 0.0
    by_moment: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Size:
    """What could grow without anybody looking."""

    descriptors: int
    resident: int
    processes: int

    @classmethod
    def of(cls, kernel: Kernel) -> Size:
        """Measure a kernel."""
        host = Path(f"/proc/{kernel.proc.pid}")
        resident = int((host / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        return cls(len(list((host / "fd").iterdir())), resident, len(kernel.tree()))


class Storm:
    """One kernel that is killed over and over, beside a model that is not."""

    def __init__(self, kernel: Kernel, seed: int, *, pressed: bool = False) -> None:
        self.kernel, self.seed = kernel, seed
        self.dice = random.Random(seed)
        self.model, self.tally = Model(), Tally()
        self._cells = cells(self.dice, PRESSED if pressed else CELLS)
        self._zygote = kernel.zygote()
        self._since: list[str] = []
        self._step((HEAP if pressed else "") + setup())
        for _ in range(4):  # older copies to fall back to: the first cell is in all of them
            self._step(DIGEST)
            time.sleep(0.1)

    def blow(self) -> None:
        """Kill once, at some moment, then look at what is left."""
        moment = self.dice.choice(MOMENTS)
        self._since.append(f"# {moment}")
        getattr(self, f"_while_{moment}")()
        self.tally.by_moment[moment] = self.tally.by_moment.get(moment, 0) + 1
        if moment == "restoring":
            self._step(next(self._cells))
        if sum(self.tally.by_moment.values()) % LOOK == 0:
            self.look()

    def look(self) -> None:
        """Compare everything with the model; digests are answered, whatever was killed before."""
        self._step(DIGEST)
        self._since.clear()
        self.kernel.log.clear()

    # --- moments ------------------------------------------------------------------------------

    def _while_running(self) -> None:
        mid, code = self._send()
        self._wait(self.dice.choice((0.001, 0.003, 0.01, 0.05)))
        self._kill()
        self._end(mid, code)

    def _while_replied(self) -> None:
        for _ in range(self.dice.randint(1, 4)):
            self._step(next(self._cells))
        self._wait(self.dice.choice((0, 0.0005, 0.002, 0.005)))
        self._kill()

    def _while_idle(self) -> None:
        self._step(next(self._cells))
        self._wait(0.08)
        self._kill()
        self._wait(0.02)

    def _while_restoring(self) -> None:
        mid, code = self._send()
        self._wait(0.012)
        self._kill()
        self._wait(0.012)
        self._kill(serving=False)
        self._end(mid, code)

    def _while_queued(self) -> None:
        sent = [self._send() for _ in range(self.dice.randint(2, 6))]
        self._wait(0.02)
        self._kill()
        for mid, code in sent:
            self._end(mid, code)

    def _while_copy(self) -> None:
        """Kill the newest copy, the guest's shield; the guest itself soon after."""
        self._step(next(self._cells))
        self._wait(0.03)
        self.tally.kills += kill(guests_and_copies(self._zygote)[1])
        mid, code = self._send()
        self._end(mid, code)

    # --- steps --------------------------------------------------------------------------------

    def _wait(self, most: float) -> None:
        time.sleep(self.dice.uniform(0, most))

    def _kill(self, *, serving: bool = True) -> None:
        """Kill the guest, or who takes over, once a copy that it has forked holds its state.

        It forks none where an older copy and what is run again suffice, as after the end of the
        newest one: then it is killed as it is.
        """
        deadline = time.monotonic() + QUIET
        while not (found := replaceable_guest(self._zygote, serving=serving)):
            if time.monotonic() > deadline:
                found = guests_and_copies(self._zygote)[0][-1:]
                break
            time.sleep(0.001)
        self.tally.kills += kill(found)
        self._since.append("# killed")

    def _send(self) -> tuple[str, str]:
        code = next(self._cells)
        return self.kernel.execute_send(code), code

    def _step(self, code: str) -> None:
        self._end(self.kernel.execute_send(code), code)

    def _end(self, mid: str, code: str) -> None:
        """Take a cell's end: the model moves on when, and only when, it was answered well."""
        began = time.monotonic()
        reply = self.kernel.reply(mid, timeout=HANG)["content"]
        self.kernel.until_idle(mid, timeout=HANG)
        self.tally.slowest = max(self.tally.slowest, time.monotonic() - began)
        self.tally.cells += 1
        mine = [m for _, m in self.kernel.log if m["parent_header"].get("msg_id") == mid]
        shown = "DIGEST" if code == DIGEST else code
        self._since.append(f"{shown}\n# -> {reply['status']} {reply.get('ename', '')}")
        self._heed_cards()
        if reply["status"] == "ok":
            shown = "".join(map(_text, mine))
            expected = self.model.run(code)
            differ = zip_longest(shown.splitlines(), expected.splitlines())
            wrong = "; ".join(f"{a!r} is shown, not {b!r}" for a, b in differ if a != b)
            self._demand(not wrong, wrong)
        else:
            self._demand(reply["ename"] == "CellStopped", f"{reply['ename']}: {reply['evalue']}")
            self.tally.stopped += 1

    def _heed_cards(self) -> None:
        """Take note of cells that were run again; no other may be named as lost."""
        for _, message in self.kernel.log:
            card = message["content"].get("data", {}).get(OUTCOME, {})
            self._demand(card.get("state") != "gone", str(card))
            if card:
                self._since.append(f"# card: {card}")
            for text in card.get("lost", ()):
                self._demand(AGAIN.search(text), str(card))
                self.tally.again += 1
        self.kernel.log.clear()

    def _demand(self, holds: object, what: str) -> None:
        if not holds:
            before = "\n".join(self._since[-40:])
            raise LossError(f"{before}\nseed {self.seed}, kill {self.tally.kills}: {what}")


def _text(message: dict[str, Any]) -> str:
    content = message["content"]
    if message["msg_type"] == "stream":
        return content["text"]
    if message["msg_type"] == "execute_result":
        return content["data"]["text/plain"] + "\n"
    return ""
