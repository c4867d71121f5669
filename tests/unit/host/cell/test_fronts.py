"""Whose the text is that a guest wrote before something else began."""

from types import SimpleNamespace

import pytest

from cellblock.host.cell.cell import Front


@pytest.mark.parametrize("held", [False, True])
def test_what_was_written_before_a_cell_begins_is_shown_before_it_unless_it_has_to_wait(
    simulate, held
):
    sim, shown = simulate(), []
    sim.on_output = lambda message: shown.append(message.text)
    outputs = SimpleNamespace(begin=lambda parent, _cell: shown.append(parent))
    sim.session.hold(held=held)
    sim.guest.out.write(b"the last cell's")
    Front.begin_outputs(SimpleNamespace(session=sim.session), outputs, "next cell")
    assert shown == ["the last cell's"] * (not held) + ["next cell"]
