"""What a policy may say about admission, and where its files are."""

import pytest

from cellblock.errors import PolicyError
from cellblock.policy.folders import shipped_folder
from cellblock.policy.load import load


@pytest.fixture
def operator(tmp_path, monkeypatch):
    """Write a policy file and load it."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)

    (tmp_path / "project").mkdir()

    def write(text):
        file = tmp_path / "team.toml"
        file.write_text(text)
        return load(str(file), project=tmp_path / "project", allow_unsafe=True)

    return write


def test_every_preset_admits_any_cell_and_keeps_approvals_in_the_users_data_folder(operator):
    for preset in ("safe", "data", "unsafe"):
        policy = operator(f'extends = "{preset}"')
        assert policy.admission == "any"
        assert policy.approval.folder.endswith("/home/.local/share/cellblock/approved")
        assert policy.approval.key.endswith("/home/.local/share/cellblock/approval.key")
        assert policy.approval.scope == "{project}"
        assert policy.templates.folders == (shipped_folder(),)


def test_places_are_expanded_and_relative_ones_are_the_files_but_for_the_data_folder(
    operator, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "xdg"))
    policy = operator(
        'approval.folder = "{project}/.cellblock"\napproval.key = "{data}/other.key"\n'
        'templates.folders = ["shelf", "{shipped}"]'
    )
    assert policy.approval.folder == f"{tmp_path}/project/.cellblock"
    assert policy.approval.key == f"{tmp_path}/xdg/cellblock/other.key"
    assert policy.templates.folders == (f"{tmp_path}/shelf", shipped_folder())

    monkeypatch.setenv("XDG_DATA_HOME", "here")
    assert operator("").approval.key == f"{tmp_path}/home/.local/share/cellblock/approval.key"


@pytest.mark.parametrize("admission", ["approved", "template"])
def test_magics_that_run_what_no_cell_says_are_refused_where_cells_are_admitted(
    operator, admission
):
    for magic in ("run", "rerun", "macro", "debug", "edit"):
        added = f'[add]\nmagics = ["{magic}"]'
        assert magic in operator(added).magics
        with pytest.raises(PolicyError) as refused:
            operator(f'admission = "{admission}"\n{added}')
        assert refused.value.key == "magics"
        assert refused.value.message == "brings in code that nobody approved"


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('admission = "aproved"', "admission"),
        ("admission = true", "admission"),
        ('approval.scope = ""', "approval"),
        ('approval.scope = "a\\nb"', "approval"),
        ('approval.fodler = "x"', "approval.fodler"),
        ('approval.key = "{data"', "approval.key"),
        ('templates.folders = "x"', "templates.folders"),
        ('templates.folders = ["{nowhere}/x"]', "templates.folders"),
    ],
)
def test_what_is_wrong_is_named(operator, text, key):
    with pytest.raises(PolicyError) as refused:
        operator(text)
    assert refused.value.key == key
