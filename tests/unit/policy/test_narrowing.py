# ruff: noqa: RUF001 - look-alike letters are what is tested
"""P8: a policy is made narrower, and by no spelling wider."""

import os
import re
from dataclasses import replace

import pytest

from cellblock.errors import PolicyError, WideningError
from cellblock.policy.mcp_servers import McpServer
from cellblock.policy.model import FIELDS, OPTIONAL_FIELDS, ROWS, Audit, Policy
from cellblock.policy.narrowing import (
    MAX_ENTRIES,
    changed_fields,
    check_narrower,
    may_be_added_to,
    narrow,
    try_narrow,
    wider,
)
from cellblock.policy.paths import Places
from cellblock.policy.rows import EnforcedBy


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "project"
    for name in ("data/raw", "work/out", "beside", "staged/in"):
        (folder / name).mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "scratch").mkdir()
    (folder / "data" / "table.csv").touch()
    return folder


@pytest.fixture
def policy(project):
    """Return a policy that allows a little of everything."""
    return Policy(
        name="lab",
        mode="unsafe",
        on_unsupported="ignore",
        require=("network_access",),
        allowed_modules=("numpy", "sqlite3"),
        magics=("policy", "time"),
        tools=("json:dumps", "json:loads"),
        tool_timeouts={"dumps": 5.0},
        filesystem_read_roots=(str(project / "data"),),
        filesystem_write_roots=(str(project / "work"), str(project.parent / "scratch")),
        filesystem_staged_roots=(str(project / "staged"),),
        read_deny_paths=(str(project / "data" / "raw"), "/nowhere/.ssh"),
        network_access=("example.org:443", "example.com:443"),
        ports=(8050, 8051),
        devices=("nvidia", "dri", "/dev/kfd"),
        port_hosts=("hub.example", "127.0.0.1:8888"),
        subprocess_execution=True,
        package_installation=True,
        env_var_access=("SHELL", "EDITOR"),
        display="isolated",
        widget_modules=("a", "b"),
        comm_targets=("a", "b"),
        idle_timeout=100.0,
        cpu_seconds=100,
    )


@pytest.fixture
def places(project):
    return Places("the cell", project, project, project.parent / "scratch")


