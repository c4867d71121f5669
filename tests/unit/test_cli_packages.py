"""``cellblock packages``: what is there, what is not tried again, and out with it."""

import pytest
from typer.testing import CliRunner

from cellblock.cli.main import app
from cellblock.host.services.operations.packages import Package, PackageStore
from cellblock.policy.folders import package_folder


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    """Return a shelf with a package and two failures."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")
    made = PackageStore(f"{package_folder()}/0123456789abcdef")
    made.prepare({"index": "http://127.0.0.1:9/simple", "allow": ["alpha", "beta"]})
    with made.making() as folder:
        (folder / "wheel").mkdir()
        (folder / "wheel" / "alpha.py").write_text("")
        made.keep("alpha<2", folder / "wheel", Package("alpha", "1.0", ""))
    made.fail("beta>3", "there is [none]")
    made.fail("gamma", "neither")
    return made


def run(*arguments):
    done = CliRunner().invoke(app, ["packages", *arguments])
    assert done.exit_code == 0, done.output
    return done.output


def test_all_that_is_there_and_is_not_is_shown(shelf):
    said = run("show")
    assert shelf.about()["index"] in said
    rows = [" ".join(line.replace("│", " ").split()) for line in said.splitlines()]
    assert "alpha<2 alpha 1.0" in rows
    assert any(row.startswith("beta>3 failed 2") and "there is [none]" in row for row in rows)


def test_failures_are_cleared_by_name_or_all(shelf):
    assert run("clear", "Beta") == "cleared 1\n"
    assert [one["requirement"] for one in shelf.failures()] == ["gamma"]
    assert run("clear") == "cleared 1\n"
    assert shelf.known("alpha<2") is not None


def test_packages_are_removed_where_that_is_asked_for(shelf):
    assert run("clear", "--installed", "alpha") == "cleared 1\n"
    assert list(shelf.lib.iterdir()) == []
    assert len(shelf.failures()) == 2


def test_nothing_was_ever_installed(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert run("show") == "no policy had packages installed yet\n"
    assert run("clear") == "cleared 0\n"
