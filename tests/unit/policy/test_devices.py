"""Which devices a policy may name, and which entry grants no more than another."""

import pytest

from cellblock.errors import PolicyError
from cellblock.policy.devices import covers, problem, refused_driver
from cellblock.policy.model import Policy


@pytest.mark.parametrize(
    "entry",
    ["nvidia", "nvidia:0", "nvidia:15", "dri", "/dev/kfd", "/dev/dri/renderD128", "/dev/video0"],
)
def test_a_policy_names_gpus_what_renders_and_paths(entry):
    assert Policy.preset("safe", devices=[entry]).devices == (entry,)


@pytest.mark.parametrize(
    "entry",
    [
        *("", "gpu", "nvidia:", "nvidia:-1", "nvidia:01", "nvidia:0 ", "NVIDIA", "nvidia:1000"),
        *("/dev", "/dev/", "/dev/dri/", "/dev//kfd", "/dev/./kfd", "/dev/../etc/shadow", "dev/kfd"),
        *("/etc/shadow", "/dev/k\0fd", "/dev/k\nfd", "/proc/self/root/dev/kfd"),
    ],
)
def test_what_is_no_device_is_refused_with_an_example(entry):
    with pytest.raises(PolicyError, match="not a device") as caught:
        Policy.preset("safe", devices=[entry])
    assert '"nvidia:0"' in caught.value.remedy


@pytest.mark.parametrize(
    ("path", "driver", "reason"),
    [
        ("/dev/mem", "mem", "memory or log"),
        ("/dev/kmem", "kmem", "memory or log"),
        ("/dev/port", "port", "memory or log"),
        ("/dev/kmsg", "kmsg", "memory or log"),
        ("/dev/zero", "zero", "memory that no limit counts"),
        ("/dev/userfaultfd", "userfaultfd", "keeps the OS kernel waiting"),
        ("/dev/tty", "/dev/tty", "terminal"),
        ("/dev/ttyS0", "ttyS", "terminal"),
        ("/dev/pts/0", "pts", "terminal"),
        ("/dev/ptmx", "/dev/ptmx", "terminal"),
        ("/dev/vcsa1", "vcs", "terminal"),
        ("/dev/kvm", "kvm", "virtual machines"),
        ("/dev/vhost-net", "vhost-net", "virtual machines"),
        ("/dev/vfio/vfio", "vfio", "virtual machines"),
        ("/dev/fuse", "fuse", "file systems"),
        ("/dev/net/tun", "tun", "network"),
        ("/dev/input/event0", "input", "keyboard"),
        ("/dev/uinput", "uinput", "keyboard"),
        ("/dev/hidraw0", "hidraw", "keyboard"),
        ("/dev/loop-control", "loop-control", "disk"),
        ("/dev/mapper/control", "device-mapper", "disk"),
        ("/dev/sg0", "sg", "disk"),
        ("/dev/nvme0", "nvme", "disk"),
        ("/dev/cpu/0/msr", "cpu/msr", "machine itself"),
        ("/dev/watchdog0", "watchdog", "machine itself"),
    ],
)
def test_no_policy_grants_these_by_whatever_name(path, driver, reason):
    with pytest.raises(PolicyError, match=reason):
        Policy.preset("safe", devices=[path])
    assert reason in refused_driver(driver)


@pytest.mark.parametrize(
    "driver", ["nvidia", "nvidiactl", "nvidia-uvm", "nvidia-modeset", "drm", "kfd", "video4linux"]
)
def test_drivers_of_gpus_and_cameras_are_not_refused(driver):
    assert refused_driver(driver) is None


def test_a_list_of_devices_has_a_bound():
    with pytest.raises(PolicyError, match="more than 64 entries"):
        Policy.preset("safe", devices=[f"nvidia:{number}" for number in range(65)])


def test_an_entry_covers_what_it_grants_and_nothing_that_it_does_not():
    everything = ["nvidia", "nvidia:0", "nvidia:1", "dri", "/dev/kfd", "/dev/nvidia0"]
    everything += ["/dev/nvidia-caps/nvidia-cap1", "/dev/dri/card0", "/dev/driver"]
    covered = {wide: [entry for entry in everything if covers(wide, entry)] for wide in everything}
    assert covered.pop("nvidia") == ["nvidia", "nvidia:0", "nvidia:1", "/dev/nvidia0"]
    assert covered.pop("dri") == ["dri", "/dev/dri/card0"]
    assert covered == {entry: [entry] for entry in covered}


def test_what_is_refused_by_its_name_says_what_to_do():
    assert problem("/dev/mem") == ("it is the OS kernel's own memory or log", "Remove the entry.")