#: What a field may become, and what it may not, of what ``policy`` has.
NARROWER = {
    **{limit: [1] for limit in OPTIONAL_FIELDS if not limit.startswith("artifact")},
    "mode": ["safe", "pure", "confined", "unsafe"],
    "on_unsupported": ["warn", "error", "ignore"],
    "require": [["network_access", "timeout"], ["network_access"]],
    "allowed_modules": [["numpy"], [], ["sqlite3", "numpy"]],
    "magics": [["policy"], []],
    "tools": [["json:loads"], []],
    "tool_timeout": [1, 30.0, 29.999],
    "tool_timeouts": [{"dumps": 4}, {"loads": 1.5}, {}],
    "tool_max_calls": [1, 100_000],
    "tool_max_in_flight": [1],
    "tool_max_bytes": [1],
    "max_file_size": [1_024],
    "filesystem_read_roots": [
        [],
        ["data"],
        ["data/."],
        ["data/raw/../table.csv"],
        ["work/out"],
        ["{project}/data"],
        ["data", "data/nowhere?"],
    ],
    "filesystem_write_roots": [[], ["work/out"], ["{scratch}"], ["{scratch}", "./work/"]],
    "filesystem_staged_roots": [[], ["staged/in"], ["staged"]],
    "read_deny_paths": [["data", "/nowhere"], ["/"], ["data/raw", "/nowhere/.ssh", "work"]],
    "network_access": [False, [], ["example.org:443"]],
    "ports": [[], [8051], [8051, 8050]],
    "devices": [
        [],
        ["nvidia:0"],
        ["nvidia:1", "nvidia:0"],
        ["/dev/nvidiactl", "/dev/nvidia12"],
        ["/dev/dri/renderD128"],
        ["/dev/kfd", "nvidia"],
    ],
    "port_hosts": [[], ["hub.example"]],
    "subprocess_execution": [False, True],
    "package_installation": [False],
    "env_var_access": [[], ["SHELL"]],
    "display": ["isolated", "sanitized", "text"],
    "widget_modules": [[], ["a"]],
    "comm_targets": [[], ["b"]],
    "undo_depth": [0, 3],
    "max_branches": [0, 8],
    "timeout": [10, 60, 0.1],
    "memory_max_bytes": [2**25],
    "stack_max_bytes": [2**20],
    "output_kept_max_bytes": [0, 1],
}
WIDER = {
    **{
        limit: [most + 1, "none", None]
        for limit in OPTIONAL_FIELDS
        if (most := getattr(Policy(), limit))
    },
    "name": ["safe", ""],
    "mode": [],
    "backend": ["noop", "landlock", "docker"],
    "on_unsupported": [],
    "require": [[], ["timeout"]],
    "container_engine": ["docker"],
    "container_runtime": ["runsc"],
    "container_image": ["mine:latest"],
    "admission": ["approved", "template"],
    "approval": [{"scope": "mine"}, {"folder": "/tmp"}],
    "approvals": ["prompt"],
    "templates": [{"folders": ["/tmp"]}, {"folders": []}],
    "audit": [{"log": False}, {"sources": True}, {"folder": "/tmp"}],
    "allowed_modules": [["os"], ["numpy", "os"], ["Numpy"], ["numpy "], ["ｎumpy"]],
    "magics": [["policy", "bash"], ["%policy"]],
    "preload": [["os"]],
    "preload_when_idle": [["os"]],
    "pre_imported": [[], ["os"]],
    "tools": [["json:dumps", "os:system"], ["json:load"]],
    "tool_timeout": [31, 2.0**53, "none", None],
    "tool_timeouts": [{"dumps": 6}, {"loads": 31}],
    "tool_max_in_flight": [1_025],
    "tool_max_bytes": [2**20 + 1],
    "llm": [{"base_url": "https://example.org/v1", "models": ["m"]}],
    "mcp": [{"office": {"command": ["office"], "tools": ["*"]}}],
    "credentials": [
        {"API": {"hosts": ["api.example.org:443"], "value": "env:KEY"}},
        ["API"],
    ],
    "ops": [{"read_file": {"roots": ["data"]}}],
    "packages": [["requests"]],
    "artifact_export_paths": [["*"]],
    "artifact_folder": ["/tmp"],
    "filesystem_read_roots": [
        ["."],
        ["data", "beside"],
        ["data/.."],
        ["/"],
        ["data/../../elsewhere"],
        ["link-out"],
        ["data/link-up"],
        ["~"],
    ],
    "filesystem_write_roots": [["data"], ["work", "."], ["work/link-to-data"], ["{project}"]],
    "filesystem_staged_roots": [["."], ["data"], ["staged", "work"]],
    "read_deny_paths": [[], ["data/raw"], ["data/raw", "/nowhere/.ssh2"], ["data/raw/deeper"]],
    "network_access": [True, ["example.org:80"], ["EXAMPLE.org:443"], ["example.org:0443"]],
    "ports": ["any", [8052], [8050, 8051, 8052]],
    "devices": [["/dev/nvidia-caps/nvidia-cap1"], ["/dev/kfd2"], ["dri", "/dev/video0"]],
    "port_hosts": [["hub.example", "other.example"], ["hub.example:80"]],
    "subprocess_execution": [],
    "package_installation": [],
    "env_var_access": [["SHELL", "TOKEN"], ["shell"]],
    "display": [],
    "widget_modules": [["c"]],
    "comm_targets": [["c"]],
    "snapshots": ["off", "always"],
    "undo_depth": [4],
    "max_branches": [9],
    "timeout": [61, 60.000001, "none", None, 2**53],
    "idle_timeout": [101, "none"],
    "cpu_seconds": [101, "none", None],
    "artifact_max_bytes": [1, 2**26 + 1],
    "artifacts_max_bytes": [1, "none"],
}
#: No value of the field's at all.
NONSENSE = {
    "mode": ["Unsafe", "UNSAFE", "ｕnsafe", True, None, 0],
    "require": [["nothing"], "network_access"],
    "tool_timeouts": [{"dumps": "none"}, {"nobody": 1}, 5],
    "filesystem_read_roots": [
        ["nowhere"],
        ["data/table.csv/x"],
        [""],
        ["\0"],
        [3],
        "data",
        {"data": 1},
        ["{home}"],
    ],
    "network_access": [0, 1, "true", None, "False"],
    "ports": [8050, "all", True, ["any"], [80], [65_536], [8050.5], ["8050"]],
    "devices": ["nvidia", ["gpu"], ["/dev/mem"], ["/dev/dri/../mem"], ["nvidia:00"], [0]],
    "port_hosts": ["hub.example", ["http://hub.example"], ["*"], ["a b"], [""]],
    "subprocess_execution": [1, "yes", None, [], 0.0],
    "timeout": [0, -1, float("inf"), float("nan"), "10", True, [10], 10**400],
    "max_processes": [0, -1, 1.5, True, "1", 2**63],
    "undo_depth": [-1, "none", None, 51],
    "max_branches": [-1, "none", None, 51],
    "memory_max_bytes": [1, 0],
    "display": ["Text", "", None],
}


