# ruff: noqa: RUF001 - look-alike letters are what is tested
"""A policy's credentials at requests: who is sent a key, and that nobody else is.

All servers are real, on loopback; those of TLS have a certificate for service.test.
"""

import asyncio
import base64
import os
import socket
import urllib.parse

import pytest

from cellblock.host.services import secret_values
from cellblock.host.services.operations.grants import OperationError
from cellblock.host.services.operations.http import Fetcher
from cellblock.host.services.tools.calls import uses_to
from cellblock.policy.credentials import Credential
from cellblock.policy.operations import Http
from support import machines
from support.web import PEM, answer

SECRET = "sk-51f0c0ffee-0123456789abcdef"


@pytest.fixture(autouse=True)
def secret(monkeypatch):
    monkeypatch.setenv("API_KEY", SECRET)


def credential(*hosts, **changed):
    given = {"header": "Authorization", "prefix": "Bearer ", "value": "env:API_KEY"}
    return Credential(hosts=hosts, **given | changed)


class Asking:
    """Asks servers as a cell would, and keeps what is said of keys."""

    def __init__(self, *granted, keys, names=None, **table):
        given = {"methods": ("GET", "HEAD", "POST"), "allow_private": True, "ca_file": str(PEM)}
        self.uses, self.names = [], names or {}
        self.fetcher = Fetcher(
            Http(hosts=granted, **given | table), self._resolve, credentials=keys
        )

    async def _resolve(self, host, _port):
        return list(self.names.get(host, ["127.0.0.1"]))

    def __call__(self, url, **asked):
        async def ask():
            uses_to.set(self.uses.append)
            return await self.fetcher.http(url, **asked)

        return asyncio.run(ask())

    def refusal(self, url, **asked):
        with pytest.raises(OperationError) as refused:
            self(url, **asked)
        error, chain = refused.value, []
        while error is not None:
            chain.append(repr(error) + str(error))
            error = error.__cause__
        assert SECRET not in "".join(chain)
        return f"{refused.value.kind}: {refused.value.message}"

    @property
    def used(self):
        return [(use.credential, use.host, use.method, use.path) for use in self.uses]


def sent(server, header="authorization"):
    """Return what servers were sent in that header, one entry a request."""
    found = []
    for head in server.asked:
        lines = [line.partition(": ") for line in head.splitlines()[1:]]
        found.append([value for name, _, value in lines if name.lower() == header])
    return found


# --- who is sent a key ------------------------------------------------------------------------


def test_a_listed_host_is_sent_the_key_over_tls(web):
    server = web(tls=True)
    at = f"service.test:{server.port}"
    ask = Asking(at, keys={"API": credential(at)})
    assert ask(f"https://{at}/v1/items?q=private")["content"] == b"hello"
    assert sent(server) == [[f"Bearer {SECRET}"]]
    assert ask.used == [("API", at, "GET", "/v1/items")]


def test_a_key_may_be_in_any_header_and_without_a_prefix_and_a_host_may_be_sent_two(web):
    server = web(tls=True)
    at = f"service.test:{server.port}"
    keys = {
        "API": credential(at, header="X-Api-Key", prefix=""),
        "ORG": credential(at, header="X-Org"),
    }
    ask = Asking(at, keys=keys)
    ask(f"https://{at}/")
    assert (sent(server, "x-api-key"), sent(server, "x-org"), sent(server)) == (
        [[SECRET]],
        [[f"Bearer {SECRET}"]],
        [[]],
    )


def test_a_file_has_a_key_and_what_is_around_it_is_left_out(web, tmp_path):
    file = tmp_path / "key"
    file.write_text(f"  {SECRET}\n")
    server = web(tls=True)
    at = f"service.test:{server.port}"
    Asking(at, keys={"API": credential(at, value=f"file:{file}")})(f"https://{at}/")
    assert sent(server) == [[f"Bearer {SECRET}"]]


def test_loopback_that_is_listed_is_sent_the_key_without_tls(web):
    server = web()
    at = f"127.0.0.1:{server.port}"
    Asking(server.origin, keys={"API": credential(at)})(server.origin)
    assert sent(server) == [[f"Bearer {SECRET}"]]


