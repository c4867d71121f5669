import json
import re
from dataclasses import astuple
from types import SimpleNamespace

import pytest

from cellblock.analysis import Finding
from cellblock.policy.model import Policy
from cellblock.render.cards import (
    AMBER,
    GREEN,
    RED,
    REFUSAL_JSON,
    escape,
    problem,
    problem_failure,
    value_words,
)
from cellblock.render.outcomes import (
    Reason,
    Refusal,
    Remedy,
    State,
    denial,
    denial_failure,
    refusal_card,
    stopped,
    stopped_failure,
)
from cellblock.render.policy_card import (
    Change,
    Guest,
    allowances,
    gaps,
    narrowed,
    policy_table,
    unverified,
)
from cellblock.render.text import visible, width

ATTACK = "<script>\u202e\x1b]0;x\x07</script>\udc80"

GAP = SimpleNamespace(
    capability="filesystem_names",
    status="partial",
    asked="only names under the roots",
    actual="contents only",
    consequence="cells can see the names of your files",
    remedy="install bubblewrap for a private mount namespace",
)
ENFORCED = SimpleNamespace(
    capability="network_access",
    status="verified",
    mechanism="seccomp: socket() by family",
    holes=(),
    evidence="probe",
)
VIEW = {
    "name": "safe",
    "mode": "safe",
    "backend": "landlock",
    "network_access": False,
    "memory_max_bytes": 2 << 30,
}


def test_gaps_and_that_there_are_none_read_as_designed():
    assert gaps([GAP], policy_name="safe", backend="landlock")["text/plain"] == (
        """\
On this machine cells can see the names of your files
  → install bubblewrap for a private mount namespace
  %policy shows all that is enforced."""
    )

    data = gaps([GAP], policy_name="safe", backend="landlock")
    assert data["application/vnd.cellblock.enforcement+json"] == {
        "version": 1,
        "title": "On this machine cells can see the names of your files",
        "policy": "safe",
        "backend": "landlock",
        "gaps": [vars(GAP)],
    }

    text = gaps([GAP, UNENFORCED], policy_name="safe", backend="landlock")["text/plain"]
    assert text == (
        """\
Not everything in this policy is enforced on this machine
  cells can see the names of your files
  a cell can send data anywhere
  → install bubblewrap for a private mount namespace
  → use Linux
  %policy shows all that is enforced."""
    )

    bundle = gaps([], policy_name="safe", backend="landlock")
    assert bundle["text/plain"].startswith("Everything in this policy is enforced on this machine")
    assert "Everything in this policy is enforced" in bundle["text/html"]


def test_why_a_policy_is_not_verified_is_a_sentence():
    said = unverified([GAP], "landlock", "")
    assert said == "Not everything in this policy is enforced on this machine."


UNENFORCED = SimpleNamespace(
    capability="network_access",
    status="unenforced",
    asked="not allowed",
    actual="none",
    consequence="a cell can send data anywhere",
    remedy="use Linux",
)


def test_under_noop_the_card_is_red_and_says_that_nothing_is_enforced():
    bundle = gaps([UNENFORCED], policy_name="safe", backend="noop")
    assert bundle["text/plain"] == (
        """\
✗ Audit only: nothing of this policy is enforced by the operating system
  a cell can send data anywhere
  → use Linux
  %policy shows all that is enforced."""
    )
    assert f"border-left:4px solid {escape(RED)}" in bundle["text/html"]
    assert AMBER not in bundle["text/html"]
    assert "Audit only: nothing of this policy" in bundle["text/html"]


@pytest.mark.parametrize("found", [[], [UNENFORCED]])
def test_no_card_under_noop_calls_the_policy_enforced(found):
    table = policy_table(VIEW | {"backend": "noop"}, [], found)
    for bundle in (gaps(found, policy_name="safe", backend="noop"), table):
        assert "enforced on this machine" not in bundle["text/plain"] + bundle["text/html"]
        assert f"border-left:4px solid {escape(RED)}" in bundle["text/html"]
    assert table["text/plain"].startswith(
        "Policy safe: audit only, nothing here is enforced by the OS\n"
    )


