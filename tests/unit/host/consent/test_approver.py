"""Who is asked, in which order, how often, and what an answer is for."""

import dataclasses
import sys

import pytest
from msgspec.structs import replace

from cellblock.analysis import Rules, analyse
from cellblock.analysis.imports import Import
from cellblock.host.consent import approver, request
from cellblock.host.consent.approver import MOST_ASKED
from support.approvals import UNDER, Desk, always_answers, cell, code_in
from support.approvals import call as made_call

RULES = Rules(language=True, modules={"math": None}, raw_modules=frozenset(), magics=frozenset())
BZ2 = Import("module", "bz2", "reads tables")


@pytest.fixture
def later(tmp_path):
    """Return the desk of another kernel, whose first cell runs."""

    def make(**under):
        made = Desk(tmp_path / "data", replace(UNDER, **under))
        made.approver.begin(cell())
        return made

    return make


@pytest.fixture
def desk(later):
    return later()


def ask_import(desk, imports=(BZ2,)):
    decisions = []
    desk.approver.ask_imports(imports, decisions.append)
    return decisions


# --- what an answer is for --------------------------------------------------------------------


def test_a_call_that_is_allowed_once_runs_once(desk):
    first = desk.calls("a", "b")
    assert (desk.ran, desk.refused) == ([], [])
    desk.user.says()
    assert desk.ran == [first]
    desk.calls("a", "b", number=2)
    assert desk.ran == [first]
    assert len(desk.user.questions) == 2


def test_what_was_allowed_runs_and_nothing_else(desk):
    calls = [desk.calls(name, "b", number=n) for n, name in enumerate("abc", 1)]
    assert "path = 'a'" in desk.user.text
    desk.user.says()
    assert "path = 'b'" in desk.user.text
    desk.user.says("no")
    assert "path = 'c'" in desk.user.text
    desk.user.says("once")
    assert desk.ran == [calls[0], calls[2]]
    assert desk.refused == [(2, "you said no")]


def test_what_is_allowed_for_the_session_lets_those_in_line_pass_and_no_later_kernel(desk, later):
    calls = [desk.calls("a", str(n), number=n) for n in range(5)]
    desk.user.says("session")
    assert desk.ran == calls
    assert len(desk.user.questions) == 1
    desk.approver.begin(cell())
    desk.calls("z")
    assert len(desk.ran) == 6
    other = later()
    other.calls("a")
    assert other.ran == []


def test_what_is_allowed_for_always_is_so_later_until_it_is_taken_back(desk, later):
    desk.calls("a")
    desk.user.says("always")
    other = later()
    other.calls("b")
    assert len(other.ran) == 1
    assert other.user.questions == []
    other.store.revoke(None)
    for each in (desk, other):
        each.calls("c", number=9)
        assert len(each.ran) == 1
        assert "may cell" in each.user.text


@pytest.mark.parametrize("changed", ["scope", "policy", "digest"])
def test_what_is_allowed_under_one_policy_in_one_place_is_so_nowhere_else(desk, later, changed):
    desk.calls("a")
    desk.user.says("always")
    other = later(**{changed: "another"})
    other.calls("a")
    assert other.ran == []
    assert len(other.user.questions) == 1


def test_what_can_not_be_kept_holds_for_the_session_and_is_said(desk, tmp_path):
    (tmp_path / "data").write_text("a file in the place of the folder")
    desk.calls("a")
    desk.user.says("always")
    desk.calls("b", number=2)
    assert len(desk.ran) == 2
    (told,) = desk.told
    assert told.startswith("your answer holds for this session, and can't be saved for always: ")
    assert "can't be written: File exists" in told


def test_an_import_once_is_for_one_cell_until_its_end(desk):
    decisions = ask_import(desk)
    assert "may cell [3] import bz2?" in desk.user.text
    desk.user.says()
    assert [d.scope for d in decisions] == ["once"]
    assert desk.approver.granted(RULES).modules == ("bz2",)
    desk.approver.end()
    assert desk.approver.granted(RULES) is None  # nor is it for a handler behind its cell
    desk.approver.begin(cell("another"))
    assert desk.approver.granted(RULES) is None


