"""``cellblock mcp --http`` asks who may come in before it reads a request or opens a session."""

import asyncio

import pytest

from cellblock.mcp.http import PATH, HttpServer
from cellblock.mcp.settings import HttpSettings

OURS = {"authorization": "Bearer right", "host": "127.0.0.1:8765"}


def answered(path=PATH, **headers):
    """Return the status of the answer. There is no pool: whoever is let in would fail."""
    raw = [(name.encode(), text.encode()) for name, text in headers.items()]
    scope = {"type": "http", "method": "POST", "path": path, "headers": raw, "query_string": b""}
    sent = []

    async def send(message):
        sent.append(message)

    async def receive():
        raise AssertionError("the request was read")

    asyncio.run(HttpServer(None, HttpSettings(token="right"))(scope, receive, send))
    return sent[0]["status"]


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ({"authorization": "Bearer wrong"}, 401),
        ({"host": "127.0.0.1:8765@evil.example"}, 421),
        ({"origin": "http://localhost:80@evil.example"}, 403),
    ],
)
def test_whoever_is_refused_is_not_heard(header, status):
    assert answered(**OURS | header) == status
    assert answered("/other", **OURS | header) == status


def test_positive_control_others_are_heard():
    assert answered("/other", **OURS) == 404
    with pytest.raises(AssertionError, match="the request was read"):
        answered(**OURS)