@pytest.mark.skipif(not machines.has_ipv6(), reason="no IPv6 here")
@pytest.mark.parametrize("spelling", ["[::1]", "[0:0:0:0:0:0:0:1]", "[0::1]", "[::0001]"])
def test_an_address_is_the_same_in_every_spelling_of_ipv6(web, spelling):
    server = web(address="::1")
    listed = credential(f"[0:0::1]:{server.port}")
    Asking(server.origin, keys={"API": listed})(f"http://{spelling}:{server.port}/")
    assert sent(server) == [[f"Bearer {SECRET}"]]


@pytest.mark.skipif(not machines.has_ipv6(), reason="no IPv6 here")
@pytest.mark.parametrize("other", ["[::ffff:127.0.0.1]", "127.0.0.1", "localhost"])
def test_another_name_of_the_same_machine_is_another_host(web, other):
    server = web()
    granted = [f"http://[::ffff:127.0.0.1]:{server.port}", f"http://127.0.0.1:{server.port}"]
    granted.append(f"http://localhost:{server.port}")
    ask = Asking(*granted, keys={"API": credential(f"[::1]:{server.port}")})
    ask(f"http://{other}:{server.port}/")
    assert (sent(server), ask.used) == ([[]], [])


SPELLINGS = ("SERVICE.TEST", "Service.Test", "service.TEST")


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_upper_case_is_the_same_host(web, spelling):
    server = web(tls=True)
    at = f"service.test:{server.port}"
    Asking(at, keys={"API": credential(at)})(f"https://{spelling}:{server.port}/")
    assert sent(server) == [[f"Bearer {SECRET}"]]


# --- who is not -------------------------------------------------------------------------------


def test_another_port_of_the_host_gets_none(web):
    one, other = web(tls=True), web(tls=True)
    at, beside = (f"service.test:{server.port}" for server in (one, other))
    ask = Asking(at, beside, keys={"API": credential(at)})
    ask(f"https://{beside}/")
    assert (sent(other), ask.used) == ([[]], [])
    ask(f"https://{at}/")
    assert sent(one) == [[f"Bearer {SECRET}"]]


def test_another_scheme_gets_none(web):
    server = web()
    at = f"service.test:{server.port}"
    ask = Asking(f"http://{at}", keys={"API": credential(at)})
    ask(f"http://{at}/")
    assert (sent(server), ask.used) == ([[]], [])


def test_a_name_beneath_or_above_a_listed_one_gets_none(web):
    server = web()
    names = [f"a.localhost:{server.port}", f"localhost.test:{server.port}"]
    granted = [f"http://{name}" for name in names]
    ask = Asking(*granted, keys={"API": credential(f"localhost:{server.port}")})
    for url in granted:
        ask(url)
    assert sent(server) == [[], []]


def test_a_name_of_this_machine_that_leads_elsewhere_is_not_sent_it_in_the_clear():
    # 192.0.2.1 is nobody's; the request is refused before anything is sent.
    at = "localhost:8000"
    ask = Asking(
        f"http://{at}", keys={"API": credential(at)}, names={"localhost": ["127.0.0.1", "10.9.9.9"]}
    )
    said = ask.refusal(f"http://{at}/")
    assert said == (
        "NotGranted: localhost is not this machine, and the key API goes by TLS alone (credentials)"
    )
    assert ask.used == []


#: What follows ``https://``; the listed host is service.test, and another one other.test.
REFUSED = [
    "service.test.:{port}/",
    "other.test:{port}@service.test:{port}/",
    "service.test:{port}@other.test:{port}/",
    "user:password@service.test:{port}/",
    "service.test%2eother.test:{port}/",
    "ſervice.test:{port}/",
    "service。test:{port}/",
    "service.test\\@other.test:{port}/",
    "service.test:{port}#@other.test:{port}\r\nX: y",
    "service.test\t:{port}/",
    "[::ffff:127.0.0.1]:{port}/",
    "[::1%25lo]:{port}/",
    "127.1:{port}/",
    "0x7f.0.0.1:{port}/",
]


