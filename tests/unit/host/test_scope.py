"""Where guests of a narrower policy begin, and what is looked at before they do."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from cellblock.host import groundwork, scope
from cellblock.policy.model import Policy
from cellblock.wire.messages import Plan


@pytest.fixture
def started(monkeypatch):
    """Return the list of what zygotes were started in."""
    made = []
    monkeypatch.setattr(scope.launch, "start", lambda wrap: made.append(wrap) or ("socket", 1))
    return made


def starter(before, **roots):
    plan = Plan(**{name: tuple(map(str, paths)) for name, paths in roots.items()})
    ground = SimpleNamespace(told=SimpleNamespace(plan=plan), wrap="wrap")
    return scope.starter(ground, Policy(filesystem_write_roots=(str(before),)))


@pytest.mark.parametrize("kind", ["read_roots", "write_roots"])
def test_a_root_in_whose_place_a_cell_has_put_a_link_starts_nothing(tmp_path, started, kind):
    work = tmp_path / "work"
    (work / "part").mkdir(parents=True)
    start = starter(work, **{kind: [work / "part"]})
    assert start() == ("socket", 1)
    (work / "part").rename(work / "moved")
    (work / "part").symlink_to("/etc")
    with pytest.raises(OSError, match="a link stands at"):
        start()
    assert started == ["wrap"]


def test_a_folder_on_the_way_counts_too_and_what_no_cell_could_move_does_not(tmp_path, started):
    work = tmp_path / "work"
    (work / "a" / "b").mkdir(parents=True)
    link = tmp_path / "link"
    link.symlink_to("/usr")
    assert starter(work, read_roots=[link, work / "a" / "b"])()
    (work / "a").rename(work / "c")
    (work / "a").symlink_to(work / "c")
    with pytest.raises(OSError, match="a link stands at"):
        starter(work, read_roots=[work / "a" / "b"])()
    assert started == ["wrap"]


@pytest.mark.parametrize(
    ("roots", "operators", "begins"),
    [
        (("/project",), ("/project",), "/project"),
        (("/project/data",), ("/project",), "/project"),
        (("/project/data",), ("/",), "/project"),
        ((), ("/project",), "/scratch"),
        (("/elsewhere",), ("/project", "/elsewhere"), "/scratch"),
        (("/project/data",), ("/project/data",), "/scratch"),
    ],
)
def test_guests_begin_in_the_project_while_a_part_of_it_is_left(roots, operators, begins):
    policy = Policy(filesystem_read_roots=operators)
    plan = Plan(read_roots=roots, write_roots=("/scratch",))
    wanted = groundwork._begun_in(policy, Path("/project"), Path("/scratch"))
    assert (wanted if groundwork._sees(plan, wanted) else "/scratch") == begins
