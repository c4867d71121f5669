"""The profile for macOS, read by a parser: what it says, and that no path can say more.

That it holds is tried on macOS (tests/macos); nothing here stands for that.
"""

from __future__ import annotations

import os
import stat
import sys
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cellblock.backends import plan, seatbelt
from cellblock.backends.base import ORDER, choose, unprobed
from cellblock.backends.landlock import Landlock
from cellblock.backends.report import doctor_report, gaps
from cellblock.backends.seatbelt import TEMPLATE, Seatbelt, executables
from cellblock.errors import BackendError, PolicyError
from cellblock.policy.folders import package_folder
from cellblock.policy.load import load
from cellblock.policy.model import CAPABILITIES, Policy, Status
from cellblock.policy.operations import Install, Operations
from support.sbpl import Profile, parse, strings

SUPPORT = unprobed("for a test", usable=True)
PRESETS = ("safe", "data", "unsafe")


class Place:
    """A user's folders, and profiles for policies about them."""

    def __init__(self, root):
        self.root = Path(os.path.realpath(root))
        self.home, self.scratch = self.root / "home", self.root / "scratch"
        self.project = self.home / "project"
        for folder in (self.scratch, self.project / "work", self.home / ".ssh"):
            folder.mkdir(parents=True)
        (self.home / ".ssh/id_rsa").write_text("key")
        (self.home / "notes").write_text("notes")

    def policy(self, preset="safe", **fields):
        where = {"project": self.project, "scratch": self.scratch}
        return load(preset, **where, allow_unsafe=True).replace(**fields)

    def wrapped(self, policy, private=()):
        where = {"scratch": self.scratch, "project": self.project, "private": private}
        locks = plan.make_plan(policy, Seatbelt(), **where)
        view = plan.make_view(policy, locks, **where)
        return Seatbelt().wrap(["python", "-c", "pass"], view)

    def text(self, *preset, private=(), **fields):
        return self.wrapped(self.policy(*preset, **fields), private)[2]

    def profile(self, *preset, **fields):
        return Profile(self.text(*preset, **fields))


