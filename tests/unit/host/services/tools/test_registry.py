"""What is a tool and what is none, and what cells are told of one."""

import functools
from pathlib import Path

import pandas as pd
import pytest

from cellblock.host.services.tools import registry
from cellblock.host.services.tools.registry import encode_error, encode_result
from cellblock.render.tables import signature
from cellblock.wire import values

SUPPORT = Path(__file__).parents[4] / "support"


@pytest.fixture(autouse=True)
def _installed(monkeypatch):
    monkeypatch.syspath_prepend(str(SUPPORT))


def load(*entries):
    return registry.load(entries)


def test_a_function_is_told_as_it_is_written():
    names = ("forecast", "fetch", "log_in", "add")
    tools = load(*(f"operators_tools:{name}" for name in names))
    told = {name: signature(one.tool) for name, one in tools.items()}
    assert told == {
        "add": "add(a: int, b: int = 1) -> int",
        "forecast": "forecast(city: str, *, days: int = 2) -> Forecast",
        "fetch": "async fetch(key: str, delay: float = 0.0) -> str",
        "log_in": "log_in(user: str, password: str) -> str",
    }
    log_in = tools["log_in"].tool
    assert [one.secret for one in log_in.parameters] == [False, True]
    assert log_in.secret_result
    # Arguments are checked by the type hints.
    add = tools["add"].function
    assert add("4", b=2) == 6
    with pytest.raises(ValueError, match="valid integer"):
        add("x")


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("operators_tools:nothing", "operators_tools has no nothing"),
        ("operator:add", "another tool is named add"),
        ("no_such_module:f", "no_such_module can't be imported: ModuleNotFoundError"),
        ("builtins:open", "open can't be the name of a tool"),
        ("operators_tools:SECRET", "it is not a function"),
        ("operators_tools:dataclasses.dataclass.__call__", "can't be the name of a tool"),
        ("operators_tools:os.DirEntry", "its signature can't be used"),
    ],
)
def test_what_is_no_tool_is_told(entry, message):
    with pytest.raises(registry.InvalidToolError) as refused:
        load("operators_tools:add", entry)
    assert message in refused.value.message
    assert refused.value.entry == entry
    assert refused.value.remedy


def test_a_default_that_is_no_literal_is_not_told():
    odd = object()

    def f(a=odd, b=(1, "x"), c=functools.partial):
        """Have odd defaults."""

    parameters = registry._described("f", f).parameters
    assert [one.default for one in parameters] == ["...", "(1, 'x')", "..."]


def test_a_value_is_made_data_or_refused():
    forecast = load("operators_tools:forecast")["forecast"].function("Rome", days=1)
    answer = encode_result({"of": forecast, "more": (1, {2})}, 1_000)
    told = {"of": {"city": "Rome", "degrees": [20.5]}, "more": [1, [2]]}
    assert values.decode(answer.value) == told
    assert encode_result(object(), 1_000).kind == "TypeError"
    assert encode_result(2**64, 1_000).message.startswith("what it returned can't be passed")
    assert "1,003 bytes" in encode_result("x" * 1_000, 1_000).message


class Own(pd.DataFrame):
    """A table of a class that cells may lack."""


def test_of_a_table_that_does_not_cross_it_is_said_what_does():
    said = encode_result(Own({"a": [1, 2]}), 1_000).message
    assert said.endswith("Own can't be passed as data: pass its to_dict('records')")
    nested = encode_result(pd.DataFrame({"a": [[1], [2]]}), 1_000).message
    assert "column 'a' of list" in nested


class OddError(Exception):
    def __str__(self):
        raise RuntimeError


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("no"), ("ValueError", "no")),
        (FileNotFoundError(2, "No such file", "/srv/x/y"), ("FileNotFoundError", "No such file")),
        (RuntimeError("in /srv/a/b.py:3"), ("RuntimeError", "in <path>:3")),
        (RuntimeError("\ud800"), ("RuntimeError", "?")),
        (OddError(), ("OddError", "")),
        (RuntimeError("x" * 9_000), ("RuntimeError", "x" * 2_000)),
    ],
)
def test_an_error_tells_its_type_and_message_and_no_path(error, said):
    answer = encode_error(error)
    assert (answer.kind, answer.message) == said
