"""A container engine for tests: the machine's own, or a daemon that is started for the tests."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from support.users import NOBODY, as_nobody

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Seconds until a daemon must answer. It takes two.
_PATIENCE = 40.0
#: Without networks, which the tests do not need and not every machine allows.
_OPTIONS = ("--bridge=none", "--iptables=false", "--ip6tables=false", f"--group={NOBODY}")


@contextlib.contextmanager
def running() -> Iterator[str]:
    """Yield why there is no engine, or an empty text; DOCKER_HOST then leads to the engine."""
    if not shutil.which("docker"):
        yield "docker is not installed"
    elif _answers():
        yield ""
    elif os.geteuid() != 0 or not shutil.which("dockerd"):
        yield "no docker daemon answers, and none can be started"
    else:
        with _daemon() as why:
            yield why


def lets_nobody_in() -> bool:
    """Return whether a kernel of the user nobody can use the engine too."""
    prefix = as_nobody() if os.geteuid() == 0 else None
    return prefix is not None and _answers(prefix)


def _answers(prefix: tuple[str, ...] = ()) -> bool:
    command = [*prefix, "docker", "version"]
    asked = subprocess.run(command, check=False, capture_output=True, timeout=30)
    return asked.returncode == 0


@contextlib.contextmanager
def _daemon() -> Iterator[str]:
    root = Path(tempfile.mkdtemp(prefix="cb-dockerd-"))
    root.chmod(0o755)
    socket, before = f"unix://{root}/docker.sock", os.environ.get("DOCKER_HOST")
    # The daemon ends with this process, also if that is killed.
    command = ["setpriv", "--pdeathsig=TERM"] if shutil.which("setpriv") else []
    # Where it mounts is its own: kernels of other tests would see its shared mounts.
    command += ["unshare", "--mount", "--propagation", "private"]
    command += ["dockerd", f"--data-root={root}/data", f"--exec-root={root}/exec"]
    command += [f"--pidfile={root}/pid", f"--host={socket}", *_OPTIONS]
    with (root / "log").open("wb") as log:
        daemon = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    os.environ["DOCKER_HOST"] = socket
    try:
        yield "" if _waited_for(daemon) else f"dockerd does not start: {_said(root)}"
    finally:
        _end(daemon)
        os.environ.pop("DOCKER_HOST")
        os.environ.update({"DOCKER_HOST": before} if before else {})
        shutil.rmtree(root, ignore_errors=True)


def _waited_for(daemon: subprocess.Popen) -> bool:
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline and daemon.poll() is None:
        if _answers():
            return True
        time.sleep(0.2)
    return False


def _said(root: Path) -> str:
    return " ".join((root / "log").read_text(errors="replace").split())[-300:]


def _end(daemon: subprocess.Popen) -> None:
    """End it, and containerd with it, which it waits for."""
    daemon.send_signal(signal.SIGTERM)
    try:
        daemon.wait(20)
    except subprocess.TimeoutExpired:
        os.killpg(daemon.pid, signal.SIGKILL)
        daemon.wait()