def test_the_policy_table_reads_line_by_line_and_names_gaps_and_holes():
    assert policy_table(VIEW, [ENFORCED], [])["text/plain"] == (
        """\
Policy safe: enforced on this machine
mode: safe, backend: landlock
  network_access             no
                             ✓ verified: seccomp: socket() by family
  memory_max_bytes           2 GiB
Unused fields are left out: cellblock policy show has all."""
    )

    bundle = policy_table(VIEW, [ENFORCED], [GAP])
    assert bundle["text/plain"].startswith("Policy safe: 1 gap on this machine\n")
    assert bundle["text/plain"].split("\n")[-3:-1] == [
        "  filesystem_names           cells can see the names of your files",
        "                             → install bubblewrap for a private mount namespace",
    ]

    partial = SimpleNamespace(**{**vars(ENFORCED), "status": "partial", "holes": ("vsock",)})
    bundle = policy_table(VIEW, [partial], [])
    assert "not covered: vsock" in " ".join(bundle["text/plain"].split())
    assert "not covered: vsock" in bundle["text/html"]

    gap = SimpleNamespace(**vars(GAP) | {"capability": "network_access", "consequence": "vsock"})
    for words in policy_table(VIEW, [partial], [gap]).values():
        assert str(words).count("vsock") == (2 if isinstance(words, dict) else 1)

    set_only = SimpleNamespace(**{**vars(ENFORCED), "status": "asserted"})
    bundle = policy_table(VIEW, [set_only], [])
    assert "; cellblock doctor tries what can be tried." in " ".join(bundle["text/plain"].split())
    assert bundle["text/html"].count(">cellblock doctor</code> tries what can be tried.") == 1
    assert bundle["text/plain"].startswith("Policy safe: in place on this machine, and not tried\n")
    assert escape(GREEN) not in bundle["text/html"]

    odd = SimpleNamespace(**{**vars(ENFORCED), "status": "splendid"})
    assert "? splendid" in policy_table(VIEW, [odd], [])["text/plain"]


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (tuple("abcdefghijklmn"), (*"abcdefghijklmn", "/private"), "/private (narrowed), a, b, c,"),
        ((), ("/private",), "/private (narrowed)\n"),
        (("/private", "b"), ("b",), "b (narrowed: without /private)\n"),
        (("/private",), (), "none (narrowed from /private)\n"),
    ],
)
def test_what_a_narrowing_added_to_a_list_comes_first(before, after, words):
    view = VIEW | {"read_deny_paths": after}
    assert words in policy_table(view, [], [], {"read_deny_paths": before})["text/plain"]


def test_fields_that_are_not_looked_for_first_are_folded_away_unless_they_differ():
    view = VIEW | {"max_open_files": 64, "max_processes": 8}
    html = policy_table(view, [ENFORCED], [], {"max_processes": 9})["text/html"]
    # A name's parts are elements of their own, between which it may be broken.
    shown, folded = (re.sub("</?span[^>]*>", "", part) for part in html.split("<details>"))
    assert ["max_open_files" in part for part in (shown, folded)] == [False, True]
    assert ["max_processes" in part for part in (shown, folded)] == [True, False]
    assert "1 more field<" in folded


def test_the_policy_table_says_what_is_narrower_than_at_the_start():
    bundle = policy_table(VIEW, [ENFORCED], [], {"network_access": True})
    assert bundle["text/plain"].startswith("Policy safe (narrowed): enforced on this machine\n")
    assert "no (narrowed from yes)" in bundle["text/plain"]
    assert "no (narrowed from yes)" in bundle["text/html"]
    data = bundle["application/vnd.cellblock.policy+json"]
    assert data["narrowed_from"] == {"network_access": True}
    plain = policy_table(VIEW, [ENFORCED], [])["application/vnd.cellblock.policy+json"]
    assert "narrowed_from" not in plain


ROWS = [
    Change("network_access", True, False),
    Change("timeout", 60.0, 10.0),
    Change("allowed_modules", ("numpy", "pandas", "scipy"), ("pandas",)),
    Change("read_deny_paths", ("/a",), ("/a", "/b")),
    Change("filesystem_read_roots", ("/a", "/b"), ("/a/c",)),
    Change("env_var_access", ("SHELL",), ()),
    Change("memory_max_bytes", None, 1 << 30),
]


