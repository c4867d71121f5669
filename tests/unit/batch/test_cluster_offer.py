"""A worker takes up a policy only if it is the one that was sent, and keeps it as its own."""

import json
from pathlib import Path

import msgspec
import pytest

pytest.importorskip("distributed", reason="Dask is not installed")

from cellblock import __version__
from cellblock.batch.cluster import PolicyOffer, accept_offer
from cellblock.errors import BackendError, PolicyError
from cellblock.policy.load import load


def offered(name="data", **changes):
    """An offer as it arrives."""
    found = load(name, project=Path.cwd(), allow_unsafe=True)
    made = PolicyOffer(
        version=__version__,
        policy=found.as_dict(),
        digest=found.digest(),
        allow_unsafe=True,
        project="/",
    )
    values = json.loads(msgspec.json.encode(made)) | changes
    return msgspec.json.decode(json.dumps(values), type=PolicyOffer)


@pytest.mark.parametrize("name", ["safe", "data", "unsafe"])
def test_a_policy_is_the_same_there_but_for_what_is_the_workers_own(name):
    sent = load(name, project=Path.cwd(), allow_unsafe=True)
    policy = accept_offer(offered(name))
    own = {"read_deny_paths": sent.read_deny_paths, "audit": sent.audit}
    assert policy.replace(**own) == sent
    assert set(policy.read_deny_paths) >= {*sent.read_deny_paths, "~/.ssh"}
    assert policy.audit.folder == "{cache}/audit"


def test_a_policy_that_was_changed_on_the_way_is_of_another_version_or_is_none_is_refused():
    changed = offered("safe").policy | {"network_access": True}
    with pytest.raises(BackendError, match="not the one that its hash is of"):
        accept_offer(offered("safe", policy=changed))
    with pytest.raises(BackendError, match=r"where the run is$"):
        accept_offer(offered("safe", version="0.0.1"))
    with pytest.raises(PolicyError):
        accept_offer(offered("safe", policy={"no": "field"}))