def test_what_a_required_log_does_not_have_is_not_done_and_not_remembered(desk):
    desk.approver._observe = lambda _wish, decision: "it can't be written" if decision.scope else ""
    desk.calls("a", "b")
    desk.user.says("session")
    assert (desk.ran, desk.refused) == ([], [(1, "it can't be written")])
    decisions = ask_import(desk)
    desk.user.says("session")
    assert [(d.scope, d.why) for d in decisions] == [(None, "it can't be written")]
    assert desk.approver.granted(RULES) is None
    desk.calls("a", "b", number=2)
    assert desk.approver.asks


def test_nothing_is_laid_out_for_a_question_that_is_not_put(desk, monkeypatch):
    laid_out = []
    real = request.with_lines
    monkeypatch.setattr(
        request, "with_lines", lambda wanted: laid_out.append(wanted) or real(wanted)
    )
    for number in range(1, 100):
        desk.calls("a", "b" * number, number=number)
    desk.user.says("session")
    assert (len(desk.ran), len(laid_out)) == (99, 1)


def test_a_file_lets_nothing_in_that_nobody_may_approve_of(desk):
    ask_import(desk, [Import("module", name, "") for name in ("os", "sys", "bz2", "numpy")])
    desk.user.says("always")
    granted = desk.approver.granted(RULES)
    assert (granted.modules, granted.packages) == (("bz2",), ())


# --- a policy that becomes narrower -----------------------------------------------------------


def test_what_was_allowed_for_the_session_is_so_between_cells_and_under_a_narrower_policy(desk):
    desk.calls("a")
    desk.user.says("session")
    desk.approver.end()
    desk.calls("b", number=2)
    assert len(desk.ran) == 2
    desk.approver.narrow_to("e" * 64)
    desk.calls("c", number=3)
    assert len(desk.ran) == 3


def test_a_narrower_policy_is_another_one_for_what_was_allowed_for_always(desk):
    desk.calls("a")
    desk.user.says("always")
    desk.approver.narrow_to("e" * 64)
    desk.calls("b", number=2)
    assert len(desk.ran) == 1
    assert desk.approver.granted(RULES) is None
    desk.user.says("always")
    assert len(desk.ran) == 2
    assert {one.digest for one in always_answers(desk.store)} == {"d" * 64, "e" * 64}


def test_a_package_that_was_approved_of_stays_out_once_the_policy_lets_none_in(desk):
    rules = dataclasses.replace(RULES, raw_modules=frozenset({"numpy"}))
    ask_import(desk, [Import("package", "msgspec", "")])
    desk.user.says("session")
    assert desk.approver.granted(rules).packages == ("msgspec",)
    assert desk.approver.granted(RULES) is None
    desk.approver.begin(cell("another"))  # the session's
    assert desk.approver.granted(rules).packages == ("msgspec",)


# --- answers that are none --------------------------------------------------------------------


def test_what_was_typed_before_the_question_allows_nothing(desk):
    desk.calls("a")
    desk.user.types("once")
    desk.user.types("once")
    assert desk.ran == []
    assert desk.refused == [(1, "you said no")]
    assert len(desk.user.questions) == 2


def test_who_forgot_the_code_is_asked_once_more_with_another(desk):
    desk.calls("a")
    first = code_in(desk.user.text)
    desk.user.types("once")
    assert "┃ That was not taken: type the code" in desk.user.text
    assert code_in(desk.user.text) != first or len(desk.user.questions) == 2
    desk.user.says("once")
    assert len(desk.ran) == 1


