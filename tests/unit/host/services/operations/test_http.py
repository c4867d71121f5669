# ruff: noqa: RUF001 - look-alike letters are what is tested
"""Requests for cells: to whom the policy says, and nobody else. Each attack beside a control.

All servers are on loopback. Where the policy has ``allow_private`` they may be asked, which is the
control; elsewhere they stand for what must not be reached.
"""

import asyncio
import gzip
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from cellblock.host.services import addresses
from cellblock.host.services.operations import urls
from cellblock.host.services.operations.grants import OperationError
from cellblock.host.services.operations.http import Fetcher, resolve
from cellblock.policy.operations import Http
from support import machines
from support.web import PEM, answer


def table(*hosts, **changed):
    given = {
        "hosts": hosts,
        "methods": ("GET", "HEAD", "POST"),
        "paths": ("/",),
        "allow_private": True,
        "ca_file": "",
        "max_bytes": 10_000,
        "max_redirects": 5,
        "timeout": 20.0,
    }
    return Http(**given | changed)


def fetch(granted, url, resolver=resolve, **asked):
    return asyncio.run(Fetcher(granted, resolver).http(url, **asked))


def ask(server, **asked):
    """Ask a server for its first page, which is granted."""
    return fetch(table(server.origin), server.origin, **asked)


def refusal(granted, url, resolver=resolve, **asked):
    with pytest.raises(OperationError) as refused:
        fetch(granted, url, resolver, **asked)
    return f"{refused.value.kind}: {refused.value.message}"


def failure(server, **asked):
    return refusal(table(server.origin), server.origin, **asked)


def finding(*found):
    """Return a resolver that finds these addresses, and what it was asked."""
    asked = []

    async def resolver(host, _port):
        asked.append(host)
        return list(found)

    return resolver, asked


# --- what is for cells ------------------------------------------------------------------------


def test_a_request_is_made_and_its_answer_told(web):
    server = web(lambda path, _: answer(path.encode(), content_type="text/plain", X_One="1"))
    told = fetch(table(server.origin), f"{server.origin}/a?x=1#part", params={"y": "ä &"})
    assert told == {
        "status": 200,
        "url": f"{server.origin}/a?x=1&y=%C3%A4+%26",
        "headers": told["headers"],
        "content": b"/a?x=1&y=%C3%A4+%26",
    }
    assert told["headers"]["x-one"] == "1"
    # An error is an answer, too.
    assert ask(web(lambda *_: answer(b"no", "404 Not Found")))["status"] == 404


def test_what_is_sent_is_what_was_said(web):
    server = web()
    ask(server, method="POST", json={"a": 1}, headers={"X-Y": "z"})
    head, _, body = server.asked[0].partition("\r\n\r\n")
    lines = sorted(line.lower() for line in head.splitlines()[1:])
    assert head.splitlines()[0] == "POST / HTTP/1.1"
    assert lines == [
        "accept-encoding: identity",
        "accept: */*",
        "connection: close",
        "content-length: 8",
        "content-type: application/json",
        f"host: 127.0.0.1:{server.port}",
        "user-agent: cellblock",
        "x-y: z",
    ]
    assert body == '{"a": 1}'


def test_a_name_is_asked_by_its_name_over_tls_at_the_address_it_was_judged_by(web):
    server = web(tls=True)
    resolver, asked = finding("127.0.0.1")
    granted = table(f"service.test:{server.port}", ca_file=str(PEM))
    url = f"https://service.test:{server.port}/"
    assert fetch(granted, url, resolver)["content"] == b"hello"
    assert f"host: service.test:{server.port}" in server.asked[0].lower()
    assert asked == ["service.test"]


def test_a_certificate_of_another_name_or_maker_is_refused(web):
    server = web(tls=True)
    resolver, _ = finding("127.0.0.1")
    other = f"other.test:{server.port}"
    said = refusal(table(other, ca_file=str(PEM)), f"https://{other}/", resolver)
    assert said.startswith("ConnectError: other.test: its certificate is not valid: Hostname mism")
    known = f"service.test:{server.port}"
    said = refusal(table(known), f"https://{known}/", resolver)
    assert said.startswith("ConnectError: service.test: its certificate is not valid: self")


