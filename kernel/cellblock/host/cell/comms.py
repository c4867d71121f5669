"""``CommTraffic``: comm messages in both directions, and cards about those that are refused.

``host.output.widgets`` (``Comms``) decides what may pass and knows which comms are open. This
module applies the quota, publishes, and shows cards. Made by ``Outputs`` at the first message
about a comm.
"""

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


#: Cards about refusals that one request may show.
MAX_CARDS: Final = 5
#: Parts of widgets that were left out and that one request's last card names.
MAX_PARTS: Final = 12
#: Refusals, and parts left out, that are shown in one session. Each is shown once.
MAX_SAID: Final = 500


class CommTraffic:
    """The comm messages of one session, under one policy.

    ``show`` cleans a bundle, ``card`` shows one of the host's own. ``host_comms`` has the ids of
    the host's own comms, which no cell may use. ``linked`` has the ids of widgets that links have
    named, and is kept when the policy changes.
    """

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
        #: Refusals that the session has shown a card about.
        self._refused: set[Refused] = set()
        #: Parts left out, as in ``_parts``, that the session has shown a card about.
        self._parts_shown: set[tuple[str, str, str]] = set()
        #: Cards that the current request has shown.
        self._cards = 0
        #: Parts that were left out of the current request's widgets: model, key, reason.
        self._parts: dict[tuple[str, str, str], None] = {}

    # --- from the front end -------------------------------------------------------------------

    def from_front(self, kind: str, content: dict[str, Any], parent: Parent) -> bool:
        """Return whether to pass a front end's message on to the guest.

        A front end that opens a comm which the policy does not allow is sent ``comm_close``.
        """
        name = content["comm_id"]
        if kind == "comm_open":
            if self._comms.opened_by_front(content):
                return True
            self._say_closed(name, parent)
            return False
        is_open = self._comms.knows(name)
        if is_open and kind == "comm_close":
            self._comms.forget(name)
        return is_open

    def refuse_open(self, content: dict[str, Any], parent: Parent) -> None:
        """Close a comm that a front end opened, but of which the guest was never told."""
        self._comms.forget(content["comm_id"])
        self._say_closed(content["comm_id"], parent)

    def _say_closed(self, name: str, parent: Parent) -> None:
        self._publisher.publish("comm_close", {"comm_id": name, "data": {}}, parent)

    def knows(self, name: str) -> bool:
        """Return whether a comm with this id is open."""
        return self._comms.knows(name)

    def listing(self, target: str | None) -> dict[str, dict[str, str]]:
        """Return the open comms, of one ``target`` if given, as ``comm_info_reply`` has them."""
        return self._comms.listing(target)

    # --- from the guest -----------------------------------------------------------------------

    def from_guest(
        self,
        message: wire.CommOut,
        parent: Parent | None,
        quota: Quota,
        show_card: Callable[[Bundle], None],
    ) -> None:
        """Publish a guest's comm message as far as policy and quota allow; show a card if not."""
        if quota.spent(_buffers_size(message.buffers)):
            return
        if message.content.get("comm_id") in self._host_comms:
            return
        parent_id = str(parent.header.get("msg_id", "")) if parent is not None else ""
        passed = self._comms.clean(message, parent_id)
        if isinstance(passed, Refused):
            self._withheld.comm(f"{passed.target} {passed.module}".strip())
            self._refuse(passed, show_card)
        elif passed is not None and quota.admits(max(_size(passed), _text_size(message.content))):
            self._publish(passed, parent)
            self._comms.commit(passed)
            self._note_parts(passed)

    def bundle(self, data: Any, show: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        """Return a bundle cleaned by ``show``; a widget's view stays if that widget is open."""
        view = self._comms.view(data[VIEW]) if type(data) is dict and VIEW in data else None
        if view is None:
            return show(data)
        cleaned = show({key: value for key, value in data.items() if key != VIEW})
        return cleaned | {VIEW: view}

    @property
    def captures(self) -> bool:
        """Whether a widget captures what the running cell shows."""
        return self._comms.captures

    def release(self, parent: Parent | None) -> None:
        """End every capture of outputs, so that a card of the host's appears below the cell."""
        for passed in self._comms.release():
            self._publish(passed, parent)

    def reset(self) -> None:
        """Close all comms: a new guest knows none."""
        self._comms.reset()

    def begin(self) -> None:
        """Count cards anew, for a new request. What the session has shown is not shown again."""
        self._cards = 0
        self._parts.clear()

    def end(self) -> None:
        """Show a card with the parts that were left out of this request's widgets."""
        unshown_parts = [part for part in self._parts if part not in self._parts_shown]
        self._parts.clear()
        if unshown_parts and len(self._parts_shown) < MAX_SAID:
            self._parts_shown.update(unshown_parts)
            self._card(outcomes.cleaned_widgets(unshown_parts, policy_name=self._policy_name))

    def _publish(self, passed: Passed, parent: Parent | None) -> None:
        self._publisher.publish(
            passed.kind, passed.content(), parent, buffers=passed.buffers, metadata=passed.metadata
        )

    def _note_parts(self, passed: Passed) -> None:
        """Note the parts that were left out of a widget's message."""
        model = passed.comm.model
        for key, reason in passed.left:
            if model is not None and len(self._parts) < MAX_PARTS:
                self._parts[model.name.removesuffix("Model"), key, reason] = None

    def _refuse(self, refused: Refused, show_card: Callable[[Bundle], None]) -> None:
        """Show a card about a refusal: in a session one for each target and widget module.

        If the policy shows text only (``display``), one card stands for all widgets.
        """
        is_text = self._is_text and refused.target == WIDGET
        topic = Refused(refused.target, "" if is_text else refused.module)
        if topic in self._refused or self._cards >= MAX_CARDS or len(self._refused) >= MAX_SAID:
            return
        self._refused.add(topic)
        self._cards += 1
        name = self._policy_name
        if is_text:
            card = outcomes.widgets_as_text(policy_name=name)
        elif refused.target == WIDGET:
            is_listed = refused.module in self._modules
            card = outcomes.refused_widget(
                refused.module, refused.model, policy_name=name, file=self._file, known=is_listed
            )
        else:
            card = outcomes.refused_comm(refused.target, policy_name=name, file=self._file)
        show_card(card)


def _text_size(value: Any, depth: int = 8) -> int:
    """Return how many characters of text a message has.

    The quota counts them even if cleaning leaves none: cleaning takes as long.
    """
    if isinstance(value, str):
        return len(value)
    if not depth or not isinstance(value, dict | list):
        return 0
    items = value.values() if isinstance(value, dict) else value
    return sum(_text_size(item, depth - 1) for item in items)


def _size(passed: Passed) -> int:
    content = json_size(passed.content()) + json_size(passed.metadata)
    return content + _buffers_size(passed.buffers)


def _buffers_size(buffers: Sequence[bytes]) -> int:
    """Return how many bytes buffers count as: an empty one costs a part of the message too."""
    return sum(max(len(buffer), LEAST) for buffer in buffers)
