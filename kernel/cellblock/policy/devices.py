"""Devices that a policy names: ``devices``.

An entry is ``nvidia`` or ``nvidia:0`` (GPUs, with the devices that their driver needs beside them),
``dri`` (devices that render), or the path of a character device below /dev. This module knows how
entries are written, which entries cover others, and which devices no policy may grant. It does not
look at the machine: ``backends.devices`` finds the devices, and checks their drivers' names here.
"""

from __future__ import annotations

import os
import re
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

#: The entries for all GPUs of NVIDIA's driver, and for all devices that render.
NVIDIA: Final = "nvidia"
DRI: Final = "dri"
FOLDER: Final = "/dev/"
_NUMBERED: Final = re.compile(r"nvidia:(0|[1-9][0-9]{0,2})", re.ASCII)
#: The devices that ``nvidia`` grants: GPUs, and those that all GPUs share.
_NVIDIA_NODE: Final = re.compile(r"/dev/nvidia([0-9]+|ctl|-uvm|-uvm-tools|-modeset)", re.ASCII)
_MAX_PATH: Final = 200
_EXAMPLE: Final = 'Write "nvidia", "nvidia:0", "dri" or a path below /dev, as in "/dev/kfd".'


class Kind(NamedTuple):
    """Devices that no policy may grant: patterns of names below /dev and of drivers, and why."""

    names: tuple[str, ...]
    drivers: tuple[str, ...]
    why: str


#: Patterns are those of fnmatch(3), in which * also matches "/". Drivers have their names in
#: /proc/devices; those of major number 10 in /proc/misc, and those of major number 1 in /dev.
REFUSED: Final = (
    Kind(
        ("autofs", "cachefiles", "cuse", "fuse"),
        ("autofs", "cachefiles", "cuse", "fuse"),
        "it makes file systems, whose files may keep other programs waiting",
    ),
    Kind(
        ("binder*", "dma_heap/*", "udmabuf", "userfaultfd", "zero"),
        ("binder*", "dma_heap", "udmabuf", "userfaultfd", "zero"),
        "it gives memory that no limit counts, or keeps the OS kernel waiting",
    ),
    Kind(
        (
            *("bsg/*", "btrfs-control", "dm-*", "loop*", "mapper/*", "md*", "mtd*", "nbd*", "ng*"),
            *("nvme*", "nvme-fabrics", "raw*", "sd*", "sg*", "sr*", "st*", "ubi*", "ublk*", "vd*"),
            *("disk/*", "zram*"),
        ),
        (
            *("bsg", "btrfs-control", "device-mapper", "loop-control", "megaraid*", "mtd", "nvme*"),
            *("raw", "sg", "st", "ubi*", "ublk*"),
        ),
        "it is a disk: whoever has it has every file there",
    ),
    Kind(
        (
            *("cpu*", "gpiochip*", "hpet", "i2c-*", "ipmi*", "mcelog", "mei*", "nvram", "rfkill"),
            *("rtc*", "snapshot", "spidev*", "tpm*", "watchdog*"),
        ),
        (
            *("cpu/*", "cpu_dma_latency", "gpiochip", "hpet", "i2c", "ipmidev", "mcelog", "mei"),
            *("nvram", "rfkill", "rtc", "snapshot", "spi", "tpm*", "watchdog*"),
        ),
        "it controls the machine itself",
    ),
    Kind(
        ("hidraw*", "input/*", "uhid", "uinput", "userio"),
        ("hidraw", "input", "uhid", "uinput", "userio"),
        "it hears the keyboard, or types",
    ),
    Kind(
        ("kmem", "kmsg", "mem", "oldmem", "port"),
        ("kmem", "kmsg", "mem", "oldmem", "port"),
        "it is the OS kernel's own memory or log",
    ),
    Kind(
        ("kvm", "sev*", "tdx*", "vfio/*", "vhost-*", "vsock"),
        ("kvm", "sev*", "tdx*", "vfio*", "vhost-*", "vsock"),
        "it runs virtual machines, or gives hardware all memory",
    ),
    Kind(
        ("macvtap*", "net/*", "ppp*", "tap*"),
        ("ipvtap", "macvtap", "ppp", "tun"),
        "it is a way into the network that network_access does not bound",
    ),
    Kind(
        ("console", "hvc*", "pts/*", "ptmx", "pty*", "tty*", "vcs*"),
        (
            *("/dev/console", "/dev/ptmx", "/dev/tty*", "/dev/vc/*", "hvc", "pts", "ptm", "pty*"),
            *("tty*", "ttyS*", "vcs", "usbserial", "acm"),
        ),
        "it is a terminal, and what is put there a shell may take for commands",
    ),
)


def problem(entry: str) -> tuple[str, str] | None:
    """Return what is wrong with an entry's text, and what to do; None if nothing is wrong."""
    if entry in (NVIDIA, DRI) or _NUMBERED.fullmatch(entry):
        return None
    plain = entry.isprintable() and len(entry) <= _MAX_PATH and os.path.normpath(entry) == entry
    if not plain or not entry.startswith(FOLDER):
        return "not a device", _EXAMPLE
    if (why := refused_name(entry)) is not None:
        return why, "Remove the entry."
    return None


def refused_name(path: str) -> str | None:
    """Return why no policy may grant the device at a path below /dev; None if one may."""
    name = path.removeprefix(FOLDER)
    reasons = (kind.why for kind in REFUSED if _matches(name, kind.names))
    return next(reasons, None)


def refused_driver(driver: str) -> str | None:
    """Return why no policy may grant a device of this driver; None if one may."""
    reasons = (kind.why for kind in REFUSED if _matches(driver, kind.drivers))
    return next(reasons, None)


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def nvidia_number(entry: str) -> int | None:
    """Return the number of the GPU that an entry names; None if it names none by number."""
    match = _NUMBERED.fullmatch(entry)
    return None if match is None else int(match[1])


def covers(wide: str, entry: str) -> bool:
    """Return whether ``wide`` grants each device that ``entry`` grants, on any machine."""
    if wide == entry:
        return True
    if wide == NVIDIA:
        return nvidia_number(entry) is not None or bool(_NVIDIA_NODE.fullmatch(entry))
    return wide == DRI and entry.startswith("/dev/dri/")
