"""A Dask cluster on loopback, with scheduler and workers in processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys

from support import processes
from support.kernels import World

_WORKER = "from distributed.cli.dask_worker import main; main()"
_SCHEDULER = "from distributed.cli.dask_scheduler import main; main()"
_QUIET = {"DASK_DISTRIBUTED__WORKER__MEMORY__TERMINATE": "false"}


class Cluster:
    """A scheduler, and workers that end with it, in a ``World``'s folders."""

    def __init__(self) -> None:
        self.world = World()
        self.started: list[subprocess.Popen[bytes]] = []
        file = self.world.root / "scheduler.json"
        options = ("--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--idle-timeout", "180")
        self.scheduler = self._start(_SCHEDULER, *options, "--scheduler-file", str(file))
        processes.until(lambda: file.exists() and file.read_bytes(), 60)
        self.address = json.loads(file.read_text())["address"]

    def worker(self, before: str = "") -> subprocess.Popen[bytes]:
        """Start a worker with one thread, which first runs ``before``."""
        options = ("--nthreads", "1", "--no-nanny", "--no-dashboard", "--host", "127.0.0.1")
        local = ("--local-directory", str(self.world.root / "tmp"), "--death-timeout", "30")
        return self._start(before + _WORKER, self.address, *options, *local)

    def _start(self, program: str, *options: str) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-c", program, *options]
        env = self.world.environment(**_QUIET)
        with (self.world.root / f"log{len(self.started)}").open("wb") as log:
            made = subprocess.Popen(argv, env=env, cwd=self.world.work, stdout=log, stderr=log)
        self.started.append(made)
        return made

    def logs(self) -> str:
        """Return the logs of all processes so far."""
        return "".join(path.read_text() for path in self.world.root.glob("log*"))

    def close(self) -> None:
        """End the workers, then the scheduler: Dask may hang if both end at once."""
        scheduler, *workers = self.started
        _end(workers)
        _end([scheduler])
        left = processes.gone([])
        processes.end(left)
        self.world.close()
        assert left == []


def _end(started: list[subprocess.Popen[bytes]]) -> None:
    for one in started:
        one.terminate()
    for one in started:
        try:
            one.wait(20)
        except subprocess.TimeoutExpired:
            one.kill()
            one.wait()
