"""A project, and what a session staged of it."""

from dataclasses import replace

import pytest

from cellblock.host.services import changes
from cellblock.policy.model import Policy
from cellblock.wire.messages import Layer


@pytest.fixture
def project(tmp_path, monkeypatch):
    for variable, name in {"XDG_DATA_HOME": "data", "XDG_CACHE_HOME": "cache"}.items():
        monkeypatch.setenv(variable, str(tmp_path / name))
    made = tmp_path / "project"
    made.mkdir()
    (made / "old").write_text("before")
    return made


@pytest.fixture
def upper(tmp_path):
    made = tmp_path / "data" / "cellblock" / "changes" / "one" / "0" / "upper"
    made.mkdir(parents=True)
    return made


@pytest.fixture
def staged(upper, project, tmp_path):
    layer = Layer(root=str(project), folder=str(upper.parent), hidden=("secret",))
    policy = Policy.preset("data")
    policy = policy.replace(audit=replace(policy.audit, folder=str(tmp_path / "audit")))
    return changes.of_layers([layer], policy, "0123456789abcdef")