def test_a_narrowing_reads_as_what_is_left():
    lost = ["1 running thread (t)"]
    bundle = narrowed(ROWS, policy_name="data (narrowed)", guest=Guest.kept, lost=lost, gaps=[GAP])
    assert bundle["text/plain"] == (
        """\
The policy is narrower from the next cell on
  network_access             yes → no
  timeout                    60 s → 10 s
  allowed_modules            without numpy, scipy
  read_deny_paths            also /b
  filesystem_read_roots      /a, /b → /a/c
  env_var_access             SHELL → none
  memory_max_bytes           no limit → 1 GiB
Your variables are kept, and cells run under the new limits. Not kept: 1 running
thread (t).
It stays so until the kernel is restarted.
Not everything of it is enforced here:
  filesystem_names           cells can see the names of your files
                             → install bubblewrap for a private mount namespace"""
    )
    assert bundle["application/vnd.cellblock.narrowing+json"] == {
        "version": 1,
        "title": "The policy is narrower from the next cell on",
        "policy": "data (narrowed)",
        "guest": "kept",
        "lost": lost,
        "changes": [
            {
                "field": field,
                "before": value_words(field, before),
                "after": value_words(field, after),
            }
            for field, before, after in map(astuple, ROWS)
        ],
        "gaps": [vars(GAP)],
    }


def test_a_narrowing_says_what_became_of_the_variables_and_where_nothing_changes():
    said = {
        guest: narrowed(ROWS[:1], policy_name="safe", guest=guest)["text/plain"].split("\n")[2:]
        for guest in Guest
    }
    good = "It stays so until the kernel is restarted."
    assert said == {
        Guest.same: [good],
        Guest.new: [good],
        Guest.kept: [
            "Your variables are kept, and cells run under the new limits.",
            good,
        ],
        Guest.instead: [
            "Your variables are gone: cells start afresh, and under the new limits.",
            good,
        ],
    }

    bundle = narrowed([], policy_name="safe", guest=Guest.same)
    assert bundle["text/plain"] == "Nothing changes: the policy is as narrow as that already"


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("network_access", True, "yes"),
        ("cpu_seconds", None, "no limit"),
        ("memory_max_bytes", 1536 << 20, "1.5 GiB"),
        ("stdout_max_bytes", 100, "100 bytes"),
        ("timeout", 60.0, "60 s"),
        ("max_processes", 64, "64"),
        ("max_file_size", "65536", "64 KiB"),
        ("max_file_size", 64 << 20, "64 MiB"),
        ("magics", frozenset({"time", "capture"}), "capture, time"),
        ("require", (), "none"),
        (
            "read_deny_paths",
            tuple("abcdefghijklmn"),
            "a, b, c, d, e, f, g, h, i, j, k, l, and 2 more",
        ),
        ("env", {"LANG": "C"}, "LANG: C"),
    ],
)
def test_values_are_said_as_a_person_would(field, value, words):
    assert value_words(field, value) == words


def test_a_remedy_says_which_kernel_has_it():
    found = Refusal("timeout", "cells end", Remedy("timeout = 2.0", instead="do less"))
    add = "cellblock policy add /srv/cells.toml 'LINES'"
    for name, file, said, block in (
        (
            "data",
            "data",
            (
                "write this to cells.toml, by hand or by cellblock policy add cells.toml "
                "--extends data 'LINES'; then run cellblock install --policy cells.toml, and "
                "choose that kernel."
            ),
            ('extends = "data"', "timeout = 2.0"),
        ),
        (
            "lab",
            "/srv/cells.toml",
            f"add this to your policy file /srv/cells.toml, by {add}, and restart the kernel.",
            ("timeout = 2.0",),
        ),
    ):
        bundle = refusal_card(found, name, file)
        assert f"To allow it, {said}" in " ".join(bundle["text/plain"].split())
        assert "".join(f"\n    {line}" for line in block) in bundle["text/plain"]
        assert bundle[REFUSAL_JSON]["allow"] == f"To allow it, {said}"
        assert tuple(bundle[REFUSAL_JSON]["write"]) == block
        assert bundle[REFUSAL_JSON]["instead"] == "Or do less."
    bundle = refusal_card(found, "lab", "/srv/cells.toml", is_operators=True)
    allow = f"To allow it, ask whoever keeps /srv/cells.toml to add this, by {add}."
    assert bundle[REFUSAL_JSON]["allow"] == allow


def test_a_stop_reads_as_designed_with_a_snapshot_and_without():
    bundle = stopped("timeout", "60 s", state=State.restored, lost=["1 running thread"])
    assert bundle["text/plain"] == (
        """\
cellblock stopped this cell: it ran longer than 60 s (timeout).
Your variables are as they were before it. Not restored: 1 running thread.
To raise it, set timeout in a policy file of your own (cellblock install
--policy FILE). %policy shows what is set now."""
    )

    bundle = stopped(Reason.crashed, "signal 11", state=State.gone)
    assert bundle["text/plain"] == (
        """\
cellblock lost this cell: its interpreter crashed (signal 11).
Your variables are gone: the interpreter was restarted. Run your cells again."""
    )
    assert bundle["application/vnd.cellblock.outcome+json"] == {
        "version": 1,
        "title": "cellblock lost this cell: its interpreter crashed (signal 11).",
        "outcome": "stopped",
        "reason": "crashed",
        "limit": "signal 11",
        "state": "gone",
        "notes": ["Your variables are gone: the interpreter was restarted. Run your cells again."],
        "lost": [],
    }


