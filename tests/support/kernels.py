"""Kernels for tests. Each has folders of its own (``World``), and leaves nothing behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import zmq
from jupyter_client.kernelspec import KernelSpecManager

from support import machines, processes
from support.client import DEADLINE, Client, connection
from support.users import NOBODY, as_nobody

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[2]
GO_SECONDS = 10.0


def argv_of(name: str) -> list[str]:
    """Return the command in the installed kernelspec ``name``."""
    argv = list(KernelSpecManager().get_kernel_spec(name).argv)
    if argv[0] in {"python", "python3"}:
        argv[0] = sys.executable
    return argv


def argv_for(policy: str | Path, *options: str) -> list[str]:
    """Return the shipped kernelspec's command with another policy."""
    shipped = json.loads((ROOT / "kernelspec" / "cellblock" / "kernel.json").read_text())["argv"]
    argv = [sys.executable, *shipped[1:], *options]
    argv[argv.index("--policy") + 1] = str(policy)
    return argv


UNSAFE = argv_for("unsafe", "--allow-unsafe")


def argv_changed(change: str, policy: str | Path, *options: str) -> list[str]:
    """Return a command whose host first runs the code ``change``, for positive controls."""
    return with_change(change, argv_for(policy, *options))


def with_change(change: str, argv: list[str]) -> list[str]:
    """Return a kernel's command, changed so that its host first runs the code ``change``."""
    main = f"{change}; import sys; from cellblock.jupyter.start import main; main(sys.argv[1:])"
    return [argv[0], "-E", "-P", "-c", main, *argv[argv.index("cellblock") + 1 :]]


class World:
    """Folders in place of a user's own: home, tmp, and the notebook's folder.

    ``backend`` is the one that ``auto`` chooses there.
    """

    def __init__(self, user: int | None = None, backend: str = machines.BACKEND) -> None:
        self.backend = backend
        self.root = Path(tempfile.mkdtemp(prefix="cb-world-"))
        self.root.chmod(0o755)
        self.user = user
        for name in ("home", "tmp", "work", "run"):
            (self.root / name).mkdir(mode=0o700)
            self.give(self.root / name)
        self.home, self.work = self.root / "home", self.root / "work"

    def give(self, path: Path) -> Path:
        """Make ``path`` the user's own."""
        if self.user is not None:
            os.chown(path, self.user, self.user)
        return path

    def write(self, name: str, text: str) -> Path:
        """Write a file into the notebook's folder."""
        path = self.work / name
        path.write_text(text)
        return self.give(path)

    def policy(self, text: str, name: str = "mine") -> Path:
        """Write a policy file; return its path."""
        path = self.root / f"{name}.toml"
        path.write_text(text)
        path.chmod(0o644)
        return path

    def environment(self, **extra: str) -> dict[str, str]:
        """Return an environment that does not lead to the real user's folders."""
        kept = ("LANG", "LC_ALL", "LD_LIBRARY_PATH", "COVERAGE_PROCESS_CONFIG")
        env = {k: os.environ[k] for k in kept if k in os.environ}
        home = str(self.home)
        return env | {
            "PATH": machines.path(self.backend),
            "HOME": home,
            "TMPDIR": str(self.root / "tmp"),
            "IPYTHONDIR": f"{home}/.ipython",
            "JUPYTER_CONFIG_DIR": f"{home}/.jupyter",
            "JUPYTER_DATA_DIR": f"{home}/.local/share/jupyter",
            # Before the kernelspecs of the virtual environment, which precede the user's.
            "JUPYTER_PATH": f"{home}/.local/share/jupyter",
            "JUPYTER_RUNTIME_DIR": str(self.root / "run"),
            "JUPYTER_PLATFORM_DIRS": "1",
            **extra,
        }

    def close(self) -> None:
        """Remove the folders."""
        shutil.rmtree(self.root, ignore_errors=True)


