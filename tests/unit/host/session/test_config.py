"""What decides about cells, and what vouches for it, lies where cells can't write, or read."""

import dataclasses
import stat
from pathlib import Path

import nbformat
import pytest

from cellblock.errors import PolicyError
from cellblock.host.session.config import (
    SessionConfig,
    SessionOptions,
    _private,
    check_out_of_reach,
    resolve,
    under_policy,
)
from cellblock.policy import paths
from cellblock.policy.folders import make_scratch, remove_scratch
from cellblock.policy.model import Policy
from cellblock.policy.operations import Operations, WriteFile
from cellblock.policy.paths import SECRETS
from cellblock.wire import frames
from cellblock.wire.messages import Plan


def policy(admission="approved", **places):
    made = Policy(admission=admission)
    places = {"folder": "/a/approved", "key": "/a/key"} | places
    folders = places.pop("templates", ("/a/templates",))
    return made.replace(
        approval=dataclasses.replace(made.approval, **places),
        audit=dataclasses.replace(made.audit, folder="/a/audit"),
        templates=dataclasses.replace(made.templates, folders=folders),
    )


APART = Plan(read_roots=("/r",), write_roots=("/w",))


@pytest.mark.parametrize(
    ("wrong", "key"),
    [
        ({"folder": "/w/approved"}, "approval.folder"),
        ({"folder": "/w"}, "approval.folder"),
        ({"key": "/w/key"}, "approval.key"),
        ({"key": "/r/x/key"}, "approval.key"),
        ({"templates": ("/a/templates", "/w/templates")}, "templates.folders"),
    ],
)
def test_a_place_within_their_reach_is_refused_by_name(wrong, key):
    with pytest.raises(PolicyError) as refused:
        check_out_of_reach(policy(**wrong), APART)
    assert refused.value.key == key
    assert "within their reach" in refused.value.message


@pytest.mark.parametrize(
    ("key", "places"),
    [("approval.folder", {"folder": "/o/x"}), ("templates.folders", {"templates": ("/o/x",)})],
)
@pytest.mark.parametrize(
    "written",
    [
        {"ops": Operations(write_file=WriteFile(roots=("/o",)))},
        {"artifact_export_paths": ("*.png",), "artifact_folder": "/o"},
    ],
    ids=["granted", "copied"],
)
def test_what_decides_lies_where_the_host_writes_nothing_for_cells_either(key, places, written):
    with pytest.raises(PolicyError) as refused:
        check_out_of_reach(policy(**places).replace(**written), APART)
    assert refused.value.key == key


def test_a_link_does_not_hide_where_a_place_is(tmp_path):
    (tmp_path / "w").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "w")
    (tmp_path / "through").symlink_to(tmp_path / "w" / "out")
    (tmp_path / "w" / "out").symlink_to(tmp_path)
    plan = Plan(write_roots=(str(tmp_path / "w"),))
    check_out_of_reach(policy(folder=f"{tmp_path}/approved"), plan)
    for name in ("link", "through"):
        with pytest.raises(PolicyError):
            check_out_of_reach(policy(folder=f"{tmp_path}/{name}/approved"), plan)


def test_a_folder_for_temporary_files_behind_a_link_is_known_by_where_it_is(tmp_path, monkeypatch):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    monkeypatch.setattr("tempfile.tempdir", f"{tmp_path}/link")
    scratch = Path(make_scratch())
    assert str(scratch).startswith(f"{tmp_path}/real/cellblock-")
    scratch.chmod(0o777)  # as a cell may
    assert stat.S_IMODE(scratch.parent.stat().st_mode) == 0o1700
    remove_scratch(str(scratch))
    assert not scratch.parent.exists()


def test_places_apart_from_what_cells_reach_and_those_that_nobody_asks_for_are_fine():
    check_out_of_reach(policy(), APART)
    check_out_of_reach(policy(folder="/r/approved"), APART)  # manifests may be read
    check_out_of_reach(policy("any", folder="/w/approved", key="/w/key"), APART)