def test_there_are_cases_for_every_field():
    assert set(NARROWER) | set(WIDER) == set(FIELDS)


def each(cases):
    return [(key, value) for key in cases for value in cases[key]]


def refused(policy, asked, places):
    """Return the one error of what a cell asked; nothing was changed."""
    kept, errors = try_narrow(policy, asked, places=places)
    assert (kept is policy, len(errors)) == (True, 1), (asked, errors)
    return errors[0]


def test_what_allows_less_is_taken(policy, places):
    for key, value in each(NARROWER):
        judged = {"mode": "safe"} if key in ("allowed_modules", "magics") else {}
        narrowed = narrow(policy, {key: value} | judged, places=places)
        assert not wider(key, policy, narrowed), (key, value)
        changed = set(changed_fields(policy, narrowed))
        assert changed <= {key, "tool_timeouts", "pre_imported", *judged}, (key, value)


@pytest.mark.parametrize("field", ["allowed_modules", "magics"])
def test_what_has_no_effect_in_a_mode_is_refused_and_the_remedy_works(policy, places, field):
    confined = policy.replace(mode="confined")
    error = refused(confined, {field: []}, places)
    why = "no effect in mode confined, which refuses no cell for its source"
    assert (error.message, error.key) == (why, field)
    assert error.remedy == 'Narrow the mode as well: mode="safe".'
    narrowed = narrow(confined, {field: [], "mode": "safe"}, places=places)
    assert (narrowed.mode, getattr(narrowed, field)) == ("safe", ())
    with_same = narrow(confined, {field: getattr(policy, field), "timeout": 1}, places=places)
    assert with_same.timeout == 1


def test_a_root_that_is_denied_by_its_name_is_refused(policy, places, project):
    policy = policy.replace(read_deny_paths=(*policy.read_deny_paths, "**/.env"))
    (project / "data" / ".env").touch()
    error = refused(policy, {"filesystem_read_roots": ["data/.env"]}, places)
    assert error.message == f"'{project}/data/.env' is denied by '**/.env'"


@pytest.fixture
def links(project):
    (project / "link-out").symlink_to(project.parent / "elsewhere")
    (project / "data" / "link-up").symlink_to(project)
    (project / "work" / "link-to-data").symlink_to(project / "data")


@pytest.mark.usefixtures("links")
def test_what_allows_more_is_refused_and_changes_nothing(policy, places):
    for key, value in each(WIDER):
        error = refused(policy, {key: value}, places)
        assert isinstance(error, WideningError), error
        assert (error.file, error.key) == ("the cell", key), (key, value)
        assert "Only the policy of the kernel can allow more" in error.remedy, (key, value)
        with pytest.raises(WideningError, match=re.escape(str(error))):
            narrow(policy, {key: value}, places=places)


#: What is as narrow as it gets, and what it would become.
BACK = {
    "mode": ("safe", ["confined", "unsafe"]),
    "on_unsupported": ("error", ["warn", "ignore"]),
    "display": ("text", ["sanitized", "isolated"]),
    "subprocess_execution": (False, [True]),
    "package_installation": (False, [True]),
    "network_access": (False, [True, ["example.org:443"]]),
    "ports": ((), ["any", [8050]]),
    "devices": (("nvidia:0",), [["nvidia"], ["nvidia:1"], ["/dev/nvidia0"], ["dri"]]),
}


def test_what_is_narrow_does_not_go_back(policy, places):
    for field, (narrowest, others) in BACK.items():
        strict = policy.replace(**{field: narrowest})
        for value in others:
            with pytest.raises(WideningError):
                narrow(strict, {field: value}, places=places)


def test_a_policy_from_elsewhere_that_allows_more_is_refused(policy):
    check_narrower(policy, policy, file="theirs")
    check_narrower(policy, policy.replace(subprocess_execution=False), file="theirs")
    with pytest.raises(WideningError, match="it is off"):
        check_narrower(policy.replace(subprocess_execution=False), policy, file="theirs")
    with pytest.raises(WideningError):
        check_narrower(policy, policy.replace(backend="noop"), file="theirs")


