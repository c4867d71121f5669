"""What is written after a fork is copied, and kept by the copy: errors and cells write to little."""

import time

from cellblock.host.limits.processes import page_faults
from support import reading

ERROR = "def f(x):\n    return g(x)\ndef g(x):\n    return x / 0\nf(1)"
LONG = "\n".join(f"v{n} = {n} * 2 + len('{n}')" for n in range(3000))
#: Has whoever asks for the file of each module there is leave a trace.
WATCHED = """
import sys, types
class Watched(types.ModuleType):
    asked = 0
    @property
    def __file__(self):
        Watched.asked += 1
        return "/nowhere.py"
sys.modules["watched"] = Watched("watched")
"""


def idle():
    time.sleep(0.3)


def test_an_error_writes_to_few_pages(start):
    """A traceback that had everything made anew wrote to 1650 of 4 KiB; the rest takes 1000."""
    kernel, took = start("safe"), []
    for _ in range(6):
        guest = kernel.guest()
        before = page_faults(guest)
        kernel.run(ERROR)
        took.append(page_faults(guest) - before)
        idle()
    assert min(took) < 1400


def test_an_error_looks_through_no_modules(start):
    kernel = start("unsafe", "--allow-unsafe")
    kernel.run(WATCHED)
    kernel.run(ERROR)
    assert reading.result(kernel.run("Watched.asked")[1]) == "0"


def test_a_long_cell_is_let_go_of_before_the_copy_is_made(start):
    """Its tree would be what the guest gives back, page by page, while the copy holds it: 3500."""
    kernel = start("safe")
    kernel.run("x = 1")
    guest = kernel.guest()
    assert kernel.run(LONG)[0]["status"] == "ok"
    ended = page_faults(guest)
    idle()
    assert kernel.guest() == guest
    assert page_faults(guest) - ended < 1500
