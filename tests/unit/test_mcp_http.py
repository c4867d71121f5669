"""Who is let in at the door of ``cellblock mcp --http``, before any session is opened."""

import asyncio

import pytest
from mcp.server.transport_security import TransportSecurityMiddleware
from starlette.requests import Request

from cellblock.mcp.http import PATH, HttpServer, HttpSettings

TOKEN = "right"
SETTINGS = HttpSettings(token=TOKEN, names=("lab.example", "proxy.example:*"))


def request(path=PATH, **headers):
    """Return the scope of a request, as ASGI has it."""
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    raw = [(name.encode(), text.encode("latin-1")) for name, text in named.items()]
    return {"type": "http", "method": "POST", "path": path, "headers": raw, "query_string": b""}


def answered(scope):
    """Return the status of the answer. There is no pool: whoever is let in would fail."""
    sent = []

    async def send(message):
        sent.append(message)

    async def receive():
        raise AssertionError("the request was read")

    asyncio.run(HttpServer(None, SETTINGS)(scope, receive, send))
    return sent[0]["status"]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": ""},
        {"authorization": TOKEN},
        {"authorization": "Bearer"},
        {"authorization": "Bearer wrong"},
        {"authorization": f"bearer {TOKEN}"},
        {"authorization": f"Bearer {TOKEN} "},
        {"authorization": "Bearer r\xefght"},
        {"x_authorization": f"Bearer {TOKEN}"},
    ],
)
def test_without_the_token_nothing_is_read(headers):
    assert answered(request(**headers)) == 401
    assert answered(request("/other", **headers)) == 401


def test_positive_control_with_the_token_there_is_one_place():
    assert answered(request("/other", authorization=f"Bearer {TOKEN}")) == 404
    with pytest.raises(AssertionError, match="the request was read"):
        answered(request(authorization=f"Bearer {TOKEN}"))


def refused(**headers):
    """Return the status with which a page is turned away, None if it is not."""
    looked = TransportSecurityMiddleware(SETTINGS.security())
    answer = asyncio.run(looked.validate_request(Request(request(**headers))))
    return answer and answer.status_code


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8765", "127.0.0.1.evil.example:80", "localhost.evil:1", ""],
)
def test_a_name_that_was_rebound_is_no_host_of_ours(host):
    assert refused(host=host) == 421


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "http://localhost.evil.example:80",
        "null",
        "file://",
        "http://lab.example.evil",
    ],
)
def test_no_page_of_the_web_is_a_client(origin):
    assert refused(host="127.0.0.1:8765", origin=origin) == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "127.0.0.1:8765"},
        {"host": "localhost:8765", "origin": "http://localhost:3000"},
        {"host": "lab.example", "origin": "https://lab.example"},
        {"host": "proxy.example:444"},
    ],
)
def test_positive_control_names_that_were_given_are_let_in(headers):
    assert refused(**headers) is None
