# ruff: noqa: RUF001 - look-alike letters are what is tested
"""Grants: a table for each operation, checked before anything runs under it."""

import subprocess
import sys

import pytest

from cellblock.errors import PolicyError
from cellblock.policy import network, schema
from cellblock.policy.load import from_values, load
from cellblock.policy.model import Policy
from cellblock.policy.operations import Http, Install, ListDir, Operations, ReadFile

INDEX = 'index = "http://127.0.0.1:9/simple"'


@pytest.fixture
def operator(tmp_path):
    """Write a policy file and load it."""

    def write(text):
        file = tmp_path / "team.toml"
        file.write_text(text, "utf-8")
        return load(str(file), project=tmp_path, allow_unsafe=False)

    return write


def test_nothing_is_granted_unless_a_table_is_there():
    assert Policy().operations is None
    assert from_values({"ops": {}}).operations is None
    assert schema.parse({"ops": {}}, file="x") == Policy()


def test_a_table_grants_its_operation_and_no_other_on_roots_that_are_there(operator, tmp_path):
    policy = operator('[ops.read_file]\nroots = ["."]\n[ops.http]\nhosts = ["a.example"]')
    assert policy.operations == Operations(
        read_file=ReadFile(roots=(str(tmp_path),)), http=Http(hosts=("a.example",))
    )
    assert policy.operations.granted() == ("read_file", "http")
    absolute = f'[ops.read_file]\nroots = ["{tmp_path}"]\n[ops.http]\nhosts = ["a.example"]'
    assert policy == operator(absolute)

    policy = operator('[ops.read_file]\nroots = ["gone?", "."]')
    assert policy.operations.read_file.roots == (str(tmp_path),)


def test_what_is_installed_before_cells_need_not_be_theirs_to_install(operator):
    text = f'packages = ["tabulate<1"]\n[ops.install]\n{INDEX}\nallow = ["Tabulate"]\n'
    assert operator(text).operations.granted() == ("install",)
    assert operator(f"{text}cells = false").operations.granted() == ()


def test_a_policy_without_grants_never_imports_their_classes():
    assert "cellblock.policy.operations" in sys.modules
    text = (
        "import sys, cellblock.policy.load; sys.exit('cellblock.policy.operations' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", text], check=False, timeout=60).returncode == 0


def test_a_digest_tells_grants_apart():
    granted = [
        Policy(),
        Policy(ops=Operations(read_file=ReadFile(roots=("/a",)))),
        Policy(ops=Operations(list_dir=ListDir(roots=("/a",)))),
        Policy(ops=Operations(read_file=ReadFile(roots=("/a",), max_bytes=9))),
    ]
    assert len({policy.digest() for policy in granted}) == len(granted)


#: What is wrong, by the key and what is said of it.
WRONG = {
    ("ops.reed_file", "no such key"): ["[ops.reed_file]"],
    ("ops.read_file.root", "no such key"): ["[ops.read_file]\nroot = []"],
    ("ops.read_file.roots", "it grants nothing"): ["[ops.read_file]"],
    ("ops.read_file.roots", "no such file or folder"): ['[ops.read_file]\nroots = ["gone"]'],
    ("ops.read_file.roots", "cells can use that folder without the host"): [
        '[ops.read_file]\nroots = ["{scratch}"]'
    ],
    ("ops.read_file.max_bytes", "wrong value"): ["[ops.read_file]\nmax_bytes = 99_999_999"],
    ("ops.write_file.roots", "cells could rewrite this policy file"): [
        '[ops.write_file]\nroots = ["."]'
    ],
    ("ops.http.hosts", "it grants nothing"): ["[ops.http]"],
    ("ops.http.hosts", "Expected 4 octets in '0x7f.1'"): ['[ops.http]\nhosts = ["0x7f.1"]'],
    ("ops.http.hosts", "not a host"): ['[ops.http]\nhosts = ["ftp://a"]'],
    ("ops.http.methods", "not a method"): [
        f'[ops.http]\nhosts = ["a"]\nmethods = ["{method}"]' for method in ("get", "CONNECT")
    ],
    ("ops.http.paths", "not a plain path"): [
        f'[ops.http]\nhosts = ["a"]\npaths = ["{path}"]'
        for path in ("v1/", "/a/../b", "/%61", "/a?b")
    ],
    ("ops.http.paths", "it grants nothing"): ['[ops.http]\nhosts = ["a"]\npaths = []'],
    ("ops.http.methods", "it grants nothing"): ['[ops.http]\nhosts = ["a"]\nmethods = []'],
    ("ops.install.index", "not an index"): [
        "[ops.install]",
        '[ops.install]\nindex = "https://me:secret@a.example/simple"',
    ],
    ("ops.install.allow", "it grants nothing"): [f"[ops.install]\n{INDEX}"],
    ("ops.install.allow", "an address: packages come from the policy's index"): [
        f'[ops.install]\n{INDEX}\nallow = ["a @ https://b.example/a.whl"]'
    ],
    ("ops.install.allow", "not the name of a package"): [
        f'[ops.install]\n{INDEX}\nallow = ["-r x"]'
    ],
    ("packages", "it names no index"): ['packages = ["a"]'],
    ("packages", "not a package that is allowed"): [
        f'packages = ["a", "b"]\n[ops.install]\n{INDEX}\nallow = ["A"]'
    ],
}