@pytest.mark.parametrize("admission", ["any", "approved", "template"])
def test_the_key_and_what_users_allowed_are_private_whatever_the_policy_admits(
    admission, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    private = set(_private(SessionOptions("safe", tmp_path, tmp_path), policy(admission)))
    assert {tmp_path / "data" / "cellblock", Path("/a/key")} <= private


# --- what is too much to be sent ------------------------------------------------------------------


def test_a_project_whose_plan_is_too_large_is_refused_with_a_sentence(tmp_path):
    project = tmp_path.joinpath("project", *["d" * 240] * 11)
    project.mkdir(parents=True)
    for number in range(2_000):
        (project / f"{number:x<240}").touch()
    (project / ".env").touch()
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    asked = Policy(backend="landlock").replace(filesystem_read_roots=(f"{tmp_path}/project",))
    asked = asked.replace(read_deny_paths=("**/.env",))
    refused = resolve(SessionOptions(asked, tmp_path / "project", scratch))
    assert isinstance(refused, PolicyError)
    assert refused.remedy == f'Deny all of that folder: add.read_deny_paths = ["{project}"]'
    denied = asked.replace(read_deny_paths=("**/.env", str(project)))
    assert isinstance(resolve(SessionOptions(denied, tmp_path / "project", scratch)), SessionConfig)


def test_variables_that_are_too_large_are_refused_with_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setitem(frames.encode.__globals__, "MAX_FRAME", 20_000)
    monkeypatch.setenv("LARGE", "x" * 20_000)
    (tmp_path / "scratch").mkdir()
    asked = Policy(backend="landlock")
    options = [
        SessionOptions(each, tmp_path, tmp_path / "scratch")
        for each in (asked, asked.replace(env_var_access=("LARGE",)))
    ]
    assert isinstance(resolve(options[0]), SessionConfig)
    refused = resolve(options[1])
    assert isinstance(refused, PolicyError)
    assert refused.remedy.startswith("Shorten the variables (env=, env_var_access)")


# --- names of secrets -----------------------------------------------------------------------------


@pytest.fixture
def start(tmp_path):
    """Return a function that resolves a policy whose cells read the project and have scratch."""
    for name in ("scratch", "project/work"):
        (tmp_path / name).mkdir(parents=True)

    def start(**changes):
        project, scratch = tmp_path / "project", tmp_path / "scratch"
        policy = Policy(backend="landlock", read_deny_paths=SECRETS).replace(
            filesystem_read_roots=(str(project),), filesystem_write_roots=(str(scratch),)
        )
        return resolve(SessionOptions(policy.replace(**changes), project, scratch))

    return start


def put(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


@pytest.mark.parametrize(
    "filled",
    [
        {"filesystem_write_roots": ("{0}/scratch", "{0}/project/work")},
        {"artifact_export_paths": ("{0}/scratch/*.png",), "artifact_folder": "{0}/project/work"},
        {"filesystem_staged_roots": ("{0}/project",)},
    ],
    ids=["written", "copied to", "written where nothing can be staged"],
)
def test_however_much_is_in_a_folder_that_cells_fill_secrets_elsewhere_are_denied(
    start, tmp_path, monkeypatch, filled
):
    monkeypatch.setattr(paths, "MOST_ENTRIES", 40)
    secret = put(tmp_path / "project/a/b/c/.env")
    for number in range(40):
        put(tmp_path / f"project/work/{number}/x")
    changes = {
        key: tuple(each.format(tmp_path) for each in value)
        if type(value) is tuple
        else value.format(tmp_path)
        for key, value in filled.items()
    }
    assert secret in start(**changes).secrets


def test_a_secrets_name_in_a_folder_that_cells_write_to_stops_no_kernel_and_is_told(
    start, tmp_path
):
    written = {"filesystem_write_roots": (f"{tmp_path}/scratch", f"{tmp_path}/project/work")}
    assert start(**written).notice == ""
    put(tmp_path / "project/work/.git/config")
    secret = put(tmp_path / "project/.env")
    config = start(**written)
    assert config.secrets == (secret,)
    assert config.notice == (
        f"lets cells read and change {tmp_path}/project/work/.git/config, for they may write there: "
        "move what is secret elsewhere"
    )
    put(tmp_path / "project/work/.env")
    assert f"{tmp_path}/project/work/.env and 1 more like it" in start(**written).notice


def test_a_secret_in_a_folder_that_holds_the_notebooks_is_never_written_to(start, tmp_path):
    put(tmp_path / "project/.env")
    refused = start(filesystem_write_roots=(f"{tmp_path}/project",))
    assert isinstance(refused, PolicyError)
    assert refused.remedy == f"Choose a folder without {tmp_path}/project/.env in it."


def test_what_cells_made_under_a_secrets_name_keeps_no_narrowing_from_them(start, tmp_path):
    config = start()
    put(tmp_path / "scratch/.env")
    secret = put(tmp_path / "project/a/.env")
    narrower = under_policy(config, config.policy.replace(timeout=100.0))
    assert narrower.secrets == (secret,)
    # A name that is denied from now on, and would be readable all the same.
    put(tmp_path / "scratch/data.csv")
    denied = config.policy.replace(read_deny_paths=(*SECRETS, "**/data.csv"))
    with pytest.raises(PolicyError, match="this holds a denied path"):
        under_policy(config, denied)


def test_where_cells_may_write_no_more_a_secrets_name_is_denied(start, tmp_path):
    written = (f"{tmp_path}/scratch", f"{tmp_path}/project/work")
    config = start(filesystem_write_roots=written)
    secret = put(tmp_path / "project/work/.env")
    narrower = under_policy(config, config.policy.replace(filesystem_write_roots=written[:1]))
    assert narrower.secrets == (secret,)


# --- what has to be asked for ---------------------------------------------------------------------

ASKS = Policy(name="mine", mode="unsafe", backend="noop", on_unsupported="ignore")


def resolved(tmp_path, approvals, **options):
    (tmp_path / "scratch").mkdir()
    policy = ASKS.replace(approvals=approvals)
    return resolve(SessionOptions(policy, tmp_path, tmp_path / "scratch", ask="Say so", **options))


def test_what_has_to_be_asked_for_is_left_to_a_user_who_can_be(tmp_path):
    config = resolved(tmp_path, "prompt", asks=True)
    assert isinstance(config, SessionConfig)
    assert config.condition.key == "mode"
    assert str(config.condition).endswith(
        "Say so, approve it where you can be asked, or choose a policy of mode confined or safe."
    )


@pytest.mark.parametrize(("approvals", "asks"), [("prompt", False), ("never", True)])
def test_where_nobody_is_asked_it_is_refused(tmp_path, approvals, asks):
    refused = resolved(tmp_path, approvals, asks=asks)
    assert isinstance(refused, PolicyError)
    assert str(refused).endswith("Say so, or choose a policy of mode confined or safe.")


@pytest.mark.parametrize("approvals", ["prompt", "never"])
def test_who_has_allowed_it_already_is_asked_nothing(tmp_path, approvals):
    assert resolved(tmp_path, approvals, asks=True, allow_unsafe=True).condition is None


def test_a_notebook_that_takes_it_away_needs_no_consent_but_hides_none_from_the_policy(tmp_path):
    file = tmp_path / "a.ipynb"
    made = nbformat.v4.new_notebook()
    made.metadata["cellblock"] = {"policy": {"mode": "safe"}}
    nbformat.write(made, file)
    config = resolved(tmp_path, "prompt", asks=True, notebook=file)
    assert (config.policy.mode, config.condition) == ("safe", None)
    (tmp_path / "scratch").rmdir()
    assert isinstance(resolved(tmp_path, "never", asks=True, notebook=file), PolicyError)


def test_a_notebook_may_take_away_the_folder_that_files_are_copied_out_of(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "scratch").mkdir()
    policy = ASKS.replace(
        filesystem_write_roots=(f"{tmp_path}/out",),
        artifact_export_paths=(f"{tmp_path}/out/*.csv",),
        artifact_folder=f"{tmp_path}/copied",
    )
    file = tmp_path / "a.ipynb"
    made = nbformat.v4.new_notebook()
    made.metadata["cellblock"] = {"policy": {"filesystem_write_roots": []}}
    nbformat.write(made, file)
    options = SessionOptions(
        policy, tmp_path, tmp_path / "scratch", allow_unsafe=True, notebook=file
    )
    config = resolve(options)
    assert isinstance(config, SessionConfig), config
    assert config.policy.filesystem_write_roots == ()
