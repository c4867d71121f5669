"""What is given by name or in a file is what cells find, value by value."""

import pytest

from cellblock.cli import main as cli
from cellblock.cli.run import join_parameters, parameters
from cellblock.errors import InputError


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ("a.ipynb -p n 3 -o x", "a.ipynb -p n=3 -o x"),
        ("-p n=3 a.ipynb", "-p n=3 a.ipynb"),
        ("--parameter n 3 -p m 4 a.ipynb", "--parameter n=3 -p m=4 a.ipynb"),
        ("-p n a=b x", "-p n=a=b x"),
        ("-p n -1 x", "-p n=-1 x"),
        ("-p n", "-p n"),
        ("-- -p n 3", "-- -p n 3"),
    ],
)
def test_a_name_and_a_value_are_one_word_or_two(given, made):
    assert join_parameters(given.split()) == made.split()


def test_a_value_that_is_json_is_what_it_says_and_any_other_a_text():
    given = ["a=1.5", "b=null", 'c=["x"]', "d=text", "e=", "f=a=b", 'g="3"', "h=NaN"]
    values = [1.5, None, ["x"], "text", "", "a=b", "3", "NaN"]
    assert parameters(given, ()) == dict(zip("abcdefgh", values, strict=True))


def test_what_is_named_comes_before_files_and_a_file_that_is_no_object_is_refused(tmp_path):
    one, two = tmp_path / "1.json", tmp_path / "2.json"
    one.write_text('{"a": 1, "b": 1, "c": 1}')
    two.write_text('{"b": 2, "c": 2}')
    assert parameters(["c=3"], [str(one), str(two)]) == {"a": 1, "b": 2, "c": 3}

    (tmp_path / "x.json").write_text("[1]")
    with pytest.raises(InputError, match="not an object"):
        parameters((), [str(tmp_path / "x.json")])


@pytest.mark.parametrize("wrong", ["n", "=3", "", "\x1b=3"])
def test_what_has_no_name_is_refused(wrong):
    with pytest.raises(InputError):
        parameters([wrong], ())


def test_help_shows_both_ways_to_give_a_parameter(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr("sys.argv", ["cellblock", "run", "--help"])
    with pytest.raises(SystemExit):
        cli.main()
    words = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "NAME=VALUE What cells find in `inputs`; repeatable. NAME VALUE does, too." in words