@pytest.mark.parametrize(
    ("text", "said"), [(text, said) for said, texts in WRONG.items() for text in texts]
)
def test_a_grant_that_means_nothing_here_is_one_error(operator, text, said):
    with pytest.raises(PolicyError) as refused:
        operator(text)
    assert (refused.value.key, refused.value.message) == said
    assert refused.value.remedy


def test_a_package_that_may_come_later_can_be_allowed(operator):
    text = f'allowed_modules = ["nowhere_yet"]\n[ops.install]\n{INDEX}\nallow = ["nowhere-yet"]'
    assert operator(text).allowed_modules == ("nowhere_yet",)
    with pytest.raises(PolicyError, match="no such module here"):
        operator('allowed_modules = ["nowhere_yet"]')


def test_each_index_and_list_has_a_folder_of_its_own(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    tables = [
        Install(index="https://a.example/simple", allow=("a", "b")),
        Install(index="https://a.example/simple", allow=("b", "a")),
        Install(index="https://a.example/simple", allow=("a",)),
        Install(index="https://b.example/simple", allow=("a",)),
    ]
    folders = [table.store() for table in tables]
    assert folders[0] == folders[1]
    assert len(set(folders)) == 3
    policy = Policy(ops=Operations(install=tables[0]))
    assert policy.package_library() == f"{folders[0]}/lib"
    assert folders[0].startswith(f"{tmp_path}/cellblock/packages/")
    assert Policy().package_library() is None


@pytest.mark.parametrize(
    ("entry", "admitted", "others"),
    [
        (
            "api.example.org",
            ("https", "api.example.org", 443),
            [
                ("http", "api.example.org", 80),
                ("https", "api.example.org", 8443),
                ("https", "example.org", 443),
                ("https", "x.api.example.org", 443),
                ("https", "api.example.org.attacker.example", 443),
            ],
        ),
        (
            "*.example.org:8443",
            ("https", "a.b.example.org", 8443),
            [
                ("https", "example.org", 8443),
                ("https", "notexample.org", 8443),
                ("https", "a.example.org", 443),
            ],
        ),
        ("*", ("https", "anybody.example", 443), [("http", "anybody.example", 80)]),
        ("http://[::1]:8080", ("http", "[::1]", 8080), [("http", "[::2]", 8080)]),
    ],
)
def test_an_entry_admits_whom_it_names(entry, admitted, others):
    found = network.parse_host(entry)
    assert found.admits(*admitted)
    assert not [other for other in others if found.admits(*other)]


SPELLINGS = [
    "127.1",
    "2130706433",
    "017700000001",
    "0x7f000001",
    "0x7f.0.0.1",
    "127.0.0.01",
    "1.2.3.4.5",
    "a..b",
    ".a",
    "a.",
    "-a",
    "a b",
    "a%2eb",
    "a\x00",
    "a\n",
    "user@a",
    "bücher.example",
    "ⓔxample.org",
    "１２７.0.0.1",
    "[fe80::1%eth0]",
    "[::1",
    "",
    "a" * 64,
    ".".join(["a" * 60] * 5),
]


def test_a_host_has_one_spelling():
    for host in SPELLINGS:
        with pytest.raises(ValueError):
            network.canonical_host(host)


@pytest.mark.parametrize(
    ("host", "canonical"),
    [
        ("API.Example.ORG", "api.example.org"),
        ("127.0.0.1", "127.0.0.1"),
        ("[0:0::1]", "[::1]"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("a_b.example", "a_b.example"),
    ],
)
def test_hosts_that_are_the_same_are_spelled_the_same(host, canonical):
    assert network.canonical_host(host) == canonical
