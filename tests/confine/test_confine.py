# Attacks name the calls that they are about.
# ruff: noqa: SIM115, PTH104, PTH123, PTH208
from __future__ import annotations

import errno
import os
import resource
import struct
import threading
from functools import partial
from pathlib import Path

import pytest

from cellblock.guest.confine import (
    LOCKS,
    ConfineError,
    arch,
    close_inherited,
    confine,
    landlock,
    libc,
    process,
    syscalls,
)
from cellblock.guest.confine.syscalls import Grants, gates
from cellblock.wire.messages import Limits, Plan
from confine.cell import run

MACHINE = arch.current()
ABIS = range(1, landlock.HIGHEST_KNOWN_ABI + 1)


def tried(function):
    """What ``function`` came to, as text: its own errors are answers here."""
    try:
        return function()
    except OSError as error:
        return os.strerror(error.errno)


def test_the_report_names_every_lock_and_what_was_seen(world, uid):
    def report():
        achieved = confine(world.plan()).achieved
        return achieved.pop("witness"), sorted(achieved)

    seen = "read_file, list_folder, tcp, udp, netlink, fork, execute, signal"
    assert run(report, plan=None, uid=uid) == f"ok: {(seen, sorted(LOCKS))}"


@pytest.mark.parametrize(
    ("right", "seen"), [(landlock.READ_FILE, "read_file"), (landlock.READ_DIR, "list_folder")]
)
def test_a_guest_that_may_read_or_list_everything_does_not_start(
    world, uid, monkeypatch, right, seen
):
    granted = landlock.grants
    monkeypatch.setattr(landlock, "grants", lambda plan: [*granted(plan), ("/", right)])
    said = run(lambda: confine(world.plan()).achieved, plan=None, uid=uid)
    assert said == f"ConfineError: landlock: {seen}: an attempt succeeded under the lock"


def test_a_lock_that_is_not_planned_is_not_taken(world, uid):
    def report(lock):
        return lock in confine(world.plan(locks=(lock,), required=(lock,))).achieved

    expected = dict.fromkeys(LOCKS, "ok: True")
    if uid != 0:  # these need no_new_privs, unless somebody may do without
        refused = {"landlock": "Operation not permitted", "seccomp": "Permission denied"}
        for lock, why in refused.items():
            expected[lock] = f"ConfineError: {lock}: refused by the OS kernel: {why}"
    assert {lock: run(partial(report, lock), plan=None, uid=uid) for lock in LOCKS} == expected


def at_each(program, plan, uid):
    """Return what comes of it under every version of Landlock; one, if they agree."""
    return {run(program, plan=plan, uid=uid, abi=abi) for abi in ABIS}


def test_files_are_confined_at_every_abi(world, uid):
    attacks = {
        "read": (world.outside / "file").read_text,
        "list": lambda: os.listdir(world.outside),
        "write": lambda: open(world.readable / "file", "a"),
        "truncate": lambda: os.truncate(world.readable / "file", 0),
        "truncate on open": lambda: os.open(world.readable / "file", os.O_RDONLY | os.O_TRUNC),
        "link": lambda: os.link(world.readable / "file", world.scratch / "linked"),
        "rename": lambda: os.rename(world.readable / "file", world.scratch / "moved"),
    }
    program = lambda: sorted({tried(attack) for attack in attacks.values()})  # noqa: E731

    errors = {"Permission denied", "Operation not permitted", "Invalid cross-device link"}
    assert at_each(program, world.plan(), uid) == {f"ok: {sorted(errors)}"}


def test_reading_and_writing_work_at_every_abi(world, uid):
    def program():
        (world.scratch / "new").write_text("x")
        (world.scratch / "new").write_text("y")
        (world.scratch / "new").unlink()
        return (world.readable / "file").read_text()

    assert at_each(program, world.plan(), uid) == {"ok: contents of readable\n"}


def test_other_processes_are_out_of_reach_at_every_abi(world, uid):
    plan = world.plan(subprocess=True)

    assert at_each(lambda: os.kill(world.sentinel, 0), plan, uid) == {"EPERM"}


def make_and_remove(link):
    link.symlink_to("x")
    link.unlink()


#: What no program of ``escapes/os`` tries, and what comes of it.
ATTACKS = {
    "EACCES": [
        lambda _: open("/bin/true", "rb").close(),  # which may be executed, where that may be
        lambda w: make_and_remove(w.readable / "made"),
    ],
    "EPERM": [
        lambda _: os.kill(-os.getpgid(0), 0),
        lambda _: os.getpriority(os.PRIO_USER, 0),
    ],
}