def test_what_is_no_value_of_the_field_is_refused_and_changes_nothing(policy, places):
    for key, value in each(NONSENSE):
        assert refused(policy, {key: value}, places).key.startswith(key), (key, value)


@pytest.mark.parametrize(
    "key", ["Timeout", "TIMEOUT", "timeout ", "ｔimeout", "add", "", "extends"]
)
def test_a_key_that_is_no_field_is_refused(policy, places, key):
    _, (error,) = try_narrow(policy, {key: 1}, places=places)
    assert (error.message, error.key) == ("no such key", key)


def test_the_project_cannot_lend_a_root_by_a_link(policy, places, project):
    (project / "link").symlink_to(project.parent / "elsewhere")
    _, (error,) = try_narrow(policy, {"filesystem_read_roots": ["{project}/link"]}, places=places)
    assert isinstance(error, WideningError)
    assert f"'{project.parent / 'elsewhere'}' lies beneath none of" in error.message


def test_a_link_to_what_is_readable_is_taken_by_where_it_leads(policy, places, project):
    (project / "link").symlink_to(project / "data" / "raw")
    narrowed = narrow(policy, {"filesystem_read_roots": ["link"]}, places=places)
    assert narrowed.filesystem_read_roots == (str(project / "data" / "raw"),)


def test_what_was_weighed_is_not_resolved_again(policy, places, project, monkeypatch):
    work, real = project / "work", os.path.realpath

    def swap(path):
        found = real(path)
        if found == str(work / "out") and not (work / "out").is_symlink():
            (work / "out").rename(work / "away")
            (work / "out").symlink_to(project.parent / "elsewhere")
        return found

    monkeypatch.setattr("cellblock.policy.paths.os.path.realpath", swap)
    _, (error,) = try_narrow(policy, {"filesystem_read_roots": ["work/out"]}, places=places)
    assert (error.message, "elsewhere" in str(error)) == ("no such file or folder", False)


def test_a_refusal_does_not_tell_what_there_is_outside(policy, places, project):
    told = []
    for name in ("elsewhere", "elsewhere?", "no-such-thing", "no-such-thing?"):
        changes = {"filesystem_read_roots": [f"../{name}"]}
        _, (error,) = try_narrow(policy, changes, places=places)
        told.append(str(error).replace(str(project.parent / name.removesuffix("?")), "X"))
    assert len(set(told)) == 1, told


def test_without_a_scratch_folder_nothing_leads_out_of_its_name(policy, places):
    policy = policy.replace(filesystem_write_roots=("{scratch}",))
    places = replace(places, scratch=None)
    inside = narrow(policy, {"filesystem_write_roots": ["{scratch}/a/../b"]}, places=places)
    assert inside.filesystem_write_roots == ("{scratch}/b",)
    for way in ("{scratch}/../..", "{scratch}/../{scratch}2", "{scratch}2"):
        with pytest.raises(PolicyError):
            narrow(policy, {"filesystem_write_roots": [way]}, places=places)


# --- adding, and more than one at once ------------------------------------------------------------


def test_what_denies_can_be_added_to(policy, places, project):
    changes = {"add": {"read_deny_paths": ["data/table.csv"], "require": ["timeout"]}}
    narrowed = narrow(policy, changes, places=places)
    assert narrowed.read_deny_paths == (
        *policy.read_deny_paths,
        str(project / "data" / "table.csv"),
    )
    assert narrowed.require == ("network_access", "timeout")


NOT_ADDED_TO = [name for name in FIELDS if not may_be_added_to(name)] + ["nothing", "add"]


def test_what_allows_can_not_be_added_to(policy, places):
    for key in NOT_ADDED_TO:
        error = refused(policy, {"add": {key: ["x"]}}, places)
        assert error.key == f"add.{key}"


def test_a_list_is_not_cleared_under_cover_of_an_addition(policy, places):
    changes = {"read_deny_paths": [], "add": {"read_deny_paths": ["data"]}}
    _, wrong = try_narrow(policy, changes, places=places)
    assert [error.message for error in wrong if error.key.startswith("add")] == ["said twice"]
    assert any(isinstance(error, WideningError) for error in wrong)