@pytest.fixture
def place(tmp_path, monkeypatch):
    made = Place(tmp_path)
    for name in ("XDG_DATA_HOME", "XDG_RUNTIME_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(made.home))
    monkeypatch.setattr(plan, "_MACOS", True)
    return made


# --- the profile ------------------------------------------------------------------------------


def test_the_zygote_is_started_by_sandbox_exec_under_the_profile(place):
    first, flag, text, *rest = place.wrapped(place.policy())

    assert (first, flag, rest) == ("/usr/bin/sandbox-exec", "-p", ["python", "-c", "pass"])
    assert text.startswith(TEMPLATE.read_text()[:200])


@pytest.mark.parametrize("preset", PRESETS)
def test_a_profile_denies_first_and_imports_nothing(place, preset):
    version, first, *rest = parse(place.text(preset))

    assert (version, first) == (["version", "1"], ["deny", "default"])
    assert {form[0] for form in rest} == {"allow", "deny"}
    assert all(not form[1].startswith("default") for form in rest)


@pytest.mark.parametrize("preset", PRESETS)
def test_a_rule_that_allows_without_naming_what_is_the_one_for_forks(place, preset):
    bare = [rule for rule in place.profile(preset).rules if not rule.filters]

    allowed = [rule.operations for rule in bare if rule.action == "allow"]
    assert allowed == [["process-fork"]]
    denied = [operation for rule in bare if rule.action == "deny" for operation in rule.operations]
    assert denied == [
        "default",
        "process-exec*",
        "mach-lookup",
        "mach-register",
        "network*",
        "file-write-setugid",
    ]


#: Every operation that a rule allows for something, under any preset: none of them has a network.
ALLOWED = {
    "file-map-executable",
    "file-read*",
    "file-read-metadata",
    "file-write*",
    "file-write-data",
    "process-exec",
    "process-fork",
    "process-info*",
    "signal",
    "sysctl-read",
}


@pytest.mark.parametrize("preset", PRESETS)
def test_no_operation_is_allowed_that_no_policy_needs(place, preset):
    rules = [rule for rule in place.profile(preset).rules if rule.action == "allow"]

    programs = {"process-exec*"} if preset == "data" else set()
    assert {operation for rule in rules for operation in rule.operations} == ALLOWED | programs
    (signal,) = [rule for rule in rules if rule.operations == ["signal"]]
    assert signal.filters == [["target", "self"], ["target", "children"]]


@pytest.mark.parametrize("preset", PRESETS)
def test_denials_of_files_come_after_every_grant(place, preset):
    rules = place.profile(preset).rules
    grants = [nth for nth, rule in enumerate(rules) if rule.action == "allow"]
    denials = [
        nth
        for nth, rule in enumerate(rules)
        if rule.operations[0].startswith("file") and rule.action == "deny"
    ]

    assert len(denials) == 3
    assert max(grants) < min(denials)


@pytest.mark.parametrize("preset", PRESETS)
def test_every_string_is_an_absolute_path_or_stands_in_the_template(place, preset):
    fixed = set(strings(parse(TEMPLATE.read_text())))
    said = Profile(place.text(preset)).texts()

    assert fixed <= set(said)
    assert [text for text in said if not text.startswith("/") and text not in fixed] == []


def test_what_the_policy_names_is_what_can_be_reached(place):
    data = place.profile(
        "data", filesystem_write_roots=(f"{place.project}/work", str(place.scratch))
    )
    project, home = str(place.project), str(place.home)

    assert data.allows("file-read-data", f"{project}/a.csv")
    assert not data.allows("file-write-create", f"{project}/a.csv")
    assert data.allows("file-write-create", f"{project}/work/a.csv")
    assert data.allows("file-write-create", f"{place.scratch}/a.csv")
    assert not data.allows("file-read-data", f"{home}/notes")
    assert not data.allows("file-read-metadata", f"{home}/notes")
    assert not data.allows("file-read-data", home)
    assert not data.allows("file-read-data", f"{project}-of-another/a.csv")
    assert not place.profile("safe").allows("file-read-data", f"{project}/a.csv")


def test_what_is_granted_stays_readable_but_not_writable_without_a_policy_for_it(place):
    safe = place.profile()

    assert safe.allows("file-read-data", os.path.realpath(os.__file__))
    assert safe.allows("file-read-data", "/System/Library/Frameworks/x")
    for path in (os.path.realpath(os.__file__), "/usr/lib/x", "/System/Library/x", "/etc/passwd"):
        assert not safe.allows("file-write-data", path)
    for path in ("/etc/passwd", "/private/etc/master.passwd", "/Users/other/x", "/dev/disk0"):
        assert not safe.allows("file-read-data", path)
    assert safe.allows("file-write-data", "/dev/null")
    for operation in ("file-link", "file-mknod", "file-ioctl", "file-clone"):
        assert not safe.allows(operation, f"{place.scratch}/x")
    assert not safe.allows("file-write-setugid", f"{place.scratch}/x")


def test_denied_paths_are_denied_whatever_is_above_them(place):
    (place.home / "Library/Keychains").mkdir(parents=True)
    connection = place.home / "run/kernel-1.json"
    for root in (str(place.home), "/"):
        text = place.text(filesystem_read_roots=(root,), private=[connection])
        profile = Profile(text)

        assert profile.allows("file-read-data", f"{place.home}/notes")
        for name in (".ssh", ".ssh/id_rsa", ".aws/later", "Library/Keychains/login", ".jupyter/x"):
            assert not profile.allows("file-read-data", f"{place.home}/{name}")
            assert not profile.allows("file-read-metadata", f"{place.home}/{name}")
        assert not profile.allows("file-read-data", str(connection))
        assert not profile.allows("file-read-data", "/dev/disk0")
        assert profile.allows("file-read-data", "/dev/urandom")


def test_packages_are_readable_in_the_folder_of_the_hosts_own_that_is_denied(place):
    granted = Operations(install=Install(index="https://example.org/simple", allow=("a",)))
    data, packages = place.home / ".local/share/cellblock", granted.install.store()
    Path(packages, "lib").mkdir(parents=True)
    profile = Profile(place.text(ops=granted, private=[data]))
    assert profile.allows("file-read-data", f"{packages}/lib/a/__init__.py")
    assert not profile.allows("file-write-create", f"{packages}/lib/a.py")
    for path in (
        f"{packages}/beside",
        f"{data}/approval.key",
        f"{package_folder()}/another/lib/a.py",
    ):
        assert not profile.allows("file-read-data", path)


def test_a_link_to_a_denied_folder_denies_where_it_leads(place):
    (place.home / ".aws").symlink_to(place.project / "keys")
    profile = place.profile(filesystem_read_roots=(str(place.home),))

    assert not profile.allows("file-read-data", f"{place.project}/keys/credentials")


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"filesystem_read_roots": ("{home}/.ssh/inner",)}, "filesystem_read_roots"),
        ({"filesystem_write_roots": ("{home}",)}, "filesystem_write_roots"),
        # Or a cell could rename the folder between the root and the keychains.
        ({"filesystem_write_roots": ("{home}/Library",)}, "filesystem_write_roots"),
    ],
)
def test_a_policy_that_contradicts_itself_is_refused(place, fields, named):
    (place.home / ".ssh/inner").mkdir()
    (place.home / "Library/Keychains").mkdir(parents=True)
    fields = {key: tuple(v.format(home=place.home) for v in value) for key, value in fields.items()}

    with pytest.raises(PolicyError) as caught:
        place.text(**fields)

    assert caught.value.key == named


