"""Guests in namespaces of their own, whoever made these: what each of them sees, and how it ends."""

import os
import signal
import sys
import time
from pathlib import Path

from support import processes, reading
from support.reading import value

ROOTS = """filesystem_read_roots = ["{{scratch}}", "{open}"]
filesystem_write_roots = ["{{scratch}}", "{open}/written"]
read_deny_paths = ["{open}/secrets", "{open}/token"]
"""
#: stat(2) by the C library, which no guard of the interpreter's sees: paths to errno, 0 if there.
STAT = """import ctypes, errno
libc, room = ctypes.CDLL(None, use_errno=True), ctypes.create_string_buffer(512)
def stat(path):
    return 0 if libc.lstat(path.encode(), room) == 0 else ctypes.get_errno()
"""


def policy_of(world, text):
    """Make a folder with secrets in it; return a policy that opens it, and has this text."""
    opened = world.root / "open"
    for folder in (opened, opened / "secrets", opened / "written", world.root / "closed"):
        folder.mkdir()
        world.give(folder)
    for name in ("plain", "token", "secrets/key", "../closed/name"):
        (opened / name).write_text(name)
    return world.policy(f'extends = "unsafe"\n{text}\n{ROOTS.format(open=opened)}')


def refused(kernel, code):
    reply, _ = kernel.run(code)
    assert reply["status"] == "error", reply
    return reply["ename"]


def patiently(kernel, code):
    """Run a cell until no loss was told instead: it may have come in between."""
    for _ in range(5):
        reply, published = kernel.run(code)
        if reply["status"] == "ok":
            return reading.result(published)
    raise AssertionError(reply)


def emptied(folder):
    """Return what is left in a folder in the end."""
    deadline = time.monotonic() + 5.0
    while (left := os.listdir(folder)) and time.monotonic() < deadline:  # noqa: PTH208
        time.sleep(0.01)
    return left


def devices(kernel):
    """Return the names of the guest's network devices."""
    lines = Path(f"/proc/{kernel.guest()}/net/dev").read_text().splitlines()
    return {line.partition(":")[0].strip() for line in lines if ":" in line}


class Apart:
    """Tests of ``kernel``, a fixture; its ``zygote`` is the first process in its namespaces."""

    def test_names_outside_the_roots_do_not_exist(self, kernel):
        root = kernel.world.root
        outside = [root / "closed", root / "closed/name", root / "run", root / "home", kernel.file]
        names = [*map(str, outside), "/etc/passwd", "/etc/shadow", "/var/log", "/boot", "/usr/sbin"]
        assert all(os.path.lexists(name) for name in names)
        seen = value(kernel, f"{STAT}{{name: stat(name) for name in {names!r}}}")
        assert seen == dict.fromkeys(names, 2)  # ENOENT
        inside = [str(root / "open/plain"), str(root / "open/written"), "/usr/lib", sys.executable]
        assert value(kernel, f"[stat(name) for name in {inside!r}]") == [0] * len(inside)

    def test_proc_shows_the_guests_processes_alone(self, kernel):
        code = f"{STAT}[pid for pid in range(1, 70_000) if stat(f'/proc/{{pid}}') == 0]"
        shown = value(kernel, code)
        known = sum(map(processes.threads, processes.tree(kernel.zygote())))
        # Threads can be asked for as well, and its snapshots have come and gone while it looked.
        assert shown[0] == 1
        assert len(shown) <= known + 8
        assert value(kernel, "import os\nos.getppid()") == 1

    def test_denied_paths_are_empty_and_what_is_beside_them_is_not(self, kernel):
        opened = kernel.world.root / "open"
        assert (opened / "secrets/key").read_text() == "secrets/key"
        code = f"{STAT}[stat({str(opened)!r} + name) for name in ('/secrets/key', '/plain')]"
        assert value(kernel, code) == [2, 0]
        assert value(kernel, f"open({str(opened / 'plain')!r}).read()") == "plain"
        for name in ("token", "secrets/key"):
            named = refused(kernel, f"open({str(opened / name)!r}).read()")
            assert named in {"PermissionError", "FileNotFoundError"}, name

    def test_what_may_be_written_is_written_where_everybody_sees_it(self, kernel):
        written = kernel.world.root / "open/written/note"
        assert value(kernel, f"open({str(written)!r}, 'w').write('from a cell')") == 11
        assert written.read_text() == "from a cell"
        named = refused(kernel, f"open({str(kernel.world.root / 'open/plain')!r}, 'w')")
        assert named in {"PermissionError", "OSError"}

    def test_a_killed_guest_costs_nothing_and_undo_steps_back(self, kernel):
        kernel.run("kept = [1]")
        kernel.run("kept.append(2)")
        for _ in range(3):
            os.kill(kernel.sole_guest(), signal.SIGKILL)
            shown = kernel.until(lambda m: m["msg_type"] == "display_data")
            (card,) = reading.cards(shown, "outcome")
            # By its exit status, of which the zygote tells in its own numbers.
            assert (card["reason"], card["state"]) == ("crashed", "restored")
            assert patiently(kernel, "kept") == "[1, 2]"
        kernel.run("kept.append(3)")
        reply, _ = kernel.run("%undo")
        assert reply["status"] == "ok", reply
        assert value(kernel, "kept") == [1, 2]

    def test_what_a_cell_takes_is_seen_from_outside(self, kernel):
        kernel.run("block = bytearray(64 << 20)\nblock[::4096] = block[::4096]")
        _, published = kernel.run("%usage")
        (card,) = reading.cards(published, "usage")
        assert max(cell["peak_memory_bytes"] for cell in card["cells"]) > 64 << 20

    def test_an_interrupt_reaches_the_cell(self, kernel):
        mid = kernel.execute_send("print('go', flush=True)\nwhile True: pass")
        kernel.until(lambda m: m["msg_type"] == "stream", mid)
        kernel.interrupt()
        assert kernel.reply(mid)["content"]["ename"] == "KeyboardInterrupt"
        kernel.until_idle(mid)
