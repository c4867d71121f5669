"""A worker takes up a policy only if it is the one that was sent, and keeps it as its own."""

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

pytest.importorskip("distributed", reason="Dask is not installed")

from cellblock import __version__
from cellblock.batch.cluster.client import narrowed_policy
from cellblock.batch.cluster.protocol import NarrowedPolicy, PolicyOffer
from cellblock.batch.cluster.worker import SentPolicyPools, accept_narrowed, accept_offer
from cellblock.batch.run.execution import Job
from cellblock.batch.run.notebook import read
from cellblock.errors import BackendError, PolicyError, WideningError
from cellblock.policy.load import load
from cellblock.policy.model import Audit
from support.runs import notebook


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


# --- a notebook's own policy ----------------------------------------------------------------------


def narrowed(tmp_path, asks, base):
    content = notebook("1", metadata={"cellblock": asks})
    return asyncio.run(narrowed_policy(Job("a.ipynb", content, str(tmp_path)), base))


@pytest.fixture
def base(tmp_path):
    return load("safe", project=tmp_path, allow_unsafe=True)


def config(tmp_path):
    """Stand for a worker's config: the policy as it is there, and its folders."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    mine = load("safe", project=tmp_path, scratch=scratch, allow_unsafe=True)
    mine = mine.replace(read_deny_paths=(*mine.read_deny_paths, "/worker"))
    return SimpleNamespace(policy=mine, project=tmp_path, scratch=scratch)


def test_a_narrower_policy_is_sent_with_its_hash_and_taken_up_with_what_is_denied_there(
    tmp_path, base
):
    less = narrowed(tmp_path, {"policy": {"timeout": 1}}, base)
    assert less.digest == base.replace(timeout=1.0).digest()
    less = msgspec.msgpack.decode(msgspec.msgpack.encode(less), type=NarrowedPolicy)
    taken = accept_narrowed(less, base, config(tmp_path))
    assert (taken.timeout, taken.read_deny_paths[-1]) == (1.0, "/worker")


def test_what_asks_for_nothing_is_sent_without_and_a_key_in_any_spelling_is_seen(tmp_path, base):
    assert asyncio.run(narrowed_policy(Job("a", notebook("1"), str(tmp_path)), base)) is None
    torn = Job("a", b'{"metadata": {"cellblock": ', str(tmp_path))
    assert asyncio.run(narrowed_policy(torn, base)) is None
    with pytest.raises(WideningError):
        narrowed(tmp_path, {"policy": {"timeout": 1e6}}, base)

    content = notebook("1", metadata={"cellblock": {"policy": {"timeout": 1}}})
    content = content.replace(b"cellblock", b"cellblo\\u0063k")
    less = asyncio.run(narrowed_policy(Job("a", content, str(tmp_path)), base))
    assert less.policy["timeout"] == 1.0


def test_a_narrower_policy_that_is_not_what_its_hash_says_is_refused(tmp_path, base):
    less = narrowed(tmp_path, {"policy": {"timeout": 1}}, base)
    other = msgspec.structs.replace(less, policy=less.policy | {"timeout": 2.0})
    with pytest.raises(BackendError, match="not the one that its hash is of"):
        accept_narrowed(other, base, config(tmp_path))


@pytest.mark.parametrize(
    "more",
    [
        {"timeout": 1e6},
        {"network_access": True},
        {"backend": "noop"},
        {"audit": Audit(log=False)},
        {"filesystem_read_roots": ("/",)},
        {"read_deny_paths": ()},
        {"allowed_modules": ("os",)},
    ],
)
def test_a_policy_that_allows_more_is_refused_whatever_its_hash_says(tmp_path, base, more):
    wider = base.replace(**more)
    less = NarrowedPolicy(policy=wider.as_dict(), digest=wider.digest())
    with pytest.raises(WideningError):
        accept_narrowed(less, base, config(tmp_path))


def test_a_notebook_that_asks_and_was_sent_without_a_policy_is_not_run():
    made = read(notebook("1", metadata={"cellblock": {"policy": {"timeout": 1}}}))
    operators = SimpleNamespace(config=SimpleNamespace(policy="operators"))
    with pytest.raises(PolicyError, match="none was sent with it"):
        asyncio.run(SentPolicyPools(operators).policy_of(made, Job("a", b"", "/")))
    plain = read(notebook("1"))
    left = asyncio.run(SentPolicyPools(operators).policy_of(plain, Job("a", b"", "/")))
    assert left == "operators"