def test_programs_are_executed_only_where_the_policy_has_processes(place):
    without, having = place.profile(), place.profile(subprocess_execution=True)

    for profile in (without, having):
        assert profile.allows("process-fork")
        assert all(profile.allows("process-exec", image) for image in executables())
        assert not profile.allows("process-exec", f"{place.scratch}/made")
    assert not without.allows("process-exec", "/usr/bin/true")
    assert not without.allows("process-exec-interpreter", "/usr/bin/true")
    assert having.allows("process-exec", "/usr/bin/true")
    assert not having.allows("process-exec", "/opt/other")


def test_nothing_is_connected_listened_or_looked_up_without_a_network(place):
    operations = (
        "network-outbound",
        "network-inbound",
        "network-bind",
        "mach-lookup",
        "mach-register",
        "iokit-open",
        "ipc-posix-shm",
        "system-socket",
        "appleevent-send",
        "user-preference-read",
        "signal",
        "sysctl-write",
    )
    for network in (False, ("example.org:443",)):
        rules = place.profile(network_access=network).rules
        for operation in operations:
            assert [r for r in rules if r.covers(operation)][-1].action == "deny"
        assert not [r for r in rules if r.action == "allow" and "network" in str(r.operations)]


def test_a_network_opens_addresses_and_no_local_socket_but_the_resolvers(place):
    rules = place.profile(network_access=True).rules
    opened = [
        (r.operations, r.filters)
        for r in rules
        if r.action == "allow" and r.operations[0].startswith("network")
    ]

    assert opened == [
        (["network-outbound"], [["remote", "ip"], ["literal", "/private/var/run/mDNSResponder"]]),
        (["network-bind", "network-inbound"], [["local", "ip"]]),
    ]


# --- paths that would say more ----------------------------------------------------------------

HOSTILE = (
    'a") (allow default) ("',
    'a"))\n(allow default)\n((',
    "a\\",
    'a\\"',
    "a\\\\",
    "a;b",
    "(allow default)",
    "#|a|#",
    "$read",
    "${read}",
    "a b\u00a0c",
    "日本語 é e\u0301 \u202e \U0001f600",
    '\'`#"^/dev/tty"',
)