def test_confined_each_attack_fails_and_unconfined_it_succeeds(world, uid):
    for refusal, attacks in ATTACKS.items():
        for attack in attacks:
            program = partial(attack, world)
            assert run(program, plan=world.plan(), uid=uid) == refusal, attack
            assert run(program, plan=None, uid=uid).startswith("ok"), attack


def test_every_call_that_is_not_allowed_is_refused_by_the_os_kernel(world, uid):
    """By its number, up to a thousand: the filter that was loaded is the filter that was tested."""
    free = {name for group in syscalls.ALWAYS for name in group.names} | {"truncate"}
    gated = {gate.name for gate in gates(Grants(truncate=True, scoped=True))}
    names = {number: name for name, number in MACHINE.numbers.items()}
    # Linux does not filter these two, which only its own probes may make: SIGILL for all others.
    beyond = {"uprobe", "uretprobe"}
    refused = [n for n in range(1024) if names.get(n) not in free | gated | beyond]

    def wrong():
        return {n: came for n in refused if (came := number_of(n)) != documented(names.get(n))}

    def number_of(number):
        try:
            return libc.syscall(number, *[-1] * 6)
        except OSError as error:
            return error.errno

    def documented(name):
        if name is None:
            return errno.ENOSYS
        return syscalls.REFUSED_WITH.get(name, errno.EPERM)

    assert len(refused) > 750
    assert run(wrong, plan=world.plan(), uid=uid) == "ok: {}"


def test_without_landlock_an_optional_lock_is_reported_as_failed(world):
    plan = world.plan(required=("seccomp",))

    def report():
        return confine(plan, highest_abi=0).failed

    expected = {"landlock": "this OS kernel has no Landlock, or it is not switched on"}
    assert run(report, plan=None, uid=os.getuid()) == f"ok: {expected}"


def test_a_second_thread_ends_it(world):
    def with_thread():
        hold = threading.Event()
        threading.Thread(target=hold.wait, daemon=True).start()
        confine(world.plan())

    expected = "ConfineError: process: 2 threads exist, locks reach only one"
    assert run(with_thread, plan=None, uid=os.getuid()) == expected


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        (Plan(locks=("moat",)), "moat: no such lock"),
        (Plan(required=("seccomp",)), "seccomp: required, but not planned"),
    ],
)
def test_a_plan_that_can_not_be_kept_ends_it(plan, why):
    with pytest.raises(ConfineError) as caught:
        confine(plan)

    assert str(caught.value) == why


def test_an_empty_plan_takes_nothing():
    report = confine(Plan())

    assert (report.achieved, report.failed) == ({}, {})


def test_no_capability_is_left(world, uid):
    assert (
        run(lambda: process.held_capabilities(MACHINE), plan=world.plan(), uid=uid)
        == "ok: (0, 0, 0)"
    )


def test_limits_are_hard_and_cores_are_off(world, uid):
    def limits():
        return resource.getrlimit(resource.RLIMIT_NOFILE), resource.getrlimit(resource.RLIMIT_CORE)

    plan = world.plan(limits=Limits(max_open_files=399))

    assert run(limits, plan=plan, uid=uid) == "ok: ((399, 399), (0, 0))"


def test_what_may_be_locked_in_memory_or_run_first_is_not_to_become_more(world, uid):
    def limits():
        which = (resource.RLIMIT_MEMLOCK, resource.RLIMIT_NICE, resource.RLIMIT_RTPRIO)
        return [soft == hard for soft, hard in map(resource.getrlimit, which)]

    def lowered():
        soft, hard = 4096, resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (soft, hard))
        confine(world.plan())
        return limits()

    assert run(lowered, plan=None, uid=uid) == "ok: [True, True, True]"


def test_the_first_stack_grows_no_more_than_the_limit_of_memory_counts(world, uid):
    plan = world.plan(limits=Limits(memory_max_bytes=1 << 30))
    soft = min(resource.getrlimit(resource.RLIMIT_STACK)[0], 1 << 30)
    soft = 1 << 30 if soft == resource.RLIM_INFINITY else soft

    outcome = run(lambda: resource.getrlimit(resource.RLIMIT_STACK), plan=plan, uid=uid)

    assert outcome == f"ok: ({soft}, {soft})"