def test_a_call_too_long_to_be_shown_is_not_allowed_once_whoever_is_asked(desk, monkeypatch):
    asked = []

    def ask(_shown, _cell, _note, answered):
        asked.append(answered)
        return lambda: None

    monkeypatch.setattr(desk.approver, "_ask", ask)
    desk.calls("a", "\n".join(map(str, range(1000))))
    asked.pop()("once")
    assert desk.ran == []
    ((number, why),) = desk.refused
    assert number == 1
    assert why.startswith("its arguments are too long to be shown whole, so a yes to this one call")
    made = desk.calls("a", "\n".join(map(str, range(1001))), number=2)
    asked.pop()("session")
    assert desk.ran == [made]


def test_the_code_of_one_question_answers_no_other(desk):
    desk.calls("a", number=1)
    first, told_first = desk.user.questions[0]
    desk.user.says("no")
    desk.calls("b", number=2)
    told_first(f"{code_in(first)} always")
    assert desk.ran == []
    desk.user.says()
    assert len(desk.ran) == 1


def test_an_answer_after_the_question_was_taken_back_is_nobodys(desk):
    desk.calls("a")
    desk.approver.dropped(1)
    assert desk.user.withdrawn == 1
    desk.user.says("always")
    assert (desk.ran, desk.refused, desk.entered) == ([], [], [])
    assert always_answers(desk.store) == []


# --- the end of a call, a cell, a guest -------------------------------------------------------


def test_a_call_that_nobody_waits_for_is_asked_about_no_more_and_the_next_is(desk):
    for number in (1, 2):
        desk.calls("a", number=number)
    later = desk.calls("b", number=3)
    desk.approver.dropped(2)
    desk.approver.dropped(1)
    assert desk.user.withdrawn == 1
    assert len(desk.user.questions) == 2
    assert "path = 'b'" in desk.user.text
    desk.user.says()
    assert desk.ran == [later]
    assert not desk.approver.asks


def test_an_interrupt_refuses_what_waits_and_what_comes(desk):
    desk.calls("a", number=1)
    desk.calls("b", number=2)
    desk.approver.interrupt()
    desk.calls("c", number=3)
    assert [number for number, _ in desk.refused] == [1, 2, 3]
    assert {why for _, why in desk.refused} == {"it was interrupted"}
    desk.user.says("always")
    assert desk.ran == []
    desk.approver.begin(cell())
    desk.calls("d", number=4)
    assert "path = 'd'" in desk.user.text


def test_the_end_of_a_cell_refuses_what_waits_and_what_comes(desk):
    desk.calls("a", number=1)
    desk.approver.end()
    desk.calls("b", number=2)
    assert desk.refused == [
        (1, "the cell has ended"),
        (2, "nobody can be asked while no cell runs"),
    ]


# --- who is not asked -------------------------------------------------------------------------


def test_where_nobody_can_be_asked_nothing_is_allowed(desk):
    desk.user.takes_input = False
    desk.calls("a")
    decisions = ask_import(desk)
    why = "nobody can be asked: this front end takes no input"
    assert desk.refused == [(1, why)]
    assert [(d.scope, d.why) for d in decisions] == [(None, why)]


@pytest.mark.parametrize(
    ("word", "most", "why"),
    [
        ("no", 3, "you said no 3 times in this cell"),
        ("once", MOST_ASKED, f"one cell may ask {MOST_ASKED} times"),
    ],
)
def test_a_flood_is_told_no_by_itself_also_where_it_is_always_allowed(desk, word, most, why):
    for number in range(most + 5):
        desk.calls(str(number), number=number)
        if desk.approver.asks:
            desk.user.says(word)
    assert len(desk.user.questions) == most
    assert len(desk.ran) == (most if word == "once" else 0)
    assert desk.refused[-5:] == [(number, why) for number in range(most, most + 5)]


def test_who_asks_the_same_again_is_not_asked_about(desk):
    desk.calls("a")
    desk.user.says("no")
    desk.calls("a", number=2)
    assert desk.refused[1] == (2, "you said no to this in this cell")
    assert len(desk.user.questions) == 1


