"""Devices under real kernels: what is granted is used, what is not is not there, and copies.

A GPU is played by nodes below /dev that are copies of /dev/full, which takes no request: what is
granted answers ENOTTY, since the request came to its driver. That this driver takes NVIDIA's
requests the host is told (``DRIVER``): no machine without a GPU has one that does.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from pathlib import Path

import pytest

from cellblock.backends import devices
from cellblock.errors import PolicyError
from cellblock.policy.model import Policy
from support import machines, reading
from support.kernels import Kernel, argv_changed, world_and_prefix
from support.reading import value

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes device nodes")

FULL = os.makedev(1, 7)
DRIVER = 'from cellblock.backends import devices; devices.FAMILIES["full"] = "nvidia"'
#: NVIDIA's request that makes something (NV_ESC_RM_ALLOC), and what came of a call.
ASK = """
import errno, fcntl, os
REQUEST = 0xC030462B
def came_to(call, *arguments):
    try:
        call(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno]
    return "done"
def ask(path, request=REQUEST):
    try:
        fd = os.open(path, os.O_RDWR)
    except OSError as error:
        return errno.errorcode[error.errno]
    return came_to(fcntl.ioctl, fd, request, bytes(32))
"""


class Machine:
    """Device nodes of a test's own, and a kernel whose policy grants the first."""

    def __init__(self, user, backend, text=""):
        self.folder = Path(tempfile.mkdtemp(prefix="cellblock-test-", dir="/dev"))
        self.folder.chmod(0o755)
        for name in ("granted", "beside"):
            os.mknod(self.folder / name, stat.S_IFCHR | 0o666, FULL)
            (self.folder / name).chmod(0o666)
        self.granted, self.beside = str(self.folder / "granted"), str(self.folder / "beside")
        self.user, self.backend = user, backend
        self.kernels = []
        self.kernel = self.start(f"devices = [{self.granted!r}]\n{text}")

    def start(self, text, change=DRIVER):
        """Start a kernel under mode unsafe; a cell has run in it."""
        wrapped = self.backend == "bubblewrap"
        world, prefix = world_and_prefix(f"{self.user} in namespaces" if wrapped else self.user)
        world.backend = self.backend
        policy = world.policy(f'extends = "unsafe"\nbackend = "{self.backend}"\n{text}')
        kernel = Kernel(argv_changed(change, policy, "--allow-unsafe"), world=world, prefix=prefix)
        kernel.own_world = True
        self.kernels.append(kernel)
        kernel.wait_heard()
        _, kernel.first_shown = kernel.run(ASK)
        return kernel

    def close(self):
        """End the kernels, and remove the nodes."""
        for kernel in self.kernels:
            kernel.close()
        shutil.rmtree(self.folder)


PLACES = machines.places()


@pytest.fixture(scope="module", params=PLACES, ids=" under ".join)
def machine(request):
    made = Machine(*request.param)
    yield made
    made.close()


@pytest.fixture(params=PLACES, ids=" under ".join)
def fresh(request):
    made = Machine(*request.param)
    yield made
    made.close()


def test_a_granted_device_is_opened_read_written_and_asked(machine):
    code = f"fd = os.open({machine.granted!r}, os.O_RDWR)\n"
    code += "(os.read(fd, 3), came_to(os.write, fd, b'x'), came_to(fcntl.ioctl, fd, REQUEST, b''))"
    assert value(machine.kernel, code) == (bytes(3), "ENOSPC", "ENOTTY")


def test_a_device_beside_it_is_not_there(machine):
    expected = "ENOENT" if machine.backend == "bubblewrap" else "EACCES"
    assert value(machine.kernel, f"ask({machine.beside!r})") == expected


def test_devices_that_everybody_has_are_asked_nothing_and_terminals_no_more_than_before(machine):
    assert value(machine.kernel, "ask('/dev/null')") == "EACCES"
    assert value(machine.kernel, f"ask({machine.granted!r}, 0x5412)") == "EPERM"  # TIOCSTI
    code = "[came_to(fcntl.ioctl, fd, 0x5412, b'x') for fd in (0, 1, 2)]"
    assert value(machine.kernel, code) == ["EPERM"] * 3