class Kernel(Client):
    """A kernel's process, and a client of it."""

    def __init__(
        self,
        argv: list[str],
        *,
        world: World | None = None,
        info: dict[str, Any] | None = None,
        prefix: tuple[str, ...] = (),
        extra_env: dict[str, str] | None = None,
    ) -> None:
        self.own_world = world is None
        self.world = world or World()
        info = info or connection()
        self.file = self.world.root / "run" / f"kernel-{info['shell_port']}.json"
        self.file.write_text(json.dumps(info))
        self.file.chmod(0o600)
        self.world.give(self.file)
        super().__init__(info)
        self.log_file = self.world.root / f"log-{info['shell_port']}.txt"
        command = [*prefix, *(a.format(connection_file=self.file) for a in argv)]
        self.started = time.perf_counter()
        with self.log_file.open("wb") as log:
            self.proc = subprocess.Popen(
                command,
                cwd=self.world.work,
                env=self.world.environment(**extra_env or {}),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=None if os.environ.get("KERNEL_STDERR") else log,
            )

    # --- its processes ------------------------------------------------------------------------

    def tree(self) -> list[int]:
        """Return the pids of the kernel and all its descendants, parents first."""
        return processes.tree(self.proc.pid)

    def zygote(self) -> int:
        """Return the zygote's pid when there is one."""
        return self._waited_for(lambda: self.called("cb-zygote"))

    def child(self) -> int:
        """Return the pid of the host's first child when there is one, whatever it will become."""
        return self._waited_for(lambda: self.tree()[1:])

    def guest(self) -> int:
        """Return the guest's pid when there is one."""
        return self._waited_for(lambda: self.called("cb-guest"))

    def sole_guest(self) -> int:
        """Return the guest's pid when there is exactly one, as the one before has ended."""
        return self._waited_for(lambda: found if len(found := self.called("cb-guest")) == 1 else [])

    def relay(self) -> int:
        """Return the relay's pid when there is one."""
        return self._waited_for(self.relays)

    def relays(self) -> list[int]:
        """Return the relays' pids."""
        return self.called("cb-relay")

    def copies(self) -> list[int]:
        """Return the pids of the guest's copies."""
        return self.called("cb-snapshot")

    def called(self, name: str) -> list[int]:
        """Return the pids of the kernel's processes with this name."""
        return [pid for pid in self.tree() if processes.name(pid) == name]

    def _waited_for(self, find: Callable[[], list[int]]) -> int:
        deadline = time.monotonic() + GO_SECONDS
        while time.monotonic() < deadline:
            if found := find():
                return found[0]
            time.sleep(0.005)
        raise TimeoutError(f"no such process: {self.stderr()}")

    def pss(self) -> int:
        """Return the proportional set size of the whole tree, in KiB."""
        return processes.proportional_memory(self.tree())

    def stderr(self) -> str:
        """Return what the kernel's processes wrote to their terminal."""
        try:
            return self.log_file.read_text(errors="replace")
        except FileNotFoundError:  # its world was taken down before it, by a fixture made later
            return ""

    def recv(self, channel: str, timeout: float = DEADLINE) -> dict:
        """Return the next message on ``channel``; a timeout's note has the kernel's stderr."""
        try:
            return super().recv(channel, timeout)
        except TimeoutError as exc:
            exc.add_note(f"kernel's exit status: {self.proc.poll()}\n{self.stderr()[-2_000:]}")
            raise

    # --- its life -----------------------------------------------------------------------------

    def wait_ready(self) -> Kernel:
        """Wait until a cell has run; end the kernel if none runs."""
        reply = None
        try:
            self.wait_heard()
            reply, _ = self.run("1", silent=True, store_history=False)
        finally:
            if reply is None or reply["status"] != "ok":
                self.end()  # its open sockets would keep pytest from ending
        if reply["status"] != "ok":
            raise RuntimeError(f"{reply}\n{self.stderr()}")
        return self

    def interrupt(self) -> str:
        """Send an interrupt_request; return its id."""
        return self.send("interrupt_request", {}, "control")

    def end(self) -> list[int]:
        """Shut the kernel down; return the pids of processes that did not end."""
        pids = self.tree()
        try:
            if self.proc.poll() is None:
                self.send("shutdown_request", {"restart": False}, "control")
                self.proc.wait(GO_SECONDS)
        except (zmq.ZMQError, subprocess.TimeoutExpired):
            self.proc.send_signal(signal.SIGKILL)
            self.proc.wait(GO_SECONDS)
        finally:
            self.disconnect()
        return processes.gone(pids)

    def close(self) -> None:
        """End the kernel and remove its own world. Raises if a process was left behind."""
        left = self.end()
        processes.end(left)
        said = self.stderr()
        if self.own_world:
            self.world.close()
        if left:
            raise RuntimeError(f"processes left behind: {left}\n{said}")

    def __exit__(self, *_: object) -> None:
        self.close()


def nobody_prefix() -> tuple[str, ...] | None:
    """Return the command prefix for uid 65534."""
    return as_nobody()


def world_of_nobody() -> World:
    """Return a world that the user nobody owns."""
    return World(NOBODY)


def world_and_prefix(user: str) -> tuple[World, tuple[str, ...]]:
    """Return a world of one of ``machines.users``, and the words before its commands; or skip."""
    name, _, wrapped = user.partition(" in ")
    if wrapped and (why := machines.no_bubblewrap()):
        pytest.skip(f"no bubblewrap: {why}")
    prefix = nobody_prefix() if name == "nobody" else ()
    if prefix is None:
        pytest.skip("this interpreter is out of reach for uid 65534, also in a mount namespace")
    backend = "bubblewrap" if wrapped else machines.BACKEND
    return World(NOBODY if name == "nobody" else None, backend), prefix


def start_staged(start: Callable[..., Kernel], user: str, backend: str) -> Kernel:
    """Start a kernel in one of ``machines.places`` with the fixture ``start``; or skip.

    Its policy extends preset data, which stages writes and so needs a mounter, and lets cells start
    programs. The notebook's folder has a subfolder ``private``.
    """
    world, prefix = world_and_prefix(f"{user} in namespaces" if backend == "bubblewrap" else user)
    world.backend = backend
    (world.work / "private").mkdir()
    world.give(world.work / "private")
    text = f'extends = "data"\nbackend = "{backend}"\nsubprocess_execution = true\n'
    kernel = start(world.policy(text), world=world, prefix=prefix)
    kernel.own_world = True
    return kernel