def test_a_thousand_in_line_are_refused_without_a_thousand_questions(desk):
    for number in range(1_000):
        desk.calls(str(number), number=number)
    for _ in range(3):
        desk.user.says("no")
    assert len(desk.refused) == 1_000
    assert len(desk.user.questions) == 3


def test_what_is_no_data_is_refused_unseen(desk):
    broken = replace(made_call(), arguments=b"\xc1")
    desk.approver.decide(broken, lambda: desk.ran.append(1), desk.refused.append)
    assert desk.refused == ["its arguments are no data that can be shown"]
    assert desk.user.questions == []


# --- what is entered --------------------------------------------------------------------------


def test_each_answer_is_entered_and_what_needed_none_once_a_cell(desk):
    desk.calls("a")
    desk.user.says()
    desk.calls("b", number=2)
    desk.user.says("session")
    for number in range(3, 9):
        desk.calls("c", number=number)
    assert [(d.scope, d.why, d.asked) for _, d in desk.entered] == [
        ("once", "", True),
        ("session", "", True),
        ("session", "", False),
    ]
    wanted = desk.entered[0][0]
    assert (wanted.of, wanted.subjects, len(wanted.sha256)) == ("call", ("ops.write_file",), 64)


def test_the_time_of_a_user_is_told(desk):
    heard = []
    desk.approver.on_waiting(heard.append)
    desk.calls("a", number=1)
    desk.calls("b", number=2)
    desk.user.says()
    desk.user.says()
    assert heard == [True, False, True, False]


# --- what is installed ------------------------------------------------------------------------


@pytest.fixture
def environment(tmp_path, monkeypatch):
    """Return a folder in which a test makes places that Python imports from."""
    places = {
        "site": tmp_path / "env/lib/site-packages",
        "dist": tmp_path / "env/lib/dist-packages",
        "beside": tmp_path / "env/lib/site-packages-of-a-cell",
        "above": tmp_path / "env/lib",
        "notebook": tmp_path / "notebook",
        "elsewhere": tmp_path / "elsewhere",
    }
    for folder in places.values():
        folder.mkdir(parents=True, exist_ok=True)
    on_path = [str(folder) for name, folder in places.items() if name != "elsewhere"]
    monkeypatch.setattr(sys, "path", [*sys.path, *on_path])
    approver._folders.cache_clear()
    yield places
    approver._folders.cache_clear()


def module(folder):
    (folder / "aquarium.py").touch()


def package(folder):
    (folder / "aquarium").mkdir()
    (folder / "aquarium/__init__.py").touch()


def namespace(folder):
    (folder / "aquarium").mkdir()


def linked(folder):
    package(folder.parents[2] / "elsewhere")
    (folder / "aquarium").symlink_to(folder.parents[2] / "elsewhere/aquarium")


def linked_within(folder):
    package(folder.parent / "dist-packages")
    (folder / "aquarium").symlink_to(folder.parent / "dist-packages/aquarium")


@pytest.mark.parametrize(
    ("place", "made", "expected"),
    [
        ("site", module, True),
        ("site", package, True),
        ("dist", package, True),
        ("site", linked_within, True),
        ("site", namespace, False),
        ("site", linked, False),
        ("beside", module, False),
        ("beside", package, False),
        ("above", package, False),
        ("notebook", module, False),
        ("notebook", package, False),
        ("elsewhere", package, False),
    ],
)
def test_only_what_is_installed_can_be_asked_for(desk, environment, place, made, expected):
    """What a cell can write beside a notebook, or beside the environment, is its own code."""
    made(environment[place])
    assert approver.is_installed("aquarium") is expected
    rules = dataclasses.replace(RULES, raw_modules=frozenset({"numpy"}))
    assert (
        bool(desk.approver.imports_to_ask_about(analyse("import aquarium", rules), rules))
        is expected
    )


def test_what_a_kernel_installed_for_its_cells_is_installed_for_that_kernel(environment):
    package(environment["elsewhere"])
    assert not approver.is_installed("aquarium")
    assert approver.is_installed("aquarium", (str(environment["elsewhere"]),))
