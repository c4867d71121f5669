"""The audit hook alone: guards and source check are off, and user code holds the real things."""

import errno
import os
import socket
import sys

import pytest

from cellblock.guest.channel import Channel
from cellblock.wire import frames, messages
from support import guarded

SETUP = (
    "import os, sys, types, gc, io, socket, subprocess, ctypes, marshal, pickle, asyncio, mmap\n"
)
SETUP += "import functools, importlib, signal, shutil, threading, glob, urllib.request\n"
SETUP += "def f(): return 1\ndef g(): yield\nasync def c(): pass\n"
SETUP += "try: 1/0\nexcept ZeroDivisionError as e: tb = e.__traceback__\n"

#: Python's module of other interpreters in the process.
INTERPRETERS = "_xxsubinterpreters" if sys.version_info < (3, 13) else "_interpreters"

#: Program to operation. ``@@SSH@@`` is a secret, ``@@WDIR@@`` a folder that cells may not touch.
#: What honest cells may lead to is an exception; whatever else ends the process.
REFUSED = {
    'open("@@SSH@@").read()': "open",
    'io.FileIO("@@SSH@@").read()': "open",
    'io.open_code("@@SSH@@").read()': "open",
    'os.open("@@SSH@@", 0)': "open",
    'open(os.__file__, "a")': "open",
    # Out of a folder of the installation, which may be read.
    'open(os.path.dirname(os.__file__) + "/.." * 20 + "@@SSH@@").read()': "open",
    'open(os.fsencode(os.path.dirname(os.__file__)) + b"/json" + b"/.." * 20 + b"@@SSH@@")': "open",
    'os.listdir(os.path.dirname(os.__file__) + "/..")': "os.listdir",
    'await asyncio.to_thread(open, "@@SSH@@")': "open",
    'functools.reduce(lambda a, b: b, map(open, ["@@SSH@@"]))': "open",
    'os.listdir("/")': "os.listdir",
    'next(os.scandir("/"))': "os.scandir",
    'os.mkdir("@@WDIR@@/x")': "os.mkdir",
    'os.remove("@@WDIR@@/x")': "os.remove",
    'os.rename("@@WDIR@@", "@@WDIR@@y")': "os.rename",
    'os.chmod("@@WDIR@@", 0o700)': "os.chmod",
    'os.truncate("@@SSH@@", 1)': "os.truncate",
    'os.symlink("a", "@@WDIR@@/x")': "os.symlink",
    'shutil.copyfile("@@SSH@@", "@@WDIR@@/x")': "shutil.copyfile",
    'shutil.rmtree("@@WDIR@@")': "shutil.rmtree",
    'glob.glob("/*")': "glob.glob",
    "mmap.mmap(-1, 10)": "mmap.__new__",
    "sys.modules.pop('ctypes'); import ctypes": "import",
    f"sys.modules.pop({INTERPRETERS!r}); import {INTERPRETERS}": "import",
}
BREACHES = {
    "socket.socket()": "socket.__new__",
    'socket.getaddrinfo("localhost", 1)': "socket.getaddrinfo",
    "socket.gethostname()": "socket.gethostname",
    'socket.create_connection(("127.0.0.1", 9))': "socket.getaddrinfo",
    'urllib.request.urlopen("http://127.0.0.1:9")': "urllib.Request",
    'subprocess.run(["true"])': "subprocess.Popen",
    'subprocess.Popen("true", shell=True)': "subprocess.Popen",
    'os.system("true")': "os.system",
    'os.posix_spawn("/bin/true", ["true"], {})': "os.posix_spawn",
    "os.fork() or os._exit(0)": "os.fork",
    "os.kill(os.getpid(), 0)": "os.kill",
    "ctypes.CDLL(None)": "ctypes.dlopen",
    "ctypes.c_int.from_address(id(1))": "ctypes.cdata",
    "ctypes.string_at(id(1), 4)": (
        "ctypes.string_at" if sys.version_info < (3, 14) else "ctypes.call_function"
    ),
    "types.FunctionType(f.__code__, {})": "function.__new__",
    "f.__code__ = f.__code__": "object.__setattr__",
    "pickle.loads(b'cos\\nuname\\n.')": "pickle.find_class",
    "gc.get_objects()": "gc.get_objects",
    "gc.get_referrers(f)": "gc.get_referrers",
    "gc.get_referents(f)": "gc.get_referents",
    "sys._current_frames()": "sys._current_frames",
    "sys.addaudithook(print)": "sys.addaudithook",
    "sys.settrace(print)": "sys.settrace",
    "signal.pthread_kill(threading.get_ident(), 0)": "signal.pthread_kill",
}
if sys.version_info < (3, 13):  # later ones do not say so, but their module is not imported
    # It would have no hook.
    BREACHES[f"sys.modules[{INTERPRETERS!r}].create()"] = "cpython.PyInterpreterState_New"
OPERATIONS = REFUSED | BREACHES


def caught(program):
    return (
        f"{SETUP}try:\n    {program}\nexcept BaseException as error:\n"
        "    print('CAUGHT', error)\nelse:\n    print('WENT ' + 'ON')\n"
    )


def ran(folder, *, arm):
    world = guarded.World(folder)
    programs = [
        guarded.Program(str(number), (caught(program),))
        for number, program in enumerate(OPERATIONS)
    ]
    results = world.run(programs, check=False, guards=False, arm=arm, layer=True)
    return zip(OPERATIONS.items(), results.values(), strict=True)


def test_an_operation_is_refused_or_ends_the_process_where_the_hook_is(tmp_path):
    for (program, operation), result in ran(tmp_path, arm=True):
        if program in BREACHES:
            assert result["error"] == ["stopped", operation], program
        else:
            assert f"CAUGHT operation-not-allowed: {operation} is refused" in result["out"], program
        assert "WENT ON" not in result["out"], program
        assert result["files"] == [], program


def test_positive_control_without_the_hook_it_is_not(tmp_path):
    for (program, _), result in ran(tmp_path, arm=False):
        assert result["error"] is None, (program, result)
        assert "operation-not-allowed" not in result["out"], (program, result)


def test_a_guests_own_system_calls_are_no_breach_not_even_those_that_fail(tmp_path):
    code = (
        "from cellblock.guest.confine import libc, process\nprocess.set_name('snapshot')\n"
        "try: libc.prctl(-1)\nexcept OSError as error: print('FAILED', error.errno)\n"
    )
    program = guarded.Program("own", (code,))
    result = guarded.World(tmp_path).run([program], check=False, guards=False, layer=True)["own"]
    assert (result["error"], result["out"]) == (None, f"FAILED {errno.EINVAL}\n")


@pytest.mark.parametrize("locked", [False, True])
def test_the_last_words_of_a_guest_are_sent_before_it_ends(locked, monkeypatch):
    ours, theirs = socket.socketpair()
    if pid := os.fork():
        theirs.close()
        got = ours.makefile("rb").read()
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1
        said = bytes(frames.encode(messages.Breach(operation="open")))
        assert got == (b"" if locked else said)
        return
    try:
        monkeypatch.setattr("cellblock.guest.channel._TIMEOUT", 0.05)
        channel = Channel(theirs)
        if locked:  # in the middle of a frame
            channel._lock.acquire()
        channel.send_and_exit(messages.Breach(operation="open"))
    finally:
        os._exit(3)
