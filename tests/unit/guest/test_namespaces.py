"""What a zygote looks at before it reads anything: whether the right folders were mounted.

And before it takes its locks: whether everything but what cells write can be made read-only.
"""

import subprocess
import sys

import pytest

from cellblock.descriptors import identity
from cellblock.guest.confine import ConfineError
from cellblock.guest.confine.witness import check_mounts


def test_what_is_mounted_is_what_the_host_found_or_not_there(tmp_path):
    part = tmp_path / "part"
    part.mkdir()
    found = identity(str(part))
    check_mounts([str(part)], [found])
    part.rename(tmp_path / "away")
    check_mounts([str(part)], [found])
    for wrong in (found, (0, 0)):
        part.mkdir(exist_ok=True)
        with pytest.raises(ConfineError) as caught:
            check_mounts([str(part)], [wrong])
        assert str(caught.value) == (f"namespaces: {part} was moved while it was being mounted")


#: Says whether a process can seal its mounts, and whether any is writable after the trial.
TRIES = """
import sys
from pathlib import Path
from cellblock.guest.confine import layer
layer.enter_namespaces()
{before}
print(layer.can_seal([sys.argv[1]]), any("rw" in options for _, options, _ in layer.mounts()))
"""


def tried(folder, before=""):
    code = TRIES.format(before=before)
    argv = [sys.executable, "-c", code, folder]
    ran = subprocess.run(argv, check=False, capture_output=True, text=True)
    if "enter_namespaces" in ran.stderr:
        pytest.skip("no namespaces can be made here")
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_a_trial_of_read_only_mounts_leaves_the_mounts_as_they_are(tmp_path):
    assert tried(tmp_path) == "True True\n"


def test_where_no_namespace_can_be_made_in_another_nothing_is_sealed_and_nothing_fails(tmp_path):
    forbidden = (
        "layer.enter_user_namespace()\nPath('/proc/sys/user/max_user_namespaces').write_text('0')"
    )
    assert tried(tmp_path, forbidden) == "False True\n"
