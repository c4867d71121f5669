"""How many comm messages one cell may send: counted by their bytes, and by their buffers."""

import pytest

from cellblock.host.cell.comms import CommTraffic
from cellblock.host.cell.quota import LEAST, Quota
from cellblock.policy.model import Policy
from cellblock.wire import messages

CAP = 100 * LEAST


class Publisher:
    def __init__(self):
        self.buffers = []

    def publish(self, _kind, _content, _parent, *, buffers, metadata):
        assert metadata is not None
        self.buffers.append(list(buffers))


@pytest.fixture
def said():
    """Return what sends a number of messages with so many buffers; it returns what was passed."""
    publisher = Publisher()
    policy = Policy().replace(display="sanitized", comm_targets=("mine",))
    traffic = CommTraffic(publisher, policy, dict, print, withheld=None, linked=set())
    quota = Quota({"stdout": CAP, "stderr": CAP, "display": CAP})

    def say(count, buffers):
        content = {"comm_id": "a", "target_name": "mine", "data": {}}
        for number in range(count):
            kind = "comm_msg" if number else "comm_open"
            message = messages.CommOut(kind=kind, content=content, buffers=buffers)
            traffic.from_guest(message, None, quota, print)
        return publisher.buffers

    return say


@pytest.mark.parametrize("buffer", [b"", b"x", bytes(LEAST)], ids=["empty", "a byte", "larger"])
def test_a_flood_of_buffers_is_a_flood_though_they_are_empty(said, buffer):
    passed = said(30, [buffer] * 20)
    assert 0 < sum(map(len, passed)) < CAP // LEAST


def test_messages_without_buffers_pass_until_the_cap(said):
    assert len(said(80, [])) == 80


class Refusals:
    def comm(self, _name):
        """Take what goes to the audit log."""


def refused(display, modules):
    """Return the cards of cells that open a widget of these modules each."""
    cards = []
    policy = Policy().replace(display=display, widget_modules=("mine",))
    traffic = CommTraffic(Publisher(), policy, dict, print, withheld=Refusals(), linked=set())
    for cell, module in enumerate(modules):
        traffic.begin()
        state = {"_model_module": module, "_model_name": "FigureModel"}
        content = {"comm_id": f"c{cell}", "target_name": "jupyter.widget", "data": {"state": state}}
        message = messages.CommOut(kind="comm_open", content=content)
        quota = Quota({"stdout": CAP, "stderr": CAP, "display": CAP})
        traffic.from_guest(message, None, quota, cards.append)
        traffic.end()
    return cards


def test_where_text_alone_is_shown_one_card_says_what_is_shown_of_widgets():
    (card,) = refused("text", ["@jupyter-widgets/base", "@jupyter-widgets/controls", "mine"])
    assert 'Widgets are shown as text: display = "text"' in card["text/plain"]
    assert "script" not in card["text/plain"]
    assert "widget_modules" not in card["text/plain"]


def test_a_refused_module_is_told_once_a_session_and_another_still_is():
    cards = refused("sanitized", ["bqplot", "bqplot", "other", "bqplot"])
    assert [name in str(card) for card, name in zip(cards, ("bqplot", "other"), strict=True)] == [
        True
    ] * 2
