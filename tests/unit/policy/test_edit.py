"""Lines that are added to a policy's file."""

import pytest

from cellblock.errors import PolicyError
from cellblock.policy.edit import add_lines, with_lines

FILE = """\
extends = "data"

# mine
timeout = 3  # seconds

[add]
magics = ["time"]  # why

[ops.http]
hosts = ["a.org"]
"""
ADDED = """\
extends = "safe"
memory_max_bytes = "2 GiB"
timeout = 4
add.magics = ["time", "timeit"]
add.allowed_modules = ["sqlite3"]
ops.http.hosts = ["b.org"]
ops.read_file.roots = ["."]
"""


def test_lines_come_where_they_belong_and_what_is_there_stays():
    assert (
        with_lines(FILE, ADDED)
        == """\
extends = "data"

# mine
timeout = 4  # seconds
memory_max_bytes = "2 GiB"

[add]
magics = ["time", "timeit"]  # why
allowed_modules = ["sqlite3"]

[ops.http]
hosts = ["a.org", "b.org"]

[ops.read_file]
roots = ["."]
"""
    )


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", "timeout ="),
        ("timeout =", "timeout = 3"),
        ("", "[add]\n[add]"),
        ("", "timeout = 1\ntimeout = 2"),
        ("ops = 3", "ops.http.hosts = []"),
        ("add.magics = 3", "add.magics.time = 3"),
    ],
)
def test_lines_that_do_not_fit_are_one_error(text, lines):
    with pytest.raises(ValueError, match=r"."):
        with_lines(text, lines)


def test_a_file_is_made_with_what_it_extends_and_changed_as_a_whole_or_not_at_all(tmp_path):
    file, project = str(tmp_path / "lab.toml"), tmp_path
    before, after = add_lines(
        file, 'timeout = 9.0\nfilesystem_read_roots = ["."]', extends="data", project=project
    )
    assert (before.name, after.name, after.timeout, after.mode) == ("data", "lab", 9.0, "confined")
    assert after.filesystem_read_roots == (
        str(tmp_path),
    )  # relative to the file, not to a trial of it
    made = (tmp_path / "lab.toml").read_text()
    for lines in ("timeout = 0", "nonsense", 'add.magics = ["nosuch"]'):
        with pytest.raises(PolicyError) as refused:
            add_lines(file, lines, extends="safe", project=project)
        assert (refused.value.file, len(refused.value.all())) == (file, 1)
    assert (tmp_path / "lab.toml").read_text() == made
    (tmp_path / "lab.toml").chmod(0o600)
    with pytest.raises(PolicyError, match="extends another preset"):
        add_lines(file, 'extends = "safe"\ntimeout = 8', extends="safe", project=project)
    add_lines(file, 'extends = "data"\ntimeout = 8', extends="safe", project=project)
    assert [one.name for one in tmp_path.iterdir()] == ["lab.toml"]
    assert (tmp_path / "lab.toml").stat().st_mode & 0o777 == 0o600
    new = str(tmp_path / "new.toml")
    assert add_lines(new, 'extends = "data"', extends="safe", project=project)[1].mode == "confined"


def test_neither_a_preset_nor_what_cannot_be_written_is_changed(tmp_path):
    for file in ("safe", str(tmp_path / "no" / "lab.toml")):
        with pytest.raises(PolicyError):
            add_lines(file, "timeout = 3", extends="safe", project=tmp_path)
