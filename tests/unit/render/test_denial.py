import json
import tomllib
from html.parser import HTMLParser

import pytest

from cellblock.render import outcomes as module
from cellblock.render.outcomes import denial, denial_failure, drawn_source
from cellblock.render.text import width

DESIGNED = """\
cellblock did not run this cell: 2 findings                         policy: safe

  line 1  os reads and changes files, processes and the environment
  line 4  open opens files

  Instead of os, line 1: ask the host, ops.read_file("data/a.csv").

  To allow it, write this to cells.toml, by hand or by cellblock policy add
  cells.toml 'LINES'; then run cellblock install --policy cells.toml, and choose
  that kernel.
    extends = "safe"
    add.allowed_modules = ["os"]"""


def plain(*findings, **names):
    return denial(findings, policy_name="safe", file="safe", **names)["text/plain"]


def source(finding):
    return drawn_source(finding, 80)


def test_a_denial_reads_as_designed(two_findings):
    assert plain(*two_findings) == DESIGNED


def test_the_first_line_counts_findings_names_what_was_refused_and_has_room_for_the_policy(finding):
    assert plain(finding()).startswith("cellblock did not run this cell: 1 finding   ")

    text = plain(finding(), source_label="notebooks/a.ipynb cell 3")
    assert text.startswith("cellblock did not run notebooks/a.ipynb cell 3: 1 finding")

    text = denial([finding()], policy_name="p" * 60)["text/plain"]
    assert text.splitlines()[:2] == [
        "cellblock did not run this cell: 1 finding",
        f"policy: {'p' * 39}…",
    ]


def test_findings_that_one_fix_solves_are_one(finding):
    same = [finding(line=line) for line in (1, 2, 2, 30, 31, 32, 33)]
    text = plain(*same)
    assert text.startswith("cellblock did not run this cell: 1 finding ")
    assert "\n  lines 1, 2, 30, 31, 32 and 1 more  os reads and changes" in text
    assert text.count("Instead: ") == 1

    text = plain(finding(), finding(subject="posix", line=3))
    assert "\n  lines 1 and 3  os, posix: reads and changes files, processes" in text

    other = finding(line=3, allows=('add.allowed_modules = ["posix"]',), subject="posix")
    text = plain(finding(), other)
    assert text.startswith("cellblock did not run this cell: 2 findings ")
    assert text.count("Instead: ") == 1
    assert text.endswith('\n    add.allowed_modules = ["os", "posix"]')


def test_what_to_do_instead_names_of_what_it_is_unless_all_have_it(finding):
    first, same, other = (finding(line=n, rewrite=f"ops.http({n // 3})") for n in (1, 2, 3))
    text = plain(first, same, other)
    assert text.count("ops.http(") == 2
    assert "\n  Instead of os, lines 1 and 2: ask" in text
    assert "\n  Instead of os, line 3: ask" in text


def test_one_block_has_each_line_once_and_is_a_whole_file(finding):
    lines = [
        ('add.allowed_modules = ["os"]', 'network_access = ["a.org:443"]'),
        ('add.allowed_modules = ["gc", "os"]',),
        ('network_access = ["b.org:443", "a.org:443"]', "ops.http.allow_private = true"),
    ]
    found = [finding(line=n, allows=each) for n, each in enumerate(lines)]
    for file, more in (("data", {"extends": "data"}), ("/srv/cells.toml", {})):
        card = denial(found, policy_name="x", file=file)["application/vnd.cellblock.denial+json"]
        assert tomllib.loads("\n".join(card["write"])) == more | {
            "add": {"allowed_modules": ["os", "gc"]},
            "network_access": ["a.org:443", "b.org:443"],
            "ops": {"http": {"allow_private": True}},
        }
        assert len(card["write"]) == 3 + len(more)


def test_without_a_line_that_allows_it_there_is_no_block(finding):
    card = denial([finding(allows=())], policy_name="safe", file="safe")
    data = card["application/vnd.cellblock.denial+json"]
    assert (data["allow"], data["write"]) == ("", [])
    assert "To allow it" not in card["text/plain"]


def test_what_to_do_is_no_line_of_a_guests_that_is_no_toml(finding):
    assert "x\ny" not in plain(finding(allows=("a = ", "x\ny", '[add]\nextends = "unsafe')))


