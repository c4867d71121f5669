"""The devices of a policy that this machine has, and what their drivers' libraries read.

A node is resolved once, here: its links are followed. Whether a policy may grant it depends on the
device's number, whatever the node is called. The guest grants the node only if a device of that
number is still there (``guest.confine.landlock``).

The requests (ioctl(2)) of a driver are known if the driver is in ``FAMILIES``. A device of another
driver can only be read, written and mapped.
"""

from __future__ import annotations

import glob
import os
import re
import stat
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from cellblock.policy.devices import DRI, FOLDER, NVIDIA, nvidia_number, refused_driver
from cellblock.wire.messages import Device

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cellblock.policy.model import Policy

#: The family of a driver's requests, by the driver's name in /proc/devices.
FAMILIES: Final = {
    "accel": "dri",
    "drm": "dri",
    "kfd": "kfd",
    "nvidia": "nvidia",
    "nvidia-caps": "nvidia",
    "nvidia-frontend": "nvidia",
    "nvidia-modeset": "nvidia",
    "nvidia-uvm": "nvidia",
    "nvidiactl": "nvidia",
}
#: The devices that NVIDIA's driver needs beside those of GPUs.
_CONTROL: Final = (
    "/dev/nvidia-modeset",
    "/dev/nvidia-uvm",
    "/dev/nvidia-uvm-tools",
    "/dev/nvidiactl",
)
_BY_PATH: Final = "/dev/dri/by-path"
_GPU: Final = re.compile(r"/dev/nvidia[0-9]+", re.ASCII)
_CAPS: Final = "/dev/nvidia-caps/nvidia-cap"
#: The capabilities that are never granted: to divide every GPU of the machine, and to watch all.
_CAPS_OF_ALL: Final = (1, 2)
_MIG: Final = "/proc/driver/nvidia/capabilities/gpu{}/mig"
_CAP_NUMBER: Final = re.compile(r"^DeviceFileMinor: *(\d+)$", re.MULTILINE | re.ASCII)

#: What cells may read with NVIDIA's devices, with the reason. Folders of libraries are readable
#: anyway.
NVIDIA_FILES: Final[tuple[tuple[str, str], ...]] = (
    ("/etc/OpenCL", "OpenCL's drivers"),
    ("/etc/vulkan", "Vulkan's drivers"),
    ("/proc/devices", "libcuda: the numbers of the driver's devices"),
    ("/proc/driver/nvidia", "libcuda: the driver's version, its parameters, the GPUs"),
    ("/proc/driver/nvidia-uvm", "as /proc/driver/nvidia"),
    ("/proc/modules", "libcuda: whether the driver is loaded"),
    ("/proc/sys/vm/mmap_min_addr", "libcuda: the lowest address"),
    ("/usr/local/cuda", "the CUDA toolkit's libraries"),
    ("/usr/local/nvidia", "the driver's libraries, in containers"),
    ("/usr/share/glvnd", "OpenGL's drivers"),
    ("/usr/share/nvidia", "settings of the driver's libraries"),
    ("/usr/share/vulkan", "Vulkan's drivers"),
)
#: What cells may read with devices that render.
DRI_FILES: Final[tuple[tuple[str, str], ...]] = (
    ("/etc/OpenCL", "OpenCL's drivers"),
    ("/etc/vulkan", "Vulkan's drivers"),
    ("/usr/share/drirc.d", "Mesa's settings"),
    ("/usr/share/glvnd", "OpenGL's drivers"),
    ("/usr/share/libdrm", "names of GPUs"),
    ("/usr/share/vulkan", "Vulkan's drivers"),
)
#: The files in sysfs that describe a device. Its memory lies in the same folder, and is not here.
_FACTS: Final = (
    *("class", "device", "local_cpulist", "local_cpus", "numa_node", "revision"),
    *("subsystem_device", "subsystem_vendor", "uevent", "vendor"),
)
_OF_FAMILY: Final = {"nvidia": NVIDIA_FILES, "dri": DRI_FILES, "kfd": DRI_FILES}
#: The topology of AMD's GPUs, by which ROCm finds them.
_TOPOLOGY: Final = "/sys/devices/virtual/kfd/kfd/topology"


class Found(NamedTuple):
    """The devices that the entries of a policy stand for on this machine."""

    devices: tuple[Device, ...] = ()
    #: Entries without a device here, or without one that this user may open.
    missing: tuple[str, ...] = ()
    #: Entries that no policy may have, each with the reason.
    refused: tuple[tuple[str, str], ...] = ()
    #: Paths of devices whose drivers' requests are not known.
    without_requests: tuple[str, ...] = ()


