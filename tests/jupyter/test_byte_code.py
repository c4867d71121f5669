"""What a guest had to compile is kept by its kernel: the next one finds byte code."""

import importlib.util
import os
from pathlib import Path

import pytest

from cellblock.guest import tracebacks
from support import processes

KEPT = Path(importlib.util.cache_from_source(tracebacks.__file__))


@pytest.mark.skipif(not os.access(KEPT.parent, os.W_OK), reason="another user's installation")
def test_the_next_kernel_finds_byte_code_of_what_a_guest_had_to_compile(start):
    KEPT.unlink(missing_ok=True)
    kernel = start()
    kernel.run("x = 1")
    processes.until(KEPT.exists, 60)