def test_a_long_reason_is_wrapped_beside_the_caret_or_below_it(finding):
    lines = source(finding(why="word " * 40))
    assert lines[1].startswith("    │        ^^ os word word")
    assert lines[2].startswith("    │           word word")
    assert all(width(line) <= 80 for line in lines)

    text = "value = first_function(second_function(third_function(x)), open)"
    assert source(finding(excerpt=text, column=59, end_column=63, why="opens files " * 4)) == [
        f"  1 │ {text}",
        f"    │ {' ' * 59}^^^^",
        "    │ os opens files opens files opens files opens files",
    ]


@pytest.mark.parametrize(
    ("text", "column", "drawn", "caret_column"),
    [
        ("x = 漢字 + os", 9, "x = 漢字 + os", 11),
        ("x = e\u0301e\u0301 + os", 11, "x = e\u0301e\u0301 + os", 9),
        (" os", 1, " os", 1),
    ],
    ids=["wide", "combining", "tab as a blank"],
)
def test_the_caret_stands_under_its_name(finding, text, column, drawn, caret_column):
    lines = source(finding(excerpt=text, column=column, end_column=column + 2))
    assert lines[0] == f"  1 │ {drawn}"
    assert lines[1].startswith(f"    │ {' ' * caret_column}^^ ")


def test_a_long_line_is_cut_around_its_caret_and_a_missing_start_is_said(finding):
    text = "a" * 120 + " os " + "b" * 70
    lines = source(finding(excerpt=text, column=121, end_column=123))
    assert lines[0].startswith("  1 │ …aaa")
    assert lines[0].endswith("bbb…")
    assert width(lines[0]) == 80
    assert lines[0].index("os") == lines[1].index("^^")

    shown = finding(excerpt="x" * 40 + "open()", column=258, end_column=262, cut=218)
    lines = source(shown)
    assert lines[0] == f"  1 │ …{'x' * 40}open()"
    assert lines[0].index("open") == lines[1].index("^^^^")


@pytest.mark.parametrize(
    "char", ["\x1b", "\r", "\b", "\x9b", "\u202e", "\u2066", "\u200b", "\u3164"]
)
def test_no_source_text_can_move_the_cursor_reorder_or_hide(finding, char):
    bundle = denial(
        [finding(excerpt=f"os{char} = 1", why=char, remedy=char, rule=char, subject=char)],
        policy_name=char,
        source_label=char,
    )
    assert char not in bundle["text/plain"]
    assert char not in bundle["text/html"]


class Tags(HTMLParser):
    def __init__(self, html):
        super().__init__()
        self.seen, self.attributes = set(), set()
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)
        self.attributes.update(name for name, _ in attrs)


ATTACK = "<script>alert(1)</script><img src=x onerror=alert(1)>\"'`&amp;--><style>"


def test_no_source_text_becomes_markup(finding):
    hostile = finding(excerpt=ATTACK, why=ATTACK, remedy=ATTACK, rule=ATTACK, subject=ATTACK)
    html = denial([hostile], policy_name=ATTACK, source_label=ATTACK)["text/html"]
    tags = Tags(html)
    assert tags.seen == {"div", "span", "code", "pre", "p", "strong", "b"}
    assert tags.attributes == {"style", "role", "aria-level", "aria-label", "aria-hidden"}


def test_the_card_fetches_nothing_and_has_headings_for_screen_readers(two_findings):
    html = denial(two_findings, policy_name="safe")["text/html"]
    assert "url(" not in html
    assert "//" not in html

    html = denial(two_findings, policy_name="safe")["text/html"]
    assert html.count('role="heading"') == 1
    assert 'aria-label="cellblock did not run this cell: 2 findings"' in html


