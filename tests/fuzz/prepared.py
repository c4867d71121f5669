"""A process that runs batches of generated programs, each batch in a fork of what is prepared once.

Prepared by ``support/run_guarded.py``: the guards are in, neither the source check nor the audit
hook is, so nothing but the guards stands between a program and the canary.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from support import guarded

PRELUDE = Path(__file__).parent / "prelude.txt"
SECONDS_FOR_ONE = 0.5
SECONDS_FOR_A_BATCH = 20


class Prepared:
    """The process; ``layer`` False for the positive control."""

    def __init__(self, *, layer=True):
        work = {
            "package": str(guarded.ROOT / "kernel"),
            "preset": "safe",
            **dict.fromkeys(("layer", "guards"), layer),
            **dict.fromkeys(("check", "arm"), False),
            "environ": {},
            "prelude": PRELUDE.read_text(),
            "seconds": SECONDS_FOR_ONE,
            "batch_seconds": SECONDS_FOR_A_BATCH,
        }
        self._process = subprocess.Popen(
            [sys.executable, "-I", str(Path(guarded.HERE) / "run_guarded.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._tell(work)
        self.programs = self.ended = 0

    def _tell(self, message):
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()

    def run(self, programs):
        """Run ``programs`` and return those that showed the canary what it must not see.

        A batch that hangs or dies counts for what it did until then.
        """
        self._tell(programs)
        answer = json.loads(self._process.stdout.readline())
        self.programs += len(programs)
        self.ended += answer["ended"]
        return [(programs[number], seen) for number, seen in answer["breaches"]]

    def close(self):
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._process.stdout.close()