def find(entries: Iterable[str]) -> Found:
    """Return the devices that the entries of the field ``devices`` stand for here."""
    devices, missing, refused = dict[str, Device](), list[str](), list[tuple[str, str]]()
    for entry in entries:
        at_entry = dict[str, Device]()
        for path in _nodes(entry):
            outcome = _look_at(path)
            if isinstance(outcome, str):
                refused.append((entry, outcome))
            elif outcome is not None:
                at_entry[path] = outcome
        if at_entry.keys() - {*_CONTROL}:
            devices |= {device.path: device for device in at_entry.values()}
        elif entry not in dict(refused):
            missing.append(entry)
    without_requests = tuple(device.path for device in devices.values() if not device.requests)
    return Found(tuple(devices.values()), tuple(missing), tuple(refused), without_requests)


def granted(policy: Policy) -> tuple[Device, ...]:
    """Return the devices that guests get. Raises PolicyError for one that no policy may grant."""
    local_devices = find(policy.devices)
    for entry, why in local_devices.refused:
        raise policy.error(why, "devices", entry, "Remove the entry.")
    return local_devices.devices


def files(policy: Policy) -> Iterator[str]:
    """Yield the paths that the drivers' libraries read, with links not followed."""
    for device in find(policy.devices).devices:
        yield from (path for path, _ in _OF_FAMILY.get(device.requests, ()))
        if device.requests:
            folder = f"/sys/dev/char/{device.major}:{device.minor}/device"
            yield from filter(os.path.exists, (f"{folder}/{fact}" for fact in _FACTS))
        if device.requests == "kfd":
            yield _TOPOLOGY


# --- nodes ----------------------------------------------------------------------------------------


def _nodes(entry: str) -> Iterator[str]:
    """Yield the paths that an entry may stand for."""
    number = nvidia_number(entry)
    if entry == DRI:
        yield from sorted(glob.glob("/dev/dri/*"))
    elif entry == NVIDIA:
        yield from sorted(filter(_GPU.fullmatch, glob.glob("/dev/nvidia[0-9]*")))
        yield from _CONTROL
        yield from sorted(path for path in glob.glob(f"{_CAPS}[0-9]*") if not _is_of_all(path))
    elif number is not None:
        yield f"/dev/nvidia{number}"
        yield from _CONTROL
        yield from sorted(path for path in _caps_of(number) if not _is_of_all(path))
    else:
        yield entry


def _is_of_all(cap: str) -> bool:
    return cap in {f"{_CAPS}{number}" for number in _CAPS_OF_ALL}


def _caps_of(number: int) -> Iterator[str]:
    """Yield the nodes of the instances that a GPU is divided into."""
    for pattern in ("gi*/access", "gi*/ci*/access"):
        for path in glob.glob(f"{_MIG.format(number)}/{pattern}"):
            try:
                match = _CAP_NUMBER.search(Path(path).read_text(encoding="ascii"))
            except (OSError, ValueError):
                continue
            if match is not None:
                yield f"{_CAPS}{match[1]}"


def _look_at(path: str) -> Device | str | None:
    """Return the device at a path, or why no policy may grant it; None without a device."""
    real = os.path.realpath(path)
    try:
        fd = os.open(real, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        status = os.fstat(fd)
        may_open = os.access(f"/proc/self/fd/{fd}", os.R_OK)
    finally:
        os.close(fd)
    if stat.S_ISDIR(status.st_mode) and path == _BY_PATH:
        return None  # links to the others
    if not stat.S_ISCHR(status.st_mode) or not real.startswith(FOLDER):
        return "it is not a character device below /dev"
    major, minor = os.major(status.st_rdev), os.minor(status.st_rdev)
    drivers = _drivers(major, minor)
    if why := next(filter(None, map(refused_driver, drivers)), None):
        return why
    if not (drivers and may_open):
        return None
    family = next((FAMILIES[driver] for driver in drivers if driver in FAMILIES), "")
    return Device(path=real, major=major, minor=minor, requests=family)


#: The major numbers that several drivers share.
_MEMORY, _MISC = 1, 10
#: The devices of the major number 1, by minor number (drivers/char/mem.c).
_MEMORY_DEVICES: Final = {
    1: "mem",
    2: "kmem",
    3: "null",
    4: "port",
    5: "zero",
    7: "full",
    8: "random",
    9: "urandom",
    11: "kmsg",
    12: "oldmem",
}
_LINE: Final = re.compile(r"^ *(\d+) (.+)$", re.MULTILINE | re.ASCII)


def _drivers(major: int, minor: int) -> tuple[str, ...]:
    """Return the names of the drivers of a device number, as far as the OS kernel lists them."""
    if major == _MEMORY:
        return tuple(filter(None, [_MEMORY_DEVICES.get(minor)]))
    if major == _MISC:
        return _named(_read("/proc/misc"), minor)
    return _named(_read("/proc/devices").partition("Block devices:")[0], major)


@lru_cache(maxsize=8)
def _named(text: str, number: int) -> tuple[str, ...]:
    return tuple(
        name.strip() for line_number, name in _LINE.findall(text) if int(line_number) == number
    )


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
