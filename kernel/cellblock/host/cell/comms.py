"""Comm messages, both ways, and what is shown of those that do not pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from cellblock.host.cell.quota import LEAST
from cellblock.host.output.text import json_size
from cellblock.host.output.widgets import VIEW, WIDGET, Comms, Refused
from cellblock.render import outcomes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from cellblock.host.cell.publishing import Parent, Publisher
    from cellblock.host.cell.quota import Quota
    from cellblock.host.cell.withheld import Withheld
    from cellblock.host.output.widgets import Passed
    from cellblock.policy.model import Policy
    from cellblock.render.cards import Bundle
    from cellblock.wire import messages as wire


#: Cards about refusals in one cell, and parts that its last card names.
MAX_CARDS: Final = 5
MAX_PARTS: Final = 12
#: Things that a session is told of, each once.
MAX_SAID: Final = 500


class CommTraffic:
    """What front ends and the guest say to each other through comms."""

    def __init__(
        self,
        publisher: Publisher,
        policy: Policy | None,
        show: Callable[[Any], dict[str, Any]],
        card: Callable[[Bundle], None],
        *,
        withheld: Withheld,
        host_comms: Collection[str] = (),
        linked: set[str],
        file: str = "",
    ) -> None:
        display = policy.display if policy else "text"
        self._publisher = publisher
        self._card = card
        self._withheld = withheld
        self._host_comms = host_comms
        self._policy_name = policy.name if policy else ""
        self._file = file
        self._is_text = display == "text"
        self._modules = policy.widget_modules if policy and display != "text" else ()
        self._comms = Comms(
            modules=self._modules,
            targets=policy.comm_targets if policy and display != "text" else (),
            show=lambda data: self.bundle(data, show),
            linked=linked,
        )
        #: What cards of this session have said, and how many cards the request has.
        self._refused: set[Refused] = set()
        self._parts_said: set[tuple[str, str, str]] = set()
        self._cards = 0
        self._parts: dict[tuple[str, str, str], None] = {}

    # --- from the front end -------------------------------------------------------------------

    def from_front(self, kind: str, content: dict[str, Any], parent: Parent) -> bool:
        """Return whether a front end's message is for the guest; answer one that opens in vain."""
        name = content["comm_id"]
        if kind == "comm_open":
            if self._comms.opened_by_front(content):
                return True
            self._say_closed(name, parent)
            return False
        known = self._comms.knows(name)
        if known and kind == "comm_close":
            self._comms.forget(name)
        return known

    def refuse_open(self, content: dict[str, Any], parent: Parent) -> None:
        """Close what a front end opened, where the guest has not heard of that."""
        self._comms.forget(content["comm_id"])
        self._say_closed(content["comm_id"], parent)

    def _say_closed(self, name: str, parent: Parent) -> None:
        self._publisher.publish("comm_close", {"comm_id": name, "data": {}}, parent)

    def knows(self, name: str) -> bool:
        """Whether a comm of the guest's has this id."""
        return self._comms.knows(name)

    def listing(self, target: str | None) -> dict[str, dict[str, str]]:
        """Return the ``comms`` of a ``comm_info_reply``."""
        return self._comms.listing(target)

    # --- from the guest -----------------------------------------------------------------------

    def from_guest(
        self,
        message: wire.CommOut,
        parent: Parent | None,
        quota: Quota,
        show_card: Callable[[Bundle], None],
    ) -> None:
        """Pass on what may pass, within the quota; show a card for what may not."""
        if quota.spent(_buffers_size(message.buffers)):
            return
        if message.content.get("comm_id") in self._host_comms:
            return
        parent_id = str(parent.header.get("msg_id", "")) if parent is not None else ""
        passed = self._comms.clean(message, parent_id)
        if isinstance(passed, Refused):
            self._withheld.comm(f"{passed.target} {passed.module}".strip())
            self._refuse(passed, show_card)
        elif passed is not None and quota.admits(max(_size(passed), _weight(message.content))):
            self._publish(passed, parent)
            self._comms.commit(passed)
            self._note(passed)

    def bundle(self, data: Any, show: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        """Return a bundle cleaned by ``show``, with the view of a widget that is there."""
        view = self._comms.view(data[VIEW]) if type(data) is dict and VIEW in data else None
        if view is None:
            return show(data)
        cleaned = show({key: value for key, value in data.items() if key != VIEW})
        return cleaned | {VIEW: view}

    @property
    def captures(self) -> bool:
        """Whether a widget takes what a cell shows."""
        return self._comms.captures

    def release(self, parent: Parent | None) -> None:
        """End every capture of outputs, before a card of ours is shown."""
        for passed in self._comms.release():
            self._publish(passed, parent)

    def reset(self) -> None:
        """Close all comms: a new guest knows none."""
        self._comms.reset()

    def begin(self) -> None:
        """Count cards anew, for a new request. What was said once in the session stays said."""
        self._cards = 0
        self._parts.clear()

    def end(self) -> None:
        """Say what was left out of the widgets that passed."""
        parts = [part for part in self._parts if part not in self._parts_said]
        self._parts.clear()
        if parts and len(self._parts_said) < MAX_SAID:
            self._parts_said.update(parts)
            self._card(outcomes.cleaned_widgets(parts, policy_name=self._policy_name))

    def _publish(self, passed: Passed, parent: Parent | None) -> None:
        self._publisher.publish(
            passed.kind, passed.content(), parent, buffers=passed.buffers, metadata=passed.metadata
        )

    def _note(self, passed: Passed) -> None:
        model = passed.comm.model
        for key, why in passed.left:
            if model is not None and len(self._parts) < MAX_PARTS:
                self._parts[model.name.removesuffix("Model"), key, why] = None

    def _refuse(self, refused: Refused, show_card: Callable[[Bundle], None]) -> None:
        """Show one card in a session for each module and target, and no flood of cards.

        Where text alone is shown, there is one for all widgets.
        """
        is_text = self._is_text and refused.target == WIDGET
        once = Refused(refused.target, "" if is_text else refused.module)
        if once in self._refused or self._cards >= MAX_CARDS or len(self._refused) >= MAX_SAID:
            return
        self._refused.add(once)
        self._cards += 1
        name = self._policy_name
        if is_text:
            card = outcomes.widgets_as_text(policy_name=name)
        elif refused.target == WIDGET:
            known = refused.module in self._modules
            card = outcomes.refused_widget(
                refused.module, refused.model, policy_name=name, file=self._file, known=known
            )
        else:
            card = outcomes.refused_comm(refused.target, policy_name=name, file=self._file)
        show_card(card)


def _weight(value: Any, depth: int = 8) -> int:
    """Return how much text there was to clean, of which nothing may be left to count."""
    if isinstance(value, str):
        return len(value)
    if not depth or not isinstance(value, dict | list):
        return 0
    items = value.values() if isinstance(value, dict) else value
    return sum(_weight(item, depth - 1) for item in items)


def _size(passed: Passed) -> int:
    content = json_size(passed.content()) + json_size(passed.metadata)
    return content + _buffers_size(passed.buffers)


def _buffers_size(buffers: Sequence[bytes]) -> int:
    """Return how many bytes buffers count as: each is a part of the message, an empty one too."""
    return sum(max(len(buffer), LEAST) for buffer in buffers)