@pytest.mark.parametrize("spelling", REFUSED)
def test_no_other_spelling_is_asked(web, spelling):
    server = web(tls=True)
    at = f"service.test:{server.port}"
    ask = Asking(at, keys={"API": credential(at, "127.0.0.1:443", "[::1]:443")})
    ask.refusal(f"https://{spelling.format(port=server.port)}")
    assert (server.asked, ask.used) == ([], [])


def test_a_cell_does_not_say_who_is_asked_by_a_header(web):
    server = web(tls=True)
    at = f"service.test:{server.port}"
    ask = Asking(at, keys={"API": credential(at)})
    for name in ("Host", "hOST", "Proxy-Authorization", "Connection"):
        assert "is a header that the host writes" in ask.refusal(
            f"https://{at}/", headers={name: "other.test"}
        )
    assert server.asked == []


# --- redirects --------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["301 M", "302 F", "303 S", "307 T", "308 P"])
def test_no_redirect_carries_a_key_to_another_host_port_or_scheme(web, status):
    plain, other = web(), web(tls=True)
    target = ""
    server = web(lambda *_: answer(b"", status, location=target), tls=True)
    at = f"service.test:{server.port}"
    places = [f"https://other.test:{other.port}", f"https://service.test:{other.port}"]
    clear = f"http://service.test:{plain.port}"
    ask = Asking(at, *places, clear, keys={"API": credential(at)})
    for target in (f"{places[1]}/x", f"{clear}/x"):  # noqa: B007 - the server reads it
        ask(f"https://{at}/")
    target = f"{places[0]}/x"
    # Its certificate is not of that name: nothing at all is sent.
    ask.refusal(f"https://{at}/")
    assert (sent(other), sent(plain)) == ([[]], [[]])
    assert sent(server) == [[f"Bearer {SECRET}"]] * 3
    assert ask.used == [("API", at, "GET", "/")] * 3


def test_a_redirect_on_the_same_host_carries_it_and_one_to_a_host_of_its_own_gets_that_ones(
    web, monkeypatch
):
    monkeypatch.setenv("OTHER_KEY", "another-key-0123456789")
    other = web(tls=True)

    def say(path, _):
        if path == "/a":
            return answer(b"", "302 F", location="/b")
        return answer(b"", "302 F", location=f"https://service.test:{other.port}/c")

    server = web(say, tls=True)
    at, there = f"service.test:{server.port}", f"service.test:{other.port}"
    keys = {"API": credential(at), "OTHER": credential(there, value="env:OTHER_KEY", prefix="")}
    ask = Asking(at, there, keys=keys)
    ask(f"https://{at}/a")
    assert sent(server) == [[f"Bearer {SECRET}"]] * 2
    assert sent(other) == [["another-key-0123456789"]]
    assert ask.used == [
        ("API", at, "GET", "/a"),
        ("API", at, "GET", "/b"),
        ("OTHER", there, "GET", "/c"),
    ]


def test_a_redirect_that_has_the_key_in_its_address_leads_nowhere(web):
    other = web(tls=True)
    there = f"https://service.test:{other.port}"
    server = web(lambda *_: answer(b"", "302 F", location=f"{there}/?key={SECRET}"), tls=True)
    at = f"service.test:{server.port}"
    ask = Asking(at, there, keys={"API": credential(at)})
    assert ask.refusal(f"https://{at}/").startswith("ValueError: 'https://service.test:")
    assert other.asked == []


# --- a cell's own headers ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["Authorization", "AUTHORIZATION", "authorization", "aUTHORIZATION"]
)
def test_a_cells_own_header_of_that_name_is_refused(web, name):
    server = web(tls=True)
    at = f"service.test:{server.port}"
    ask = Asking(at, keys={"API": credential(at)})
    assert ask.refusal(f"https://{at}/", headers={name: "mine"}) == (
        f"NotGranted: the host sets 'authorization' for {at}: the key API is in it (credentials). "
        "Leave it out of headers"
    )
    assert server.asked == []


@pytest.mark.parametrize("name", ["X_Api_Key", "x_api-key", "X-API_KEY"])
def test_nor_one_that_servers_take_for_it(web, name):
    server = web(tls=True)
    at = f"service.test:{server.port}"
    ask = Asking(at, keys={"API": credential(at, header="X-Api-Key")})
    assert ask.refusal(f"https://{at}/", headers={name: "mine"}).startswith("NotGranted: the host")
    assert server.asked == []