def test_the_first_address_that_takes_a_connection_is_asked(web):
    server = web()
    resolver, _ = finding("127.0.0.9", "127.0.0.1")
    host = f"http://two.test:{server.port}"
    assert fetch(table(host), host, resolver)["status"] == 200


# --- who may be asked -------------------------------------------------------------------------


# Which are public, and that no other is asked, is tested with the relay's allowlist.
def test_a_policy_may_allow_private_addresses_and_none_that_gives_out_credentials():
    for address in ("127.0.0.1", "10.1.1.1", "::1", "fc00::1", "::ffff:10.0.0.1"):
        assert not addresses.refusal([address], private=True), address
    metadata = ("169.254.169.254", "fe80::1", "fe80::1%1", "fd00:ec2::254", "100.100.100.200")
    for address in (*metadata, "0.0.0.0", "224.0.0.1", "::"):
        assert addresses.refusal([address], private=True), address


LOOPBACK = [
    "127.0.0.1",
    "127.1",
    "2130706433",
    "017700000001",
    "0x7f000001",
    "0x7f.0.0.1",
    "0177.0.0.1",
    "127.0.0.1.",
    "localhost",
    "LOCALHOST",
    "localhost.",
    "[::1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[::1%lo]",
    "[::1%25lo]",
    "[fe80::1%25eth0]",
    "①②⑦.0.0.1",
    "１２７.0.0.1",
    "127。0。0。1",
    "%31%32%37.0.0.1",
    "127.0.0.1%2f@public.example",
    "public.example@127.0.0.1",
    "public.example:80@127.0.0.1",
    "127.0.0.1#@public.example",
    "public.example\\@127.0.0.1",
    "127.0.0.1\t",
    "127.0.0.1\r\nX: y",
    "",
]


def test_no_spelling_reaches_loopback(web):
    """A policy that lets cells ask anybody on that port."""
    for spelling in LOOPBACK:
        server = web()
        granted = table(f"http://*:{server.port}", allow_private=True)
        said = refusal(granted, f"http://{spelling}:{server.port}/")
        assert said.startswith(("NotGranted: ", "ValueError: ")), spelling
        assert server.asked == [], spelling
        # The control: named as it is, it is asked.
        assert ask(server)["status"] == 200, spelling


LOOK_ALIKES = [
    ("api.test", "api.test.attacker.test"),
    ("api.test", "attacker-api.test"),
    ("api.test", "xapi.test"),
    ("api.test", "sub.api.test"),
    ("*.api.test", "api.test"),
    ("*.api.test", "attackerapi.test"),
    ("api.test", "api.test@attacker.test"),
    ("api.test", "attacker.test#api.test"),
    ("api.test", "attacker.test?api.test"),
    ("api.test", "attacker.test/api.test"),
    ("api.test", "attacker.test\\.api.test"),
    ("api.test", "api。test"),
    ("api.test", "аpi.test"),
    ("api.test", "api.test."),
    ("api.test", "api%2etest"),
    ("api.test", "api.te\u00adst"),
    ("api.test", "api.test\x00.attacker.test"),
    ("api.test", "api.test\n.attacker.test"),
]


def test_a_host_that_is_only_like_one_of_the_policys_is_refused(web):
    for granted, asked in LOOK_ALIKES:
        server = web()
        resolver, looked_up = finding("127.0.0.1")
        said = refusal(
            table(f"http://{granted}:{server.port}"), f"http://{asked}:{server.port}/", resolver
        )
        assert said.startswith(("NotGranted: ", "ValueError: ")), (granted, asked)
        assert (server.asked, looked_up) == ([], []), (granted, asked)
        named = f"http://{granted.replace('*', 'x')}:{server.port}"
        if "*" not in granted:
            assert fetch(table(named), named, resolver)["status"] == 200, (granted, asked)


def test_a_host_on_another_port_or_scheme_is_refused(web):
    server, other = web(), web()
    granted = table(server.origin)
    assert "is not one of its hosts" in refusal(granted, other.origin)
    assert "is not one of its hosts" in refusal(granted, server.origin.replace("http", "https"))
    assert fetch(granted, server.origin)["status"] == 200
    assert other.asked == []


