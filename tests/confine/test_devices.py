"""A device that the plan grants is opened and asked; nothing else is, by whatever descriptor.

The nodes are copies of harmless devices, made where the test is: /dev/full takes no request at all,
so that ENOTTY says that one has come to its driver.
"""

from __future__ import annotations

import errno
import fcntl
import os
import pty
import select
import shutil
import socket
import stat
import tempfile
import termios
from pathlib import Path

import pytest

from cellblock.guest.confine import syscalls
from cellblock.wire.messages import Device
from confine.cell import run

if os.getuid() != 0:
    pytest.skip("only root makes device nodes", allow_module_level=True)

FULL = os.makedev(1, 7)
#: A request of each driver's that is not, by its number, one of anything else's.
REQUESTS = {
    "nvidia": [0xC020462A, 0xC00846CE, 0x6D00, 27, 75, 0x30000001],
    "dri": [0xC0406400, 0x40086200, 0xC0303E03],
    "kfd": [0x80084B01],
}


@pytest.fixture
def nodes():
    """Return a folder with two devices, which differ in their names alone."""
    folder = Path(tempfile.mkdtemp(prefix="cellblock-test-"))
    folder.chmod(0o755)
    for name in ("granted", "beside"):
        os.mknod(folder / name, stat.S_IFCHR | 0o666, FULL)
        (folder / name).chmod(0o666)
    yield folder
    shutil.rmtree(folder)


def plan_of(world, nodes, requests="nvidia", **changes):
    device = Device(path=str(nodes / "granted"), major=1, minor=7, requests=requests)
    return world.plan(devices=(device,), **changes)


def came_to(call, *arguments):
    """Return "done", or the name of the number that a call failed with."""
    try:
        call(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno]
    return "done"


def asked(path, requests):
    fd = os.open(path, os.O_RDWR)
    return {came_to(fcntl.ioctl, fd, request, bytes(256)) for request in requests}


@pytest.mark.parametrize("family", REQUESTS)
def test_a_granted_device_is_opened_read_written_and_asked(world, nodes, uid, family):
    def program():
        fd = os.open(nodes / "granted", os.O_RDWR)
        return os.read(fd, 3), came_to(os.write, fd, b"x"), asked(nodes / "granted", own)

    own = REQUESTS[family]
    outcome = run(program, plan=plan_of(world, nodes, family), uid=uid)

    assert outcome == f"ok: {(bytes(3), 'ENOSPC', {'ENOTTY'})}"


def test_a_device_beside_it_is_neither_opened_nor_read_nor_asked(world, nodes, uid):
    def program():
        modes = (os.O_RDONLY, os.O_WRONLY, os.O_RDWR, os.O_RDWR | os.O_TRUNC)
        return {came_to(os.open, nodes / "beside", mode) for mode in modes}

    assert run(program, plan=plan_of(world, nodes), uid=uid) == "ok: {'EACCES'}"
    assert run(program, plan=None, uid=uid) == "ok: {'done'}"


def test_a_device_that_is_there_for_everybody_is_asked_nothing(world, nodes, uid):
    """Landlock refuses what the filter lets through: /dev/full is granted, its requests are not."""
    requests = REQUESTS["nvidia"]
    plan = plan_of(world, nodes)

    assert run(lambda: asked("/dev/full", requests), plan=plan, uid=uid) == "ok: {'EACCES'}"
    assert run(lambda: asked("/dev/full", requests), plan=None, uid=uid) == "ok: {'ENOTTY'}"


def test_where_a_drivers_requests_are_not_known_the_filter_refuses_all(world, nodes, uid):
    requests = [request for each in REQUESTS.values() for request in each]
    plan = plan_of(world, nodes, requests="")

    outcome = run(lambda: asked(nodes / "granted", requests), plan=plan, uid=uid)

    assert outcome == "ok: {'EPERM'}"


@pytest.mark.parametrize("abi", range(1, 5))
def test_before_landlock_decides_who_is_asked_nobody_is(world, nodes, uid, abi):
    requests = REQUESTS["nvidia"]
    plan = plan_of(world, nodes)

    outcome = run(lambda: asked(nodes / "granted", requests), plan=plan, uid=uid, abi=abi)

    assert outcome == "ok: {'EPERM'}"


def test_the_requests_of_another_driver_are_refused(world, nodes, uid):
    def program():
        return asked(nodes / "granted", REQUESTS["dri"] + REQUESTS["kfd"])

    assert run(program, plan=plan_of(world, nodes), uid=uid) == "ok: {'EPERM'}"


