"""Names of secrets: which paths they are, and finding them in a project."""

import pytest

from cellblock.errors import PolicyError
from cellblock.policy import load, paths
from cellblock.policy.paths import SECRETS, find_secret_files, pattern_beneath

HIDDEN = (
    *(".env", ".env.local", "a/b/.env", ".git/config", ".git/hooks/x", "sub/.git/hooks"),
    *(".aws", "sub/.aws", "sub/.aws/credentials", "a/b/.ssh/x/y", "sub/.docker/config.json"),
)
OPEN = ("env", ".environ", "config", "a.git/config", ".git/HEAD", "hooks/x", "x/.env2")


def test_what_has_such_a_name_or_lies_in_a_folder_that_has_is_denied():
    roots = ("/p", "/p/open/.env")
    assert all(pattern_beneath(f"/p/{name}", roots, SECRETS) for name in HIDDEN)
    assert not any(pattern_beneath(f"/p/{name}", roots, SECRETS) for name in OPEN)
    # What a root names, or what it lies in, is said otherwise.
    assert not pattern_beneath("/p/open/.env", roots, SECRETS)
    assert not pattern_beneath("/p/.env/x", ("/p/.env",), SECRETS)


def test_finding_follows_no_link_and_passes_over_environments(tmp_path):
    for name in (
        ".env",
        "deep/er/.env.prod",
        ".git/config",
        ".git/hooks/x",
        "a/.streamlit/secrets.toml",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    for name in (
        "b/.env/pyvenv.cfg",
        "c/pyvenv.cfg",
        "c/.env",
        "node_modules/x/.npmrc",
        "named/.env",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "d").mkdir()
    (tmp_path / "d/.env").symlink_to("/")
    (tmp_path / "d/up").symlink_to(tmp_path)
    found, whole = find_secret_files([str(tmp_path), str(tmp_path / "named/.env")], SECRETS)
    assert whole
    assert sorted(path.removeprefix(f"{tmp_path}/") for path in found) == [
        ".env",
        ".git/config",
        ".git/hooks",
        "a/.streamlit/secrets.toml",
        "deep/er/.env.prod",
    ]


@pytest.mark.parametrize("above", ["", "sub/", "a/b/c/"])
@pytest.mark.parametrize("name", paths.names_without_wildcards(SECRETS))
@pytest.mark.parametrize("is_folder", [False, True], ids=["file", "folder"])
def test_a_file_or_folder_of_a_secrets_name_is_found_at_any_depth(tmp_path, above, name, is_folder):
    secret, beside = tmp_path / above / name, tmp_path / above / f"not{name}"
    for made in (secret, beside):
        made = made / "credentials" if is_folder else made  # noqa: PLW2901
        made.parent.mkdir(parents=True, exist_ok=True)
        made.touch()
    assert find_secret_files([str(tmp_path)], SECRETS) == ((str(secret),), True)


def test_a_large_project_is_looked_at_from_outside_and_it_is_said_that_not_all_was(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(paths, "MOST_ENTRIES", 5)
    for number in range(5):
        (tmp_path / str(number)).mkdir()
    (tmp_path / ".env").touch()
    (tmp_path / "4/.env").touch()
    assert find_secret_files([str(tmp_path)], SECRETS) == ((f"{tmp_path}/.env",), False)


def test_what_lies_at_the_top_of_a_root_is_found_however_much_is_there(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "MOST_ENTRIES", 2)
    for number in range(50):
        (tmp_path / str(number)).touch()
    for name in (".env", ".git/config", "id_rsa"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    found, whole = find_secret_files([str(tmp_path)], SECRETS)
    assert {".env", ".git/config", "id_rsa"} <= {
        path.removeprefix(f"{tmp_path}/") for path in found
    }
    assert not whole


def test_folders_that_cells_fill_are_looked_at_after_all_others(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "MOST_ENTRIES", 20)
    for name in ("a/b/c/.env", *(f"work/{number}/{number}" for number in range(20))):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    roots = (str(tmp_path), f"{tmp_path}/work")
    assert find_secret_files(roots, SECRETS) == ((), False)
    found, whole = find_secret_files(roots, SECRETS, filled=roots[1:])
    assert found == (f"{tmp_path}/a/b/c/.env",)
    assert not whole


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("**/", "not a name that may lie anywhere"),
        ("**/../x", "not a name that may lie anywhere"),
        ("**/*", "it would hide everything"),
        ("@secret", "no such group"),
    ],
)
def test_a_pattern_that_means_nothing_is_an_error(tmp_path, entry, message):
    file = tmp_path / "mine.toml"
    file.write_text(f'read_deny_paths = ["{entry}"]')
    with pytest.raises(PolicyError, match=message.replace("*", r"\*")):
        load.load(str(file), project=tmp_path, allow_unsafe=False)


def test_the_group_can_be_added(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('extends = "safe"\n[add]\nread_deny_paths = ["@secrets"]')
    policy = load.load(str(file), project=tmp_path, allow_unsafe=False)
    assert policy.read_deny_paths[-len(SECRETS) :] == SECRETS