def test_elsewhere_a_cell_sets_that_header_itself_and_a_redirect_to_the_host_replaces_it(web):
    server = web(tls=True)
    at = f"service.test:{server.port}"
    first = web(lambda *_: answer(b"", "302 F", location=f"https://{at}/"), tls=True)
    there = f"service.test:{first.port}"
    Asking(at, there, keys={"API": credential(at)})(
        f"https://{there}/", headers={"Authorization": "mine"}
    )
    assert (sent(first), sent(server)) == ([["mine"]], [[f"Bearer {SECRET}"]])


def test_no_header_of_a_cells_begins_another(web):
    server = web(tls=True)
    at = f"service.test:{server.port}"
    ask = Asking(at, keys={"API": credential(at)})
    for headers in (
        {"X": "y\r\nAuthorization: mine"},
        {"X: y\r\nAuthorization": "mine"},
        {"Authorization ": "mine"},
        {" Authorization": "mine"},
        {"Authorization:": "mine"},
        {"Ａuthorization": "mine"},
    ):
        assert ask.refusal(f"https://{at}/", headers=headers).startswith("ValueError: ")
    assert server.asked == []


# --- keys that can't be had, or sent ----------------------------------------------------------

WRONG = {
    "": "the host's environment has no API_KEY. Set API_KEY where the kernel is started, and "
    "restart it.",
    " \n": "the host's environment has no API_KEY. Set API_KEY where the kernel is started, and "
    "restart it.",
    "good\r\nX-Admin: yes": "the host's key can't be sent: it is not one line of ASCII. Put the key "
    "there, and nothing else.",
    "good\nnext": "the host's key can't be sent: it is not one line of ASCII. Put the key there, and "
    "nothing else.",
    "schlüssel": "the host's key can't be sent: it is not one line of ASCII. Put the key there, and "
    "nothing else.",
    "a\x0bb": "the host's key can't be sent: it is not one line of ASCII. Put the key there, and "
    "nothing else.",
    "k"
    * 8_193: "the host's key can't be sent: it is not one line of ASCII. Put the key there, and "
    "nothing else.",
}


@pytest.mark.parametrize(("value", "said"), WRONG.items(), ids=range(len(WRONG)))
@pytest.mark.parametrize("kind", ["env", "file"])
def test_a_request_is_refused_without_its_key(web, monkeypatch, tmp_path, kind, value, said):
    server = web(tls=True)
    at = f"service.test:{server.port}"
    if kind == "env":
        monkeypatch.setenv("API_KEY", value)
        source = "env:API_KEY"
    else:
        file = tmp_path / "key"
        file.write_text(value, newline="")
        source = f"file:{file}"
        if not value.strip():
            said = "its file is empty. Put the key there."
    ask = Asking(at, keys={"API": credential(at, value=source)})
    message = ask.refusal(f"https://{at}/")
    assert message == f"NoKey: {at} takes the key API: {said}"
    assert (server.asked, ask.used) == ([], [])
    assert str(tmp_path) not in message


def test_a_file_that_is_none_is_not_waited_for(tmp_path):
    pipe, link, missing = tmp_path / "pipe", tmp_path / "link", tmp_path / "missing"
    os.mkfifo(pipe)
    link.symlink_to("/proc/self/environ")
    said = {}
    for path in (pipe, link, missing, tmp_path):
        with pytest.raises(secret_values.NoSecretError) as refused:
            secret_values.read_secret(f"file:{path}")
        said[path.name] = refused.value.message
        assert str(path) not in refused.value.message
    assert said["missing"] == "its file can't be read: No such file or directory"
    assert said["pipe"] == "its file is not a regular file"


# --- errors -----------------------------------------------------------------------------------