def test_a_private_address_takes_the_policys_word_and_the_hosts_whole_name(web):
    server = web()
    resolver, _ = finding("127.0.0.1")
    host = f"http://in.test:{server.port}"
    assert fetch(table(host), host, resolver)["status"] == 200
    private = "NotGranted: in.test: it has a private or loopback address (allow_private)"
    mixed, _ = finding("8.8.8.8", "127.0.0.1")
    for found in (resolver, mixed):
        assert refusal(table(host, allow_private=False), host, found) == private
    for wide in (f"http://*.test:{server.port}", f"http://*:{server.port}"):
        assert refusal(table(wide), host, resolver) == private
    assert len(server.asked) == 1


def test_a_name_that_means_something_else_a_moment_later_is_asked_where_it_was_judged(
    web, monkeypatch
):
    """DNS rebinding: the first answer is fine, every later one leads to another server."""
    fine = web(address="127.0.0.1")
    inner = web(lambda *_: answer(b"inner"), address="127.0.0.2", port=fine.port)
    count = []

    def rebinding(host, port, *_args, **_kwargs):
        if host not in {"rebind.test", b"rebind.test"}:
            return real(host, port, *_args, **_kwargs)
        count.append(host)
        address = "127.0.0.1" if len(count) == 1 else "127.0.0.2"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    real = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", rebinding)
    host = f"http://rebind.test:{fine.port}"
    assert fetch(table(host), host)["content"] == b"hello"
    assert (len(count), inner.asked) == (1, [])
    # The control: a client that resolves once more is led on.
    assert httpx.get(host, trust_env=False).content == b"inner"
    # And each call asks anew: what it finds then is judged then.
    assert fetch(table(host), host)["content"] == b"inner"