@pytest.mark.parametrize("name", [name for name in HOSTILE if "\n" not in name])
def test_a_hostile_name_stays_a_path(place, name):
    plain = place.profile(filesystem_read_roots=(str(place.project / "work"),))
    folder = place.project / name
    folder.mkdir(parents=True)
    profile = place.profile(filesystem_read_roots=(str(folder),))

    assert profile.allows("file-read-data", f"{folder}/x")
    assert not profile.allows("file-read-data", f"{place.home}/notes")
    assert [rule.operations for rule in profile.rules] == [r.operations for r in plain.rules]


#: Not UTF-8, which macOS's file systems refuse themselves.
FOREIGN = () if sys.platform == "darwin" else (b"a\xff",)


@pytest.mark.parametrize("name", ["a\nb", 'a"))\n(allow default)\n((', "a\rb", "a\x1bb", *FOREIGN])
def test_a_name_that_the_language_can_not_carry_is_refused(place, name):
    folder = place.project / os.fsdecode(name)
    folder.mkdir()

    with pytest.raises(PolicyError) as caught:
        place.text(filesystem_read_roots=(str(folder),))

    assert caught.value.value == ascii(str(folder))
    assert str(caught.value).startswith(
        "this policy: a name that no macOS sandbox profile can carry: "
    )


@pytest.mark.parametrize("field", ["read_deny_paths", "filesystem_write_roots"])
def test_what_can_not_be_denied_or_written_is_refused_too(place, field):
    (place.project / "a\nb").mkdir()
    with pytest.raises(PolicyError, match="can carry"):
        place.text(**{field: (str(place.project / "a\nb"),)})


@pytest.mark.parametrize("path", ["", "a", "a/b", "/a/../b", "/a/./b", "/a\0b"])
def test_only_whole_canonical_paths_are_quoted(path):
    with pytest.raises(ValueError, match=r"path|control"):
        seatbelt.quoted(path)


names = st.text(st.characters(exclude_characters="/"), min_size=1, max_size=30) | st.sampled_from(
    HOSTILE
)


@given(st.lists(names, min_size=1, max_size=6))
def test_any_path_is_quoted_so_that_it_is_read_back_or_refused(parts):
    path = "/" + "/".join(parts)
    try:
        text = seatbelt.rule("deny", "file*", seatbelt.trees([path]))
    except ValueError:
        assert {".", ".."} & set(parts) or {"Cc", "Cs"} & set(map(unicodedata.category, path))
        return
    assert parse(text) == [["deny", "file*", ["literal", path], ["subpath", path]]]


def test_a_rule_about_nothing_is_no_rule(place):
    assert seatbelt.rule("allow", "file-read*", ()) == ""
    for rule in place.profile(filesystem_write_roots=(), read_deny_paths=()).rules:
        assert rule.filters or rule.action == "deny" or rule.operations == ["process-fork"]


# --- what is claimed --------------------------------------------------------------------------


@pytest.mark.parametrize("preset", PRESETS)
def test_nothing_is_called_verified(place, preset):
    found = Seatbelt().declare(place.policy(preset), SUPPORT)

    assert list(found) == list(CAPABILITIES)
    assert Status.verified not in {each.status for each in found.values()}


def test_what_a_profile_does_not_do_is_a_gap_with_its_consequence(place):
    policy = place.policy()
    found = {gap.capability: gap for gap in gaps(policy, Seatbelt().declare(policy, SUPPORT))}

    assert found["subprocess_execution"].status is Status.partial
    assert found["subprocess_execution"].consequence == (
        "a cell can fork copies of itself, which stay under the profile; "
        "a cell can execute this interpreter anew, under the profile and without the guards"
    )
    unheld = {"memory_max_bytes", "max_processes", "max_open_files", "max_file_size"}
    assert unheld | {"snapshots", "undo_depth", "max_branches"} <= set(found)
    assert all(gap.consequence and gap.remedy for gap in found.values())
    assert not {"filesystem_read_roots", "network_access"} & set(found)


