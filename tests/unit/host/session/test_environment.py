"""The guest's environment is made, not inherited."""

from pathlib import Path

from cellblock.host.guests.spawn import import_path, zygote_argv
from cellblock.host.session.config import guest_environment
from cellblock.wire.messages import Plan

HOST = {
    "AWS_SECRET_ACCESS_KEY": "s3cret",
    "HOME": "/home/u",
    "PATH": "/evil",
    "TZ": "UTC",
    "A": "1",
}


def made(*names, **plan):
    return guest_environment(names, Path("/scratch"), HOST, Plan(**plan))


def test_nothing_of_the_hosts_is_passed_on_unless_named():
    assert set(made()) & {"AWS_SECRET_ACCESS_KEY", "TZ", "A"} == set()
    assert made("TZ", "ABSENT")["TZ"] == "UTC"
    assert "ABSENT" not in made("TZ", "ABSENT")


def test_sandbox_values_win_over_what_a_policy_names():
    env = made("HOME", "PATH")
    assert env["HOME"] == env["TMPDIR"] == "/scratch"
    assert env["PATH"] == "/usr/local/bin:/usr/bin:/bin"


def test_joblib_starts_no_worker_where_it_could_not_read_proc():
    confined = {"subprocess": True, "locks": ("landlock",)}
    assert made(**confined)["JOBLIB_MULTIPROCESSING"] == "0"
    assert "JOBLIB_MULTIPROCESSING" not in made(**confined, read_roots=("/proc",))
    assert "JOBLIB_MULTIPROCESSING" not in made()


def test_the_users_shell_is_passed_on_where_cells_may_start_it():
    host = HOST | {"SHELL": "/usr/bin/bash"}
    for plan, passed in ((Plan(), False), (Plan(read_roots=("/usr/bin",), subprocess=True), True)):
        assert ("SHELL" in guest_environment((), Path("/scratch"), host, plan)) is passed


def test_the_guest_imports_from_no_relative_folder(monkeypatch):
    monkeypatch.setattr("sys.path", ["", ".", "lib", "/usr/lib/python"])
    assert import_path() == ["/usr/lib/python"]


def test_the_zygote_starts_isolated_and_without_site():
    options = zygote_argv(5)[1:5]
    assert options == ["-I", "-S", "-X", "utf8"]
