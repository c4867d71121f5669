"""Folders of a user's, in which servers of tests run."""

import pytest


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Return a folder to run servers in; what they keep is beside it."""
    for variable, name in {"XDG_CACHE_HOME": "cache", "XDG_DATA_HOME": "data"}.items():
        (tmp_path / name).mkdir()
        monkeypatch.setenv(variable, str(tmp_path / name))
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project"


@pytest.fixture
def policy(home):
    """Return a function that writes a policy file beside the project, and its path."""

    def write(text, name="agent"):
        file = home.parent / f"{name}.toml"
        file.write_text(text)
        return file

    return write