def test_a_resolver_that_answers_otherwise_a_moment_later_leads_nowhere(tmp_path):
    """DNS rebinding for real: names are looked up by the C library, over UDP, and lead inside."""
    if why_not := machines.no_bubblewrap():
        pytest.skip(f"no network of its own, without bubblewrap: {why_not}")
    (tmp_path / "resolv.conf").write_text("nameserver 127.0.0.1\n")
    (tmp_path / "nsswitch.conf").write_text("hosts: files dns\n")
    binds = []
    for file in tmp_path.iterdir():
        if Path("/etc", file.name).exists():
            binds += ["--ro-bind", str(file), os.path.realpath(f"/etc/{file.name}")]
    rights = ["--cap-add", "CAP_NET_ADMIN", "--cap-add", "CAP_NET_BIND_SERVICE"]
    alone = ["--unshare-user", "--unshare-net", "--unshare-pid", "--die-with-parent"]
    program = [sys.executable, "-m", "support.rebinding"]
    who = ["--uid", "0", "--gid", "0", "--chdir", str(Path(__file__).parents[4])]
    ran = subprocess.run(
        [machines.BWRAP, *alone, *who, *rights, "--dev-bind", "/", "/", *binds, *program],
        env={"PATH": machines.WITH_BUBBLEWRAP},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    # What came, how often the name was looked up, and how often somebody came inside.
    assert json.loads(ran.stdout) == {
        "first": ["public", 1, 0],
        "again": [
            "NotGranted: rebind.example: it has a private or loopback address (allow_private)",
            2,
            0,
        ],
        "naive": ["inside", 2, 1],
    }


def test_no_proxy_and_no_password_of_the_users_is_used(web, monkeypatch, tmp_path):
    proxy, server = web(lambda *_: answer(b"proxy")), web()
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, proxy.origin)
    netrc = tmp_path / ".netrc"
    netrc.write_text("machine 127.0.0.1 login me password hunter2\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert httpx.get(server.origin).content == b"proxy"
    assert ask(server)["content"] == b"hello"
    assert "authorization" not in server.asked[0].lower()


def test_no_cookie_is_kept(web):
    server = web(
        lambda path, _: (
            answer(status="302 Found", location="/two", set_cookie="a=b; Path=/")
            if path == "/"
            else answer(b"two")
        )
    )
    assert ask(server)["content"] == b"two"
    ask(server)
    assert not [head for head in server.asked if "cookie" in head.lower()]


# --- methods, paths, headers ------------------------------------------------------------------


def test_a_method_that_is_not_granted_is_refused(web):
    server = web()
    for method in ("DELETE", "get", "GET /x HTTP/1.1\r\nX: y\r\n\r\nGET", "CONNECT", ""):
        said = failure(server, method=method)
        assert "is not one of its methods: GET, HEAD, POST ([ops.http] methods)" in said
    assert server.asked == []


OTHER_PATHS = [
    "/v2/x",
    "/",
    "/v1",
    "/v1x/",
    "/V1/x",
    "/v1/../admin",
    "/v1/./../admin",
    "/v1/%2e%2e/admin",
    "/v1/%2E./admin",
    "/v1/%252e%252e/admin",
    "/v1/%25252e%25252e/admin",
    "/v1/..%2fadmin",
    "/v1/..%5cadmin",
    "/v1/..\\admin",
    "/v1/..;/admin",
    "/v1/..;x=y/admin",
    "//v1/x",
    "/v1//x",
    "/v1/x%00",
    "/v1/x%0d%0aX: y",
    "/v1/%c0%ae%c0%ae/admin",  # overlong: what a dot is in no UTF-8
    "/v1/%25c0%25ae%25c0%25ae/admin",
    "/v1/x%c0%afadmin",
    "/v1/caf%e9",
    "/v1/%ed%a0%80",
    "/v1/%ef%bc%8e%ef%bc%8e/x",  # dots of full width
    "/v1/%e2%80%a5/x",  # .. as one letter
    "/v1/x%ef%bc%8fy",  # a slash of full width
    "/v1/%ef%bc%bcx",
    "/v1/%ef%bc%852e%ef%bc%852e/x",  # %2e by a percent sign of full width
    "/%76%31/x",
    "/v1%2fx",
    "/exact/",
    "/exact/x",
    "/exactly",
    "/x?/v1/",
    "/x#/v1/",
]


def test_a_path_that_a_server_may_read_as_another_is_refused(web):
    for path in OTHER_PATHS:
        server = web()
        granted = table(server.origin, paths=("/v1/", "/exact"))
        said = refusal(granted, server.origin + path)
        assert said.startswith(("NotGranted: ", "ValueError: ")), path
        assert server.asked == [], path


@pytest.mark.parametrize(
    "path",
    ["/v1/", "/v1/x", "/v1/x/y%20z?a=/../b", "/v1/caf%C3%A9/%ef%bd%98", "/exact", "/exact?x"],
)
def test_a_path_that_is_granted_is_asked_for_as_it_is(web, path):
    server = web()
    fetch(table(server.origin, paths=("/v1/", "/exact")), server.origin + path)
    assert server.asked[0].split(" ")[1] == path


BAD_HEADERS = [
    {"X": "a\r\nHost: other"},
    {"X": "a\nY: b"},
    {"X": "a\0"},
    {"X\r\nY": "a"},
    {"X: Y": "a"},
    {"": "a"},
    {"X": "ä"},
    {"Host": "other.test"},
    {"hOsT": "other.test"},
    {"Content-Length": "0"},
    {"Transfer-Encoding": "chunked"},
    {"Connection": "upgrade"},
    {"Upgrade": "h2c"},
    {"Expect": "100-continue"},
    {"Proxy-Authorization": "x"},
    {"Accept-Encoding": "br"},
    {"X": "x" * 17_000},
    {f"X-{n}": "x" for n in range(60)},
]


def test_a_header_that_is_more_than_one_is_refused(web):
    for headers in BAD_HEADERS:
        server = web()
        assert failure(server, headers=headers).startswith("ValueError: "), headers
        assert server.asked == [], headers


@pytest.mark.parametrize(
    "name",
    [
        "X-HTTP-Method-Override",
        "x-http-method",
        "X-Method-Override",
        "X_HTTP_METHOD_OVERRIDE",  # the same name to gateways
        "X.HTTP-Method_Override",
        "X-Original-URL",
        "X-Rewrite-URL",
        "X_Original_Url",
        "X-Original-Method",
        "X-Forwarded-Uri",
        "X-Forwarded-Host",
        "Forwarded",
        "X-Envoy-Original-Path",
        "Destination",
    ],
)
def test_a_header_that_servers_take_another_method_path_or_host_from_is_refused(web, name):
    server = web()
    granted = table(server.origin, methods=("GET",), paths=("/v1/",))
    said = refusal(granted, f"{server.origin}/v1/", headers={name: "/admin"})
    assert said.startswith(f"NotGranted: {name!r}: some servers take another")
    assert server.asked == []


def test_headers_that_only_look_like_those_are_sent_and_a_destination_where_any_path_may_be(web):
    server = web()
    sent = {"X-Origin": "a", "X_Key": "c", "Destination": f"{server.origin}/new"}
    assert fetch(table(server.origin), server.origin, headers=sent)["status"] == 200
    for name, value in sent.items():
        assert f"{name.lower()}: {value}" in server.asked[0].lower()


def test_a_body_that_is_larger_than_may_be_sent_is_not(web):
    server = web()
    said = failure(server, method="POST", data=b"x" * 10_001)
    assert said == "TooLarge: its body has 10,001 bytes; 10,000 may be sent (max_bytes)"
    assert server.asked == []
    assert failure(server, data="x", json=1).startswith("ValueError: ")


# --- redirects --------------------------------------------------------------------------------


def sent_on(target, status="302 Found"):
    return lambda path, _: answer(status=status, location=target) if path == "/" else answer(b"end")


@pytest.mark.parametrize(
    "target",
    [
        "{other}/",
        "//127.0.0.1:{port}/",
        "http://localhost:{port}/",
        "http://127.1:{port}/",
        "http://[::ffff:127.0.0.1]:{port}/",
        "http://2130706433:{port}/",
        "http://user@127.0.0.1:{port}/",
        "file:///etc/passwd",
        "gopher://127.0.0.1:{port}/",
        "\\\\127.0.0.1:{port}\\",
        "http:\\\\127.0.0.1:{port}\\",
    ],
)
def test_a_redirect_leads_nowhere_that_a_request_may_not(web, target):
    other = web(lambda *_: answer(b"inner"))
    server = web(sent_on(target.format(other=other.origin, port=other.port)))
    said = failure(server)
    assert said.startswith(("NotGranted: ", "ValueError: "))
    assert other.asked == []
    # The control: who follows it gets there.
    if target == "{other}/":
        followed = httpx.get(server.origin, follow_redirects=True, trust_env=False)
        assert followed.content == b"inner"


@pytest.mark.parametrize("target", ["/admin", "../admin", "/v1/%2e%2e/admin", "//127.0.0.1/v1/"])
def test_a_redirect_to_a_path_that_is_not_granted_is_refused(web, target):
    server = web(lambda *_: answer(status="302 Found", location=target))
    said = refusal(table(server.origin, paths=("/v1/",)), f"{server.origin}/v1/")
    assert said.startswith("NotGranted: ")
    assert len(server.asked) == 1


def test_a_redirect_to_loopback_is_refused_though_the_first_host_may_be_private(web):
    inner = web(lambda *_: answer(b"inner"))
    server = web(sent_on(f"http://inner.test:{inner.port}/"))
    resolver, asked = finding("127.0.0.1")
    # Granted by its end only, the second host may not be private.
    granted = table(f"http://first.test:{server.port}", f"http://*.test:{inner.port}")
    said = refusal(granted, f"http://first.test:{server.port}/", resolver)
    assert said == "NotGranted: inner.test: it has a private or loopback address (allow_private)"
    assert (asked, inner.asked) == (["first.test", "inner.test"], [])


def test_a_redirect_that_may_be_followed_is(web):
    server = web(sent_on("/end?x=1"))
    told = ask(server)
    assert (told["content"], told["url"]) == (b"end", f"{server.origin}/end?x=1")
    assert fetch(table(server.origin, max_redirects=0), server.origin)["status"] == 302


def test_redirects_come_to_an_end(web):
    server = web(lambda *_: answer(status="307 Temporary Redirect", location="/"))
    assert failure(server) == ("TooManyRedirects: it was sent on more than 5 times (max_redirects)")
    assert len(server.asked) == 6


def test_a_redirected_post_goes_on_as_everybody_does_it(web):
    told = {"303 See Other": "GET", "302 Found": "GET", "307 Temporary Redirect": "POST"}
    for status, method in told.items():
        server = web(sent_on("/end", status))
        ask(server, method="POST", data="x")
        assert server.asked[1].startswith(f"{method} /end ")
        assert server.asked[1].endswith("\r\n\r\n" + ("x" if method == "POST" else ""))


def test_what_was_meant_for_one_host_is_not_told_another(web):
    second = web(lambda *_: answer(b"second"))
    first = web(sent_on(f"{second.origin}/"))
    secret = {"Authorization": "Bearer x", "Cookie": "a=b", "X-Api-Key": "y", "Accept": "a/b"}
    fetch(table(first.origin, second.origin), first.origin, headers=secret)
    assert "Bearer x" in first.asked[0]
    told = second.asked[0].lower()
    assert "accept: a/b" in told
    assert not [name for name in ("authorization", "cookie", "x-api-key") if name in told]


# --- what is answered -------------------------------------------------------------------------


def endless(_path, _head):
    yield b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    while True:
        yield b"1000\r\n" + b"x" * 4_096 + b"\r\n"


def test_a_body_beyond_the_cap_is_not_taken_nor_waited_for(web):
    began = time.monotonic()
    for say in (lambda *_: answer(b"x" * 10_001), endless):
        assert failure(web(say)) == "TooLarge: its body has more than 10,000 bytes (max_bytes)"
    assert time.monotonic() - began < 10
    assert len(ask(web(lambda *_: answer(b"x" * 10_000)))["content"]) == 10_000


@pytest.mark.parametrize("encoding", ["br", "gzip", "deflate", "identity, gzip"])
def test_a_body_that_is_packed_is_refused_unread(web, encoding):
    server = web(lambda *_: answer(gzip.compress(bytes(50_000_000)), content_encoding=encoding))
    assert failure(server).startswith("ProtocolError: its body is compressed as ")
    assert ask(server, method="HEAD")["status"] == 200


def drip(server):
    def say(_path, _head):
        yield b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"
        while not server[0].wait(0.02):
            yield b"x"

    return say


def silent(server):
    def say(_path, _head):
        server[0].wait(10)
        return b""

    return say


@pytest.mark.parametrize("kind", [drip, silent])
def test_a_slow_answer_is_waited_for_no_longer_than_the_policy_says(web, kind):
    holder = []
    server = web(kind(holder))
    holder.append(server)
    began = time.monotonic()
    granted = table(server.origin, timeout=0.3)
    # A cell can ask for less time, and not for more.
    for asked in ({}, {"timeout": 99}):
        assert refusal(granted, server.origin, **asked) == (
            "TimeoutError: it took longer than 0.3 s (timeout)"
        )
    assert failure(server, timeout=0.2).startswith("TimeoutError")
    assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    "said",
    [
        b"no http at all\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nxxxxx",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 200_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 40_000 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort",
        b"",
    ],
)
def test_what_is_no_plain_answer_is_none(web, said):
    server = web(lambda *_: said)
    assert failure(server).startswith(("ProtocolError: ", "ConnectError"))


def test_nobody_there_is_said_without_a_word_of_this_machine():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    host = f"http://127.0.0.1:{port}"
    said = refusal(table(host), host)
    assert said.startswith("ConnectError: 127.0.0.1: ")
    assert "cellblock" not in said


def test_an_address_is_read_as_it_is_sent():
    url = urls.parse_url("HTTPS://A.Example:443/x%2Fy?q=a+b&c=%26#frag")
    assert str(url) == "https://a.example/x%2Fy?q=a+b&c=%26"
    assert urls.parse_url(str(url)) == url
