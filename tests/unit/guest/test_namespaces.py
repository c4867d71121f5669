"""What a zygote looks at before it reads anything: whether the right folders were mounted."""

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