def test_another_session_does_not_have_the_device(machine):
    other = machine.start("")
    expected = "ENOENT" if machine.backend == "bubblewrap" else "EACCES"
    assert value(other, f"ask({machine.granted!r})") == expected
    assert value(other, "ask('/dev/null')") == "EPERM"  # its filter lets no request through


def test_the_first_cell_says_what_a_driver_opens_and_which_device_is_missing(machine):
    absent = f"{machine.folder}/absent"
    other = machine.start(f"devices = [{machine.granted!r}, {absent!r}, 'nvidia:999']")
    (card,) = reading.cards(other.first_shown, "enforcement")
    (gap,) = [gap for gap in card["gaps"] if gap["capability"] == "devices"]
    assert gap["consequence"] == (
        "a driver runs in the OS kernel: a fault in it is outside of every lock; "
        f"not here, or not yours to open: {absent}, nvidia:999"
    )
    assert value(other, f"ask({machine.granted!r})") == "ENOTTY"


@pytest.mark.parametrize(
    ("number", "reason"),
    [((5, 0), "terminal"), ((1, 1), "own memory"), ((1, 5), "no limit"), ((10, 232), "virtual")],
)
def test_what_is_refused_is_refused_by_its_number_whatever_leads_there(machine, number, reason):
    node, link = machine.folder / "harmless", machine.folder / "link"
    os.mknod(node, stat.S_IFCHR | 0o600, os.makedev(*number))
    link.symlink_to(node)
    try:
        for path in (node, link):
            with pytest.raises(PolicyError, match=reason):
                devices.granted(Policy(devices=(str(path),)))
    finally:
        node.unlink()
        link.unlink()


@pytest.mark.parametrize("kind", [stat.S_IFBLK, stat.S_IFIFO, stat.S_IFREG])
def test_what_is_no_character_device_is_refused(machine, kind):
    node = machine.folder / "other"
    os.mknod(node, kind | 0o600, os.makedev(7, 0))
    try:
        with pytest.raises(PolicyError, match="not a character device below /dev"):
            devices.granted(Policy(devices=(str(node),)))
    finally:
        node.unlink()


def test_a_link_that_leads_out_of_dev_is_refused(machine, tmp_path):
    outside, link = tmp_path / "full", machine.folder / "link"
    os.mknod(outside, stat.S_IFCHR | 0o600, FULL)
    link.symlink_to(outside)
    try:
        with pytest.raises(PolicyError, match="below /dev"):
            devices.granted(Policy(devices=(str(link),)))
    finally:
        link.unlink()


def test_a_device_that_is_refused_is_named_with_the_line_that_grants_it(machine):
    reply, published = machine.kernel.run(f"open({machine.beside!r}, 'rb', buffering=0)")
    assert reply["status"] == "error"
    text = " ".join(reading.card_text(published).split())
    assert "cells can use only the devices that are listed" in text
    assert f'add.devices = ["{machine.beside}"]' in text


def test_who_looks_for_a_gpu_is_told_once_that_the_policy_grants_none(machine):
    has_gpu = (
        f"from cellblock.backends import devices; devices._nodes = lambda _: [{machine.granted!r}]"
    )
    cell = "class torch:\n  class cuda:\n    is_available = bool\ntorch.cuda.is_available()"
    shown = {}
    for change in (DRIVER, has_gpu):
        kernel = machine.start("", change=change)
        shown[change] = [reading.notices(kernel.run(cell)[1]) for _ in range(2)]
    assert shown[DRIVER] == ["", ""]  # this machine has none
    first, second = shown[has_gpu]
    assert "cells have no GPU, and this machine has one (nvidia, devices)" in first
    assert "add.devices" in first
    assert second == ""