#: What terminals, sockets, pipes and files are asked that no cell may ask.
FOREIGN = {
    "TIOCSTI": 0x5412,
    "TIOCLINUX": 0x541C,
    "TIOCSCTTY": 0x540E,
    "TIOCSETD": 0x5423,
    "FIOASYNC": 0x5452,
    "FIOSETOWN": 0x8901,
    "SIOCSPGRP": 0x8902,
    "SIOCGIFCONF": 0x8912,
    "SIOCSIFFLAGS": 0x8914,
    "FICLONE": 0x40049409,
    "FIFREEZE": 0xC0045877,
    "FS_IOC_SETFLAGS": 0x40086602,
    "FS_IOC_ADD_ENCRYPTION_KEY": 0xC0506617,
    "NS_GET_USERNS": 0xB701,
    "SECCOMP_IOCTL_NOTIF_ADDFD": 0x40182103,
}


def test_terminals_sockets_pipes_and_files_are_asked_no_more_than_before(world, nodes, uid):
    """A filter can't tell them from a device: it lets through no number that means anything there."""
    terminal = pty.openpty()[1]
    descriptors = [terminal, *(one.detach() for one in socket.socketpair()), *os.pipe()]

    def program():
        there = [*descriptors, os.open(nodes / "granted", os.O_RDWR)]
        there.append(os.open(world.scratch / "file", os.O_RDWR))
        return {
            came_to(fcntl.ioctl, fd, request, bytes(256))
            for fd in there
            for request in FOREIGN.values()
        }

    try:
        for family in REQUESTS:
            outcome = run(program, plan=plan_of(world, nodes, family), uid=uid)
            assert outcome == "ok: {'EPERM'}", family
    finally:
        for fd in descriptors:
            os.close(fd)


def test_what_drivers_are_asked_does_nothing_to_terminals_sockets_pipes_and_files(nodes):
    """Unconfined, and as root: so the filter need not know which file a descriptor is."""
    terminal = pty.openpty()[1]
    before = termios.tcgetattr(terminal)
    folder = os.open(nodes, os.O_RDONLY)
    file = os.open(nodes / "file", os.O_RDWR | os.O_CREAT)
    sockets = [*socket.socketpair(), socket.socket(), socket.socket(type=socket.SOCK_DGRAM)]
    pollers = [os.eventfd(0), os.memfd_create("x"), select.epoll()]
    everything = [terminal, folder, file, *os.pipe()]
    everything += [os.dup(one if isinstance(one, int) else one.fileno()) for one in pollers]
    everything += [one.detach() for one in sockets]
    done = {
        (fd, request)
        for fd in everything
        for each in syscalls.OF_DRIVERS.values()
        for request in numbers(each)
        if came_to(fcntl.ioctl, fd, request, bytes(1024)) == "done"
    }
    after = termios.tcgetattr(terminal)
    for fd in everything:
        os.close(fd)
    assert {request for _, request in done} <= {1, 2}  # FIBMAP, which takes root, and FIGETBSZ
    assert before == after


def numbers(alternatives):
    """Return requests of a family, of no size and of 8 bytes either way."""
    found = []
    for (condition,) in alternatives:
        if isinstance(condition, syscalls.In):
            found += condition.values
        else:
            directions = (0, 0x4008_0000, 0x8008_0000, 0xC008_0000)
            if condition.mask == 0xFFFF_FF00:
                directions = (0,)
            found += [
                way | letter | sequence
                for letter in condition.values
                for way in directions
                for sequence in range(256)
            ]
    return found


def test_a_node_that_became_another_device_is_granted_no_more(world, nodes, uid):
    plan = plan_of(world, nodes)
    (nodes / "granted").unlink()
    os.mknod(nodes / "granted", stat.S_IFCHR | 0o666, os.makedev(1, 5))
    (nodes / "granted").chmod(0o666)

    outcome = run(lambda: came_to(os.open, nodes / "granted", os.O_RDONLY), plan=plan, uid=uid)

    assert outcome == "ok: EACCES"


def test_a_link_in_a_nodes_place_grants_nothing(world, nodes, uid):
    plan = plan_of(world, nodes)
    (nodes / "granted").unlink()
    (nodes / "granted").symlink_to(nodes / "beside")

    outcome = run(lambda: came_to(os.open, nodes / "beside", os.O_RDONLY), plan=plan, uid=uid)

    assert outcome == "ok: EACCES"


def test_no_cell_makes_a_device(world, nodes, uid):
    def program():
        place = world.scratch / "device"
        return came_to(os.mknod, place, stat.S_IFCHR | 0o666, FULL)

    plan = plan_of(world, nodes, subprocess=True)

    assert run(program, plan=plan, uid=uid) in {"ok: EPERM", "ok: EACCES"}
