"""Cells on a real GPU of NVIDIA's (``make gpu``): skipped on a machine that has none.

By CUDA's driver alone, so that nothing has to be installed but that. Everything that needs no GPU
is in ``backends/test_devices.py``.
"""

from pathlib import Path

import pytest

from cellblock.backends import devices
from support import machines, reading
from support.kernels import Kernel, argv_for, world_and_prefix
from support.reading import value

pytestmark = pytest.mark.skipif(
    not devices.find(("nvidia:0",)).devices, reason="this machine has no GPU of NVIDIA's"
)

CALLS = (Path(__file__).parent / "driver_calls.py").read_text()
OUT_OF_MEMORY = 2
#: A cell so long that its reply waits for its copy.
LONG = "import time; time.sleep(0.6)"


@pytest.fixture(params=machines.places(), ids=" under ".join)
def place(request):
    return request.param


@pytest.fixture
def start(place):
    """Return what starts a kernel under mode unsafe and a policy's text."""
    user, backend = place
    started = []

    def begin(text):
        world, prefix = world_and_prefix(
            f"{user} in namespaces" if backend == "bubblewrap" else user
        )
        world.backend = backend
        policy = world.policy(f'extends = "unsafe"\nbackend = "{backend}"\n{text}')
        kernel = Kernel(argv_for(policy, "--allow-unsafe"), world=world, prefix=prefix)
        kernel.own_world = True
        started.append(kernel)
        kernel.wait_heard()
        kernel.run(CALLS)
        return kernel

    yield begin
    for kernel in started:
        kernel.close()


def test_a_matmul_in_the_gpu_limits_and_what_a_kill_costs(start):
    kernel = start('devices = ["nvidia:0"]\nmemory_max_bytes = "4 GiB"')
    kernel.run(f"kept = 1\n{LONG}")
    reply, published = kernel.run("gpu = Gpu()")
    assert reply["status"] == "ok", reply
    matrix = "[float(number % 7) for number in range(64 * 64)]"
    code = f"m = {matrix}\nproduct = gpu.multiplied(m, m)\n"
    code += "product == [float(sum(m[i * 64 + k] * m[k * 64 + j] for k in range(64)))"
    code += " for i in range(64) for j in range(64)]"
    assert value(kernel, code) is True

    reply, _ = kernel.run("gpu.allocate(1 << 44)")
    assert (reply["ename"], str(OUT_OF_MEMORY) in reply["evalue"]) == ("CudaError", True)
    reply, _ = kernel.run("bytearray(8 << 30)")
    assert reply["ename"] == "MemoryError"
    assert value(kernel, "len(gpu.multiplied(m, m))") == 64 * 64  # it goes on

    reply, _ = kernel.run("%checkpoint late")
    assert "a device is in use" in reply["evalue"]
    _, published = kernel.run("import os; os.kill(os.getpid(), 9)")
    (card,) = reading.cards(published, "outcome")
    assert (card["reason"], card["state"]) == ("crashed", "restored")
    assert value(kernel, "kept") == 1
    kernel.run(CALLS)
    assert value(kernel, "len(Gpu().multiplied([1.0] * 4, [2.0] * 4))") == 4


def test_a_session_without_the_device_does_not_see_it(start):
    granted, other = start('devices = ["nvidia:0"]'), start("")
    assert granted.run("gpu = Gpu()")[0]["status"] == "ok"
    reply, _ = other.run("Gpu()")
    assert reply["ename"] in {"CudaError", "OSError"}, reply
    reply, _ = other.run("open('/dev/nvidiactl', 'rb')")
    assert reply["ename"] in {"PermissionError", "FileNotFoundError"}


def test_a_gpu_that_is_not_granted_is_not_opened(start):
    if not devices.find(("nvidia:1",)).devices:
        pytest.skip("this machine has one GPU")
    kernel = start('devices = ["nvidia:0"]')
    reply, _ = kernel.run("open('/dev/nvidia1', 'rb')")
    assert reply["ename"] in {"PermissionError", "FileNotFoundError"}