SAID = (
    "[cellblock takes no snapshot: a device is in use, and a copy would not have what is in it. "
    "If a cell is killed, your variables may be lost]"
)
IN_USE = "a device is in use, and a copy would not have what is in it"
#: A cell so long that its reply waits for its copy.
LONG = "import time; time.sleep(0.6)"


def test_no_copy_is_made_of_a_session_that_uses_a_device_and_a_kill_goes_back_to_before(fresh):
    kernel = fresh.kernel
    kernel.run(f"before = [1]\n{LONG}")
    reply, published = kernel.run(f"during = ask({fresh.granted!r})\n{LONG}")
    assert reply["status"] == "ok"
    assert told(published) == [SAID]
    _, published = kernel.run(f"after = 'lost'\n{LONG}")
    assert told(published) == []
    for magic in ("%checkpoint late", "%branch idea"):
        reply, _ = kernel.run(magic)
        assert reply["evalue"].endswith(IN_USE), reply
    reply, published = kernel.run("os.kill(os.getpid(), 9)")
    (card,) = reading.cards(published, "outcome")
    assert (card["reason"], card["state"]) == ("crashed", "restored")
    assert "during" not in value(kernel, "list(globals())")
    assert value(kernel, "before") == [1]
    assert kernel.run("%checkpoint again")[0]["status"] == "ok"


def test_a_device_that_is_only_read_is_copied_as_an_open_file_is(fresh):
    kernel = fresh.kernel
    _, published = kernel.run(f"fd = os.open({fresh.granted!r}, os.O_RDWR)\n{LONG}")
    assert told(published) == []
    _, published = kernel.run("os.kill(os.getpid(), 9)")
    (card,) = reading.cards(published, "outcome")
    assert (card["state"], card["notes"]) == (
        "restored",
        ["Your variables are as they were before it."],
    )
    assert value(kernel, "(os.read(fd, 3), came_to(os.write, fd, b'x'))") == (bytes(3), "ENOSPC")


def test_what_a_program_does_with_a_device_costs_no_copy(fresh):
    """The program has it open, and not the session."""
    kernel = fresh.start(f"devices = [{fresh.granted!r}]\nsubprocess_execution = true")
    kernel.run(f"code = {ASK + f'print(ask({fresh.granted!r}))'!r}\nimport subprocess, sys")
    run = "subprocess.run([sys.executable, '-c', code], stdout=-1).stdout"
    assert value(kernel, run) == b"ENOTTY\n"
    _, published = kernel.run(f"kept = 1\n{LONG}")
    assert told(published) == []
    assert kernel.run("%checkpoint here")[0]["status"] == "ok"


def test_undo_takes_back_no_more_than_was_asked_for(fresh):
    kernel = fresh.kernel
    kernel.run(f"steps = [1]\n{LONG}")
    kernel.run(f"ask({fresh.granted!r}); steps.append(2)\n{LONG}")
    kernel.run(f"steps.append(3)\n{LONG}")
    reply, _ = kernel.run("%undo")
    assert reply["evalue"] == f"%undo 1: there is nothing to undo: {IN_USE}"
    assert value(kernel, "steps") == [1, 2, 3]


def test_fewer_devices_are_locked_away_and_one_in_use_keeps_the_policy_as_it_was(fresh):
    kernel = fresh.kernel
    kernel.run("%policy narrow devices=[]")
    assert value(kernel, f"ask({fresh.granted!r})") == "EACCES"
    other = fresh.start(f"devices = [{fresh.granted!r}]")
    assert value(other, f"ask({fresh.granted!r})") == "ENOTTY"
    reply, published = other.run("%policy narrow devices=[]")
    assert (reply["status"], IN_USE in reading.card_text(published)) == ("error", True)
    assert value(other, f"ask({fresh.granted!r})") == "ENOTTY"


def told(published):
    """Return what the kernel itself said of snapshots."""
    text = reading.notices(published)
    return [line for line in text.splitlines() if "snapshot" in line]