def test_all_that_is_wrong_is_told_and_nothing_is_changed(policy, places):
    changes = {"timeout": 100, "network_access": False, "nonsense": 1, "max_processes": -1}
    kept, wrong = try_narrow(policy, changes, places=places)
    assert kept is policy
    assert {error.key for error in wrong} == {"timeout", "nonsense", "max_processes"}


def test_an_error_says_file_key_value_and_what_to_do(policy, places):
    with pytest.raises(WideningError) as raised:
        narrow(policy, {"timeout": 100}, places=places)
    assert str(raised.value) == (
        "the cell: timeout: 100 is more than 60 (got 100). "
        "Only the policy of the kernel can allow more."
    )


def test_one_limit_can_not_hide_behind_another(policy, places):
    """The limit of all tools is none of a tool's own, and a lower one lifts no other."""
    changes = {"tool_timeout": 1, "tool_timeouts": {"dumps": 6}}
    _, (error,) = try_narrow(policy, changes, places=places)
    assert error.key == "tool_timeouts"
    narrowed = narrow(policy, {"tool_timeout": 1}, places=places)
    assert narrowed.tool_timeouts == {"dumps": 5.0}


def test_what_only_made_sense_with_what_is_gone_goes_too(policy, places):
    policy = policy.replace(mode="safe", pre_imported=("json", "sqlite3"))
    narrowed = narrow(policy, {"allowed_modules": [], "tools": ["json:loads"]}, places=places)
    assert narrowed.pre_imported == ("json",)
    assert narrowed.tool_timeouts == {}


def test_narrowing_twice_is_narrower_still_and_does_not_go_back(policy, places):
    once = narrow(policy, {"timeout": 10, "network_access": ["example.org:443"]}, places=places)
    twice = narrow(once, {"timeout": 5, "network_access": False}, places=places)
    assert (twice.timeout, twice.network_access) == (5.0, False)
    for back in ({"timeout": 10}, {"network_access": ["example.org:443"]}, {"timeout": 60}):
        with pytest.raises(WideningError):
            narrow(twice, back, places=places)


def test_saying_what_is_so_already_changes_nothing(policy, places):
    same = {key: value for key, value in policy.as_dict().items() if key != "audit"}
    assert narrow(policy, same, places=places) == policy
    assert changed_fields(policy, policy) == ()


def test_the_audit_log_is_not_for_cells_to_change(policy, places):
    for field in ("log", "required", "fsync", "sources"):
        value = not getattr(Audit(), field)
        with pytest.raises(
            WideningError, match="the audit log records cells, so cells can't change it"
        ):
            narrow(policy, {"audit": {field: value}}, places=places)


def test_a_list_without_end_is_not_looked_up(policy, places):
    paths = [f"/{number}" for number in range(MAX_ENTRIES + 1)]
    _, (error,) = try_narrow(policy, {"read_deny_paths": paths}, places=places)
    assert error.message == "more than 1,000 entries"


def test_what_takes_a_new_guest_and_what_more_locks():
    fields = {
        who: {key for key, row in ROWS.items() if row.enforced_by is who} for who in EnforcedBy
    }
    assert fields[EnforcedBy.guest] == {
        "mode",
        "allowed_modules",
        "magics",
        "tools",
        "tool_max_in_flight",
        "tool_max_bytes",
        "env_var_access",
    }
    assert fields[EnforcedBy.locks] == {
        "filesystem_read_roots",
        "filesystem_write_roots",
        "filesystem_staged_roots",
        "read_deny_paths",
        "network_access",
        "devices",
        "subprocess_execution",
        "memory_max_bytes",
        "max_processes",
        "max_open_files",
        "max_file_size",
        "stack_max_bytes",
    }


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_root_that_cannot_be_read_is_refused(policy, places, project):
    (project / "data" / "raw").chmod(0)
    with pytest.raises(PolicyError, match="can't read"):
        narrow(policy, {"filesystem_read_roots": ["data/raw"]}, places=places)


def test_a_tool_of_an_mcp_server_gets_no_more_time(policy, places):
    server = McpServer(command=("office",), tools=("*",))
    had = policy.replace(mcp={"office": server}, tool_timeouts={"office_read": 5.0})
    for timeouts in ({"office_read": 6.0}, {"office_other": 1_000.0}):
        with pytest.raises(WideningError, match="is more than"):
            narrow(had, {"tool_timeouts": timeouts}, places=places)
    assert narrow(had, {"tool_timeouts": {"office_read": 4.0}}, places=places)
