"""A program that holds what the OS kernel locks for it holds up no one but itself."""

import contextlib
import os
import threading
from pathlib import Path

from support import processes, reading

#: A process that executes a program holds a lock until its memory is freed, here for minutes: it
#: has the processor where nobody else wants it, and others do. A cell comes to that by many more
#: processes only: its priority is the test's to lower.
STARVED = """
import os, subprocess, sys
cpu = {min(os.sched_getaffinity(0))}
ready, begun = os.pipe()
victim = os.fork()
if victim == 0:
    held = bytearray(b'x') * 400_000_000
    spin = 'import os; os.sched_setaffinity(0, {cpu}); print(flush=True)\\nwhile True: pass'.replace('{cpu}', str(cpu))
    spinners = [subprocess.Popen([sys.executable, '-c', spin], stdout=-1) for _ in range(8)]
    for each in spinners: each.stdout.readline()
    os.sched_setaffinity(0, cpu)
    os.write(begun, b'1')
    while os.sched_getscheduler(0) != os.SCHED_IDLE: os.sched_yield()
    os.execv('/bin/true', ['true'])
os.read(ready, 1)
print(victim)
"""


def holds(pid):
    """Return whether who reads a process's stat has waited for a second by now."""

    def read():
        with contextlib.suppress(OSError):
            Path(f"/proc/{pid}/stat").read_bytes()

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    thread.join(1)
    return thread.is_alive()


def test_a_program_kept_from_the_processor_while_it_begins_holds_up_nobody(start_tight):
    """The host reads what it takes, and the zygote looks at who shares a shell's memory."""
    kernel = start_tight(
        subprocess_execution=True, memory_max_bytes=4 << 30, cpu_seconds=600, timeout=600
    )
    _, published = kernel.run(STARVED)
    victim = int(reading.stream(published))
    os.sched_setscheduler(victim, os.SCHED_IDLE, os.sched_param(0))
    assert processes.until(lambda: holds(victim), 60)
    _, published = kernel.run("import time; time.sleep(0.5)\n!dash -c 'echo 1 | cat'")
    assert holds(victim), "the lock was not held long enough"
    assert reading.stream(published).strip() == "1"