def test_json_says_all_and_can_always_be_sent(finding):
    bundle = denial([finding(excerpt="\udc80 os")], policy_name="\udcff", source_label="\udcff")
    data = bundle["application/vnd.cellblock.denial+json"]
    json.dumps(bundle, ensure_ascii=False).encode()
    assert (data["version"], data["policy"], data["source"], data["total"]) == (1, "?", "?", 1)
    assert data["title"] == "cellblock did not run ?: 1 finding"
    assert data["findings"][0] == {
        "rule": "import-not-allowed",
        "line": 1,
        "column": 7,
        "end_column": 9,
        "excerpt": "? os",
        "subject": "os",
        "why": finding().why,
        "remedy": finding().remedy,
        "allows": ['add.allowed_modules = ["os"]'],
        "reason": f"os {finding().why}",
    }
    assert data["rows"] == [
        {"place": "line 1", "what": "os", "why": finding().why, "several": False, "finding": 0}
    ]
    instead = {"label": "Instead: ", "text": 'ask the host, ops.read_file("data/a.csv").'}
    assert data["instead"] == [instead | {"rewrite": []}]


def test_a_rewrite_stands_below_the_remedy_as_the_lines_it_has(finding):
    shown = finding(rewrite='for entry in ops.list_dir("a"):\n    print(entry)', allows=())
    assert plain(shown).splitlines()[-3:] == [
        '  Instead: ask the host, ops.read_file("data/a.csv").',
        '    for entry in ops.list_dir("a"):',
        "        print(entry)",
    ]
    html = denial([shown], policy_name="safe")["text/html"]
    assert "for entry in ops.list_dir(&quot;a&quot;):\n    print(entry)</pre>" in html


def test_a_guests_rewrite_is_two_lines_and_moves_no_cursor(finding):
    text = plain(finding(rewrite="a\x1b[2J" + "b" * 200 + "\n" * 3 + "c\n" + "d\n" * 50))
    assert "\x1b" not in text
    assert "\n    d" not in text
    assert all(width(line) <= 80 for line in text.splitlines())
    html = denial([finding(rewrite="<script>x</script>")], policy_name="safe")["text/html"]
    assert "<script" not in html


def test_the_reason_is_said_of_its_subject_or_is_a_sentence_of_its_own(finding):
    html = denial([finding()], policy_name="safe")["text/html"]
    assert ">os</code> reads and changes files, processes and the environment</p>" in html

    html = denial([finding(rule="relative-import", why="a cell is in no package")], policy_name="")
    assert "</span> A cell is in no package</p>" in html["text/html"]


@pytest.mark.parametrize(
    ("remedy", "shown"),
    [("Use a magic.", "use a magic."), ("JSON.", "JSON."), ("PurePath only.", "PurePath only.")],
)
def test_a_remedy_continues_its_sentence(finding, remedy, shown):
    assert plain(finding(remedy=remedy, allows=())).endswith(f"  Instead: {shown}")


def test_a_cell_of_nothing_but_findings_makes_a_bounded_card(finding):
    findings = [finding(line=line, why=f"why {line}", allows=()) for line in range(1, 20_001)]
    bundle = denial(findings, policy_name="safe")
    more = "\n  And 19,950 more findings, up to line 20000: 19,950 import-not-allowed\n"
    assert more in bundle["text/plain"]
    assert len(bundle["text/html"]) < 200_000
    assert len(bundle[module.DENIAL_JSON]["findings"]) == 1_000
    assert bundle[module.DENIAL_JSON]["total"] == 20_000


def test_the_published_error_is_one_line_and_the_reply_is_whole(two_findings):
    card = denial(two_findings, policy_name="safe", file="safe")
    failure = denial_failure(card, two_findings)
    line = "2 findings: import-not-allowed at line 1 (os), builtin-not-allowed at line 4 (open)"
    assert failure.published() == {
        "ename": "PolicyDenied",
        "evalue": line,
        "traceback": [f"\x1b[31mPolicyDenied\x1b[0m: {line}"],
    }
    replied = failure.replied()
    head = DESIGNED.splitlines()[0]
    assert "\n".join(replied["traceback"]) == DESIGNED.replace(head, f"\x1b[31m{head}\x1b[0m")


def test_the_summary_names_four_findings(finding):
    findings = [finding(line=line, subject="", why=f"w{line}") for line in range(1, 8)]
    assert denial_failure(denial(findings, policy_name="safe"), findings).evalue == (
        "7 findings: import-not-allowed at line 1, import-not-allowed at line 2, "
        "import-not-allowed at line 3, import-not-allowed at line 4, and 3 more"
    )
