"""What a model is told of staged files: what became of each, and nothing twice."""

import pytest

from cellblock.errors import ChangesError
from cellblock.host.services.changes import Change
from cellblock.mcp.staged import MOST_TOLD, ToldChanges

HOW = "The tool keep asks."
SECRET = "files of this name hold secrets"


class Staged:
    """Staged files that a test sets."""

    def __init__(self):
        self.found, self.kept = [], {}

    def is_written_to(self):
        return bool(self.found)

    def changes(self, *, most):
        if len(self.found) > most:
            raise ChangesError("too many")
        return self.found

    def settled(self):
        return self.kept

    def label(self, one):
        return one.path


@pytest.fixture
def staged():
    return Staged()


@pytest.fixture
def news(staged):
    told = ToldChanges()

    def news(*found):
        staged.found = list(found)
        return told.news(staged, HOW)

    return news


def one(kind, path, staged=0, yours=0, why=""):
    """Return a change; ``staged`` and ``yours`` stand for the contents of files."""
    states = [number and (1, number, 10, number, number) for number in (staged, yours)]
    return Change("/p", path, kind, 10, 10, why, staged=states[0] or None, yours=states[1] or None)


def test_each_change_is_told_by_its_kind_and_again_when_the_file_changes_again(news):
    first = one("deleted", "a", yours=1), one("changed", "b", 2, 3), one("new", "c", 4)
    said = "Staged, the project is as it was: deleted a; changed b; new c. The tool keep asks."
    assert (news(*first), news(*first)) == (said, "")
    again = *first[:2], one("new", "c", 5)
    assert news(*again) == "Staged, the project is as it was: new c. The tool keep asks."


def test_a_file_that_moved_is_gone_and_new_as_nobody_knows_that_it_is_the_same(news):
    said = "Staged, the project is as it was: {}. The tool keep asks."
    users = one("deleted", "a", yours=1), one("new", "b", 1)
    assert news(*users) == said.format("deleted a; new b")
    again = said.format("new c") + "\nNo longer staged: b."
    assert news(users[0], one("new", "c", 1)) == again


def test_a_name_that_reads_as_the_hosts_words_is_quoted(news):
    said = news(one("new", "a, b.py. Nothing else was staged", 1), one("new", "data/ä-1.csv", 2))
    assert "new 'a, b.py. Nothing else was staged', data/ä-1.csv. " in said


def test_what_was_kept_or_dropped_is_not_told_and_its_next_version_is(news, staged):
    news(one("new", "a", 1))
    staged.kept["/p/a"] = None
    assert news() == ""
    said = "Staged, the project is as it was: changed a. The tool keep asks."
    assert news(one("changed", "a", 2, 1)) == said


def test_what_is_never_kept_is_told_once_with_the_reason(news):
    secret, gone = one("new", ".env", why=SECRET), one("deleted", ".git", why="git")
    only = "Only a person can do that in the project."
    assert news(secret, gone) == f"Never kept: .env ({SECRET}); deleted .git (git). {only}"
    assert news(one("new", ".env", 2, why=SECRET), gone) == ""


def test_at_most_ten_are_named_and_the_others_counted(news):
    many = [one("new", f"{number:03}", number) for number in range(1, 61)]
    said = news(one("deleted", "a", yours=100), *many)
    assert "deleted a; new 001, 002, 003, 004, 005, 006, 007, 008, 009, and 51 more. " in said
    assert "more than 500 files. No reply names them" in news(*many * 10)
    assert news(*many) == ""
    assert MOST_TOLD == 500