def test_a_stack_is_lowered_to_its_limit_and_raised_by_none(world, uid):
    def stack(limit):
        resource.setrlimit(resource.RLIMIT_STACK, (8 << 20, resource.RLIM_INFINITY))
        confine(world.plan(limits=Limits(stack_max_bytes=limit)))
        return resource.getrlimit(resource.RLIMIT_STACK)

    assert run(lambda: stack(1 << 20), plan=None, uid=uid) == f"ok: {(1 << 20, 1 << 20)}"
    assert run(lambda: stack(64 << 20), plan=None, uid=uid) == f"ok: {(8 << 20, 8 << 20)}"


def test_a_limit_above_the_hard_one_stays_at_the_hard_one(world, uid):
    # What other tests have left open in this process is inherited.
    hard = 128 + max(map(int, os.listdir("/proc/self/fd")))

    def limited():
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        confine(world.plan(limits=Limits(max_open_files=65536)))
        return resource.getrlimit(resource.RLIMIT_NOFILE)

    assert run(limited, plan=None, uid=uid) == f"ok: {(hard, hard)}"


def test_a_link_put_in_a_roots_place_grants_nothing(world, uid):
    """An earlier guest swaps a granted folder for a link to what it wants to read."""
    (world.scratch / "root").symlink_to(world.outside)
    root, roots = world.scratch / "root", world.plan().read_roots

    try:
        for granted in (root, root / "file"):
            plan = world.plan(read_roots=(*roots, str(granted)))
            assert run((root / "file").read_text, plan=plan, uid=uid) == "EACCES", granted
    finally:
        root.unlink()


def test_an_absent_root_is_reported_and_grants_nothing(world):
    plan = world.plan(read_roots=(*world.plan().read_roots, "/nonexistent/place"))

    outcome = run(lambda: confine(plan).achieved["landlock"], plan=None, uid=os.getuid())

    assert outcome.endswith(", 1 roots absent")


def test_descriptors_that_are_not_kept_are_closed():
    def survivors():
        for fd in (500, 900):
            os.dup2(0, fd)
        close_inherited({*range(400), 500})  # the child answers through a pipe below 400
        return [fd for fd in (500, 900) if Path(f"/proc/self/fd/{fd}").exists()]

    assert run(survivors, plan=None, uid=os.getuid()) == "ok: [500]"


@pytest.mark.parametrize(
    ("version", "fs", "words"),
    [(1, 13, 1), (2, 14, 1), (3, 15, 1), (4, 15, 2), (5, 16, 2), (6, 16, 3), (7, 16, 3)],
)
def test_every_right_that_an_abi_knows_is_handled(version, fs, words):
    handle = landlock.handled(version, network=False)

    assert handle.fs == (1 << fs) - 1
    assert len(handle.packed) == 8 * words
    assert struct.unpack_from("=Q", handle.packed)[0] == handle.fs


def test_tcp_is_left_alone_where_the_network_is_allowed():
    assert landlock.handled(7, network=True).net == 0
    assert landlock.handled(7, network=False).net == 0b11


def test_each_place_has_the_rights_that_it_needs_and_no_others():
    places = {
        "read_roots": ("/read",),
        "listed": ("/listed",),
        "write_roots": ("/write",),
        "staged_roots": ("/staged",),
        "device_files": ("/dev/null", "/dev/zero"),
    }
    reading = landlock.READ_FILE | landlock.READ_DIR
    made = landlock.MAKE_DIR | landlock.MAKE_REG | landlock.MAKE_SYM | landlock.REFER
    gone = landlock.REMOVE_DIR | landlock.REMOVE_FILE | landlock.TRUNCATE
    writing = reading | landlock.WRITE_FILE | made | gone
    expected = {
        "/read": reading,
        "/listed": landlock.READ_DIR,
        "/write": writing,
        "/staged": writing,
        "/dev/null": landlock.READ_FILE | landlock.WRITE_FILE | landlock.TRUNCATE,
        "/dev/zero": landlock.READ_FILE,
    }
    assert dict(landlock.grants(Plan(**places))) == expected
    with_programs = dict(landlock.grants(Plan(**places, subprocess=True)))
    programs = landlock.MAKE_FIFO | landlock.EXECUTE
    written = dict.fromkeys(("/write", "/staged"), writing | programs)
    assert with_programs == expected | written | {"/read": reading | landlock.EXECUTE}
    assert landlock.handled(7, network=False).scopes == 0b11
