"""What a guest does with the traits that a kernel's command line sets."""

from types import SimpleNamespace

import pytest
from traitlets import Enum, Int, TraitType, observe
from traitlets.config import Configurable

from cellblock.guest.launch import _configure


class Module(TraitType):
    """A trait whose value names a module, as that of IPython's ``loop_runner`` does."""

    def from_string(self, value):
        return value

    def validate(self, _owner, value):
        return __import__(value)


class Part(Configurable):
    count = Int().tag(config=True)
    runner = Module(allow_none=True, default_value=None).tag(config=True)
    policy = Enum(("known", "unknown"), "known").tag(config=True)

    @observe("policy")
    def _on_policy(self, _change):
        {"known": 1}[self.policy]


@pytest.mark.parametrize(
    ("trait", "value", "why"),
    [
        ("count", "x", "The 'count' trait of a Part instance expected an int, not the str 'x'."),
        ("runner", "no_such.x", "ModuleNotFoundError(\"No module named 'no_such'\")"),
        ("policy", "unknown", "KeyError('unknown')"),
    ],
)
def test_an_option_that_can_not_be_set_is_named_and_the_guest_goes_on(capsys, trait, value, why):
    part = Part()
    shell = SimpleNamespace(configurables=[part], display_formatter=SimpleNamespace(formatters={}))
    _configure(shell, "Part", trait, value)
    assert capsys.readouterr().err == f"cellblock: --Part.{trait} was not set: {why}\n"
    _configure(shell, "Part", "count", "2")
    assert part.count == 2