# --- choosing it ------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform == "darwin", reason="this is macOS")
def test_elsewhere_it_is_unusable_and_says_why():
    for support in (Seatbelt().probe(), Seatbelt().glance()):
        assert not support.usable
        assert support.why == f"needs macOS, and this is {os.uname().sysname}"
        assert support.witnessed == ()


@pytest.mark.skipif(sys.platform == "darwin", reason="this is macOS")
def test_asked_for_elsewhere_it_is_passed_over_and_a_strict_policy_is_refused():
    chosen = choose(Policy().replace(backend="seatbelt"))

    assert chosen.passed_over[0] == ("seatbelt", "needs macOS, and this is Linux")
    with pytest.raises(BackendError, match="backend 'seatbelt' can't be had here"):
        choose(Policy().replace(backend="seatbelt", on_unsupported="error"))


@pytest.mark.skipif(sys.platform == "darwin", reason="this is macOS")
def test_asked_for_elsewhere_it_is_a_gap_that_names_what_is_in_force():
    policy = Policy().replace(backend="seatbelt")
    (gap, *rest) = doctor_report(policy).gaps

    assert (gap.capability, gap.status, gap.asked) == ("backend", "unavailable", "seatbelt")
    assert gap.consequence == (
        f"{gap.actual} is in force instead: seatbelt needs macOS, and this is Linux"
    )
    assert "backend" not in {each.capability for each in rest}
    assert "backend" not in {each.capability for each in doctor_report(Policy()).gaps}


@pytest.fixture
def on_macos(monkeypatch, tmp_path):
    """Have the backend take this for macOS, and a script of the test's for sandbox-exec."""
    monkeypatch.setattr(seatbelt.platform, "system", lambda: "Darwin")

    def put(script):
        command = tmp_path / "sandbox-exec"
        command.write_text(f"#!/bin/sh\n{script}\n")
        command.chmod(stat.S_IRWXU)
        monkeypatch.setattr(seatbelt, "SANDBOX_EXEC", str(command))

    return put


NOT_WITNESSED = "not witnessed: files, names, writes, links, sockets, programs"
#: What stands in place of sandbox-exec, and what the probe says of it.
UNUSABLE = {
    'shift 2; exec "$@"': NOT_WITNESSED,  # it holds nothing
    "echo 'sandbox_apply: Operation not permitted' >&2; exit 71": (
        "the probe ended with 71: sandbox_apply: Operation not permitted"
    ),
    "echo nonsense": "the probe gave no answer: Expecting value: line 1 column 1 (char 0)",
    "echo '[1]'": "the probe gave no answer",
    """echo '{"files": false}'""": NOT_WITNESSED,
}


@pytest.mark.parametrize("script", UNUSABLE)
def test_a_sandbox_exec_that_holds_nothing_fails_or_lies_short_is_found_out(on_macos, script):
    on_macos(script)
    support = Seatbelt().probe()
    assert (support.usable, support.why) == (False, UNUSABLE[script])


def test_without_sandbox_exec_it_is_unusable(on_macos, monkeypatch):
    on_macos("exit 0")
    monkeypatch.setattr(seatbelt, "SANDBOX_EXEC", "/nowhere/sandbox-exec")

    assert Seatbelt().probe().why == "no /nowhere/sandbox-exec"


def test_auto_takes_it_where_it_is_the_strongest_and_a_strict_policy_is_no_obstacle(monkeypatch):
    monkeypatch.setattr(Landlock, "probe", lambda _: unprobed("no", usable=False))
    monkeypatch.setattr(Seatbelt, "probe", lambda _: SUPPORT)

    chosen = choose(Policy().replace(require=("network_access",)))
    assert chosen.backend.name == "seatbelt"
    assert ORDER[-1] == "noop"


def test_every_place_that_is_always_readable_can_be_said():
    assert all(seatbelt.quoted(path) for path, _ in (*plan.SYSTEM, *plan.PROGRAMS))


def test_a_scratch_folder_in_a_private_place_is_refused(place, monkeypatch):
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(place.root))

    with pytest.raises(PolicyError, match="never readable"):
        place.text()