def failing(web):
    """Yield what goes wrong, each as keywords of ``Asking``, an address and keywords of a request."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    yield "refused", f"service.test:{port}", {}, {}

    def say_nothing(*_):
        silent.wait(20)
        yield b""

    silent = web(say_nothing, tls=True)
    yield "timeout", f"service.test:{silent.port}", {}, {"timeout": 0.5}
    other = web(tls=True)
    yield "no certificate", f"service.test:{other.port}", {"ca_file": ""}, {}
    plain = web()
    yield "no TLS", f"service.test:{plain.port}", {}, {}
    garbage = web(lambda *_: SECRET.encode() + b" no HTTP\r\n\r\n", tls=True)
    yield "no HTTP", f"service.test:{garbage.port}", {}, {}
    packed = web(lambda *_: answer(b"x", content_encoding=SECRET), tls=True)
    yield "packed", f"service.test:{packed.port}", {}, {}
    large = web(lambda *_: answer(SECRET.encode() * 1_000), tls=True)
    yield "too large", f"service.test:{large.port}", {"max_bytes": 1_000}, {}


def test_no_error_has_the_key_in_it(web, capfd):
    seen = {}
    for what, at, table, asked in failing(web):
        ask = Asking(at, keys={"API": credential(at)}, **table)
        seen[what] = ask.refusal(f"https://{at}/", **asked).partition(":")[0]
    assert seen == {
        "refused": "ConnectError",
        "timeout": "TimeoutError",
        "no certificate": "ConnectError",
        "no TLS": "ConnectError",
        "no HTTP": "ProtocolError",
        "packed": "ProtocolError",
        "too large": "TooLarge",
    }
    assert SECRET not in "".join(capfd.readouterr())


# --- answers ----------------------------------------------------------------------------------


def echo(_path, head):
    own = next(line for line in head.splitlines() if line.lower().startswith("authorization"))
    return answer(head.encode(), X_Echo=own, **{f"X-{SECRET}": "1"})


def test_a_key_that_a_server_echoes_is_replaced(web):
    server = web(echo, tls=True)
    at = f"service.test:{server.port}"
    told = Asking(at, keys={"API": credential(at)})(f"https://{at}/")
    assert b"\r\nauthorization: Bearer [credential API]" in told["content"]
    assert told["headers"]["x-echo"].endswith("Bearer [credential API]")
    assert SECRET not in repr(told)
    assert SECRET.lower() not in repr(told).lower()


def test_nothing_is_left_of_a_key_that_begins_with_another(web, monkeypatch):
    monkeypatch.setenv("LONGER", f"{SECRET}-and-more")
    server = web(echo, tls=True)
    at = f"service.test:{server.port}"
    keys = {"API": credential(at), "LONGER": credential(at, header="X-B", value="env:LONGER")}
    told = Asking(at, keys=keys)(f"https://{at}/")
    assert b"x-b: Bearer [credential LONGER]" in told["content"]
    assert b"-and-more" not in told["content"]


def test_what_is_not_the_exact_key_is_the_servers(web):
    packed = base64.b64encode(SECRET.encode())
    server = web(lambda *_: answer(packed + b" " + SECRET[:-1].encode()), tls=True)
    at = f"service.test:{server.port}"
    told = Asking(at, keys={"API": credential(at)})(f"https://{at}/")
    assert told["content"] == packed + b" " + SECRET[:-1].encode()


def test_no_cell_finds_out_a_short_key_by_guesses_that_it_reads_back(web, monkeypatch):
    """An answer in which a right guess is replaced would tell which of millions it was."""
    for key, told_apart in (("12345678", False), ("x" * 15, False), ("x" * 16, True)):
        monkeypatch.setenv("API_KEY", key)
        server = web(lambda *_, key=key: answer(key.encode()), tls=True)
        at = f"service.test:{server.port}"
        told = Asking(at, keys={"API": credential(at)})(f"https://{at}/")
        assert (told["content"] != key.encode()) is told_apart


def test_a_host_that_was_sent_no_key_tells_nothing_about_one(web):
    server = web(lambda *_: answer(SECRET.encode()), tls=True)
    at = f"service.test:{server.port}"
    ask = Asking(at, keys={"API": credential("elsewhere.test:443")})
    assert ask(f"https://{at}/")["content"] == SECRET.encode()


def test_nothing_that_is_shown_of_a_policy_has_the_key():
    one = credential("service.test:443")
    ask = Asking("service.test:443", keys={"API": one})
    shown = repr(one) + repr(ask.fetcher) + repr(vars(ask.fetcher))
    assert SECRET not in shown
    assert urllib.parse.quote(SECRET) not in shown
