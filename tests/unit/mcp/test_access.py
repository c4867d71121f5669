"""Who may come over HTTP: the token, and names that are matched whole."""

import pytest

from cellblock.mcp.access import LOOPBACK, Access

TOKEN = "0123456789abcdef"
BEARER = [f"Bearer {TOKEN}"]
ACCESS = Access(TOKEN, (*(f"{name}:*" for name in LOOPBACK), "mine.example:443", "other.example"))
HOST = ["127.0.0.1:8765"]


def status(authorization=BEARER, hosts=HOST, origins=()):
    refused = ACCESS.refusal(authorization, hosts, origins)
    return None if refused is None else refused.status


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.0.0.1:8765",
        "LOCALHOST:1",
        "[::1]:65535",
        "[::1]",
        "mine.example:443",
        "Other.Example",
    ],
)
def test_a_client_that_has_the_token_comes_in_by_each_of_the_names(host):
    assert status(hosts=[host]) is None
    assert status(hosts=[host], origins=[f"https://{host}"]) is None
    assert status(hosts=[host], origins=[f"http://{host}"]) is None


@pytest.mark.parametrize(
    "given",
    [
        [],
        [""],
        [TOKEN],
        ["Bearer"],
        ["Bearer "],
        [f"bearer {TOKEN}"],
        [f"Basic {TOKEN}"],
        [f"Bearer {TOKEN[:-1]}"],
        [f"Bearer {TOKEN}x"],
        [f"Bearer {TOKEN} "],
        [f"Bearer {TOKEN}\xe9\udc80"],
        [*BEARER, *BEARER],
        ["Bearer wrong", *BEARER],
    ],
)
def test_nobody_comes_in_without_the_token_itself(given):
    assert status(authorization=given) == 401


#: What stands for an address that is not ours, or for none, read in one way or another.
OTHERS = [
    "",
    "evil.example",
    "evil.example:8765",
    "127.0.0.1.evil.example",
    "127.0.0.1.evil.example:8765",
    "127.0.0.1:8765@evil.example",
    "localhost:80@evil.example",
    "localhost:80@evil.example:80",
    "127.0.0.1@evil.example",
    "evil@127.0.0.1:8765",
    "user:word@localhost:1",
    "localhost.",
    "localhost.:8765",
    ".localhost",
    "localhost..",
    "127.1:8765",
    "2130706433",
    "127.0.0.1:",
    "127.0.0.1:*",
    "127.0.0.1:port",
    "127.0.0.1:123456",
    "127.0.0.1:8765:80",
    "127.0.0.1:8765/x",
    "127.0.0.1:8765\\@evil.example",
    "127.0.0.1:8765#@evil.example",
    "127.0.0.1:8765?evil.example",
    "127.0.0.1:8765, evil.example",
    "127.0.0.1 :8765",
    " 127.0.0.1",
    "127.0.0.1\n",
    "127.0.0.1:8765\x00",
    "127.0.0.1:\uff18",
    "\uff4cocalhost:1",
    "::1",
    "[::1",
    "[::1]]:1",
    "[::1].evil.example",
    "[::1]:8765@evil.example",
    "[::1%25lo]:1",
    "mine.example",
    "mine.example:80",
    "mine.example:4430",
    "other.example:80",
    "xother.example",
]


@pytest.mark.parametrize("host", OTHERS)
def test_no_other_name_is_taken_for_one_of_ours(host):
    assert status(hosts=[host]) == 421
    for scheme in ("http", "https"):
        assert status(origins=[f"{scheme}://{host}"]) == 403


@pytest.mark.parametrize(
    "origins",
    [
        [""],
        ["null"],
        ["localhost"],
        ["//localhost"],
        ["ftp://localhost"],
        ["HTTP://localhost"],
        ["http://localhost/"],
        ["http://localhost http://evil.example"],
        ["http://localhost", "http://localhost"],
    ],
)
def test_an_origin_is_one_address_without_a_path_or_there_is_none(origins):
    assert status(origins=origins) == 403


def test_there_is_one_host():
    assert status(hosts=[]) == 421
    assert status(hosts=[*HOST, *HOST]) == 421