@pytest.mark.parametrize("reason", list(Reason))
@pytest.mark.parametrize("limit", ["", "60 s"])
def test_every_reason_makes_a_whole_sentence(reason, limit):
    failure = stopped_failure(stopped(reason, limit, state=State.gone))
    assert failure.ename == "CellStopped"
    assert "{" not in failure.report
    assert "()" not in failure.report


def test_what_has_backticks_is_code_in_html_and_has_none_in_text():
    bundle = problem("No", "as `a <b>` says", remedy="Run `cellblock doctor`.")
    assert bundle["text/plain"] == "No\n  as a <b> says\n  Instead: Run cellblock doctor."
    assert ">a &lt;b&gt;</code> says" in bundle["text/html"]
    assert ">cellblock doctor</code>." in bundle["text/html"]


def test_a_problem_names_file_key_value_and_remedy():
    bundle = problem("The policy can't be used", "unknown key", "/a.toml", "mode", "x", "remove it")
    assert bundle["text/plain"] == (
        """\
The policy can't be used
  unknown key
  File:  /a.toml
  Key:   mode
  Value: x
  Instead: remove it"""
    )
    assert problem_failure(problem("T", "unknown\nkey"), "unknown\nkey").evalue == "unknown key"


def every_card_made_of(text):
    gap = SimpleNamespace(**{**dict.fromkeys(vars(GAP), text), "status": "partial"})
    enforced = SimpleNamespace(
        **{**dict.fromkeys(vars(ENFORCED), text), "holes": (text,), "status": "partial"}
    )
    yield gaps([gap], policy_name=text, backend=text)
    yield policy_table({text: text, "name": text, "mode": text}, [enforced], [gap])
    yield policy_table({text: text, "name": text}, [enforced], [gap], {text: text})
    rows = [Change(text, text, text), Change(text, (text,), (text, text + "2"))]
    yield narrowed(rows, policy_name=text, guest=Guest.kept, lost=[text], gaps=[gap])
    yield stopped("crashed", text, state=State.restored, lost=[text])
    yield problem(*[text] * 6)


def test_no_value_becomes_markup_an_escape_or_unsendable_text():
    for bundle in every_card_made_of(ATTACK):
        json.dumps(bundle, ensure_ascii=False, allow_nan=False).encode()
        assert "<script>" not in bundle["text/html"]
        for text in (bundle["text/plain"], bundle["text/html"]):
            assert "\u202e" not in text
            assert "\x1b" not in text


def every_failure_made_of(text):
    finding = Finding(1, 0, 2, "import-not-allowed", *[text] * 4)
    for reason in Reason:
        yield stopped_failure(stopped(reason, text, state=State.restored, lost=[text]))
    yield problem_failure(problem(*[text] * 6), text)
    yield denial_failure(denial([finding], policy_name=text), [finding])


def test_no_error_beside_a_card_carries_an_escape_but_our_colours_or_unsendable_text():
    for failure in every_failure_made_of(ATTACK):
        for error in (failure.published(), failure.replied()):
            json.dumps(error, ensure_ascii=False, allow_nan=False).encode()
            for text in (error["evalue"], *error["traceback"]):
                bare = text.replace("\x1b[31m", "").replace("\x1b[0m", "")
                assert visible(bare) == bare


def test_every_card_fits_80_columns():
    for bundle in every_card_made_of("some-long-words " * 20):
        assert max(map(width, bundle["text/plain"].splitlines())) <= 80


def test_a_limit_that_is_not_asked_for_is_not_called_unenforced():
    missing = SimpleNamespace(**{**vars(ENFORCED), "status": "unenforced", "mechanism": "none"})
    text = policy_table({"name": "safe", "network_access": None}, [missing], [])["text/plain"]
    assert "unenforced" not in text


def test_a_model_is_told_only_of_fields_that_matter_to_who_writes_cells():
    said = allowances(Policy.preset("data").as_dict(), (), None)
    fields = {line.partition(":")[0] for line in said.splitlines()}
    assert {"network_access", "memory_max_bytes", "undo_depth"} <= fields
    others = ("audit.folder", "on_unsupported", "preload_when_idle", "undo_max_bytes")
    assert fields.isdisjoint(others)
