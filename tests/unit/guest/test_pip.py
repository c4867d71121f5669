"""What a cell is told that installs packages, in each way to spell that."""

import sys
from importlib import metadata

import pytest

from cellblock.guest.pip import answer_in_script, answer_pip

MSGSPEC = f"msgspec {metadata.version('msgspec')}"


@pytest.mark.parametrize(
    "command",
    [
        "pip install msgspec",
        "pip3 install msgspec",
        "python -m pip install -U msgspec",
        "/usr/bin/env python3 -m pip install msgspec",
        f"{sys.executable} -m pip install --upgrade msgspec",
        f"'{sys.executable}' -m pip install msgspec",
        f"{sys.prefix}/bin/pip install msgspec",
        "uv pip install msgspec",
        "pip install 'msgspec>=0.1' 2>/dev/null",
        "pip install msgspec>=0.1",
        "pip install msgspec<900  # the newest",
        "pip install msgspec; ".rstrip("; "),
    ],
)
def test_what_is_installed_is_said_in_one_line(command):
    assert answer_pip(command) == (f"Requirement already satisfied: {MSGSPEC}\n", True)


def test_several_are_said_together_and_a_file_is_read(tmp_path):
    (tmp_path / "wanted.txt").write_text("msgspec>0  # frames\n\n-i https://x\npytest\n")
    both = f"Requirement already satisfied: {MSGSPEC}, pytest {metadata.version('pytest')}\n"
    for spelling in ("-r ", "-r", "--requirement=", "--requirement "):
        assert answer_pip(f"pip install {spelling}{tmp_path}/wanted.txt") == (both, True)
    assert answer_pip("pip install msgspec pytest -i https://x") == (both, True)


def test_what_is_sent_elsewhere_or_to_be_quiet_is_not_said():
    for command in ("msgspec >/dev/null 2>&1", "-q msgspec", "msgspec --quiet"):
        assert answer_pip(f"pip install {command}") == ("", True)


@pytest.mark.parametrize("wanted", ["nosuchthing", "msgspec==0.0.1", "msgspec @ https://x/y.whl"])
def test_what_is_not_installed_as_asked_is_named_with_where_to_install_it(wanted):
    said = answer_pip(f"pip install pytest '{wanted}'")
    assert not said.success
    assert f"this is not installed as asked: {wanted}\n" in said.text
    assert "In a terminal: " in said.text


@pytest.mark.parametrize(
    "command",
    [
        "pip install",
        "pip download msgspec",
        "pip install a | cat",
        "pip install `x`",
        "echo pip install a",
    ],
)
def test_other_commands_run(command):
    assert answer_pip(command) is None


def test_lines_of_a_script_are_answered_and_a_here_document_is_left_alone():
    script = "set -e\npip install msgspec\necho pip\n"
    said = f"set -e\nprintf %s 'Requirement already satisfied: {MSGSPEC}\n'\necho pip\n"
    assert answer_in_script(script) == said
    assert answer_in_script("pip install nosuchthing").endswith(" >&2; false")
    for untouched in ("cat <<E\npip install msgspec\nE\n", "echo \\\npip install msgspec\n"):
        assert answer_in_script(untouched) == untouched
