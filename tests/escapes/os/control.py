"""Runs programs unconfined, one forked child each: the positive controls.

Reads a line of JSON, {"source": ..., "world": ...}, answers with a line of JSON: the outcome.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

# So that no child has to import what they all do.
exec(Path(__file__).with_name("prelude.py").read_text(), {})

PATIENCE = 10


def child(request, out):
    try:
        os.setsid()
        scope = {"__name__": "program"}
        exec(compile(request["source"], "program", "exec"), scope)
        said = scope["outcome"](scope["attack"], request["world"])
        os.write(out, json.dumps(said).encode())
    finally:
        os._exit(0)


def answer(request):
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        child(request, theirs)
    os.close(theirs)
    status = ended(pid)
    said = os.read(ours, 65536)
    os.close(ours)
    return json.loads(said) if said else status


def ended(pid):
    """Wait for a child, and say how it ended; one that is stopped or takes long is killed."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        found, status = os.waitpid(pid, os.WUNTRACED | os.WNOHANG)
        if found and not os.WIFSTOPPED(status):
            return f"ended with status {status}"
        if found:
            break
        time.sleep(0.001)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return "stopped" if found else "took too long"


for line in sys.stdin:
    print(json.dumps(answer(json.loads(line))), flush=True)
