"""Who decides about calls, in whatever front: a user who can be asked, or nobody."""

from types import SimpleNamespace

import pytest

from cellblock.host.services.tools.calls import NOBODY_ASKED
from cellblock.host.session.narrowing import approval_of
from cellblock.policy.model import Policy
from support.approvals import call


def decides(approvals, **who):
    """Return what decides about calls under a policy, where a front has these to decide."""
    front = SimpleNamespace(**{"approval": None, "approver": None} | who)
    return approval_of(Policy(approvals=approvals), front)


def test_where_the_policy_has_users_asked_and_nobody_can_be_every_call_is_refused():
    ran, refused = [], []
    decides("prompt").decide(call("a"), lambda: ran.append("a"), refused.append)
    assert (ran, refused) == ([], [NOBODY_ASKED])


APPROVER, OWN = object(), object()


@pytest.mark.parametrize(
    ("approvals", "who", "one"),
    [
        ("prompt", {"approver": APPROVER}, APPROVER),
        ("prompt", {"approver": APPROVER, "approval": OWN}, OWN),
        ("never", {"approver": APPROVER, "approval": OWN}, OWN),
        ("never", {}, None),
    ],
)
def test_a_fronts_own_decision_comes_before_that_of_who_asks_the_user(approvals, who, one):
    assert decides(approvals, **who) is one
