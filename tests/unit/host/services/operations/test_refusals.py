"""What is refused before anybody is asked about it: the worker's own answer, from the spelling."""

import msgspec
import pytest

from cellblock.host.services.operations import catalog
from cellblock.host.services.operations.loading import load
from cellblock.host.services.tools import providers
from cellblock.host.services.tools.calls import Call
from cellblock.policy.operations import Operations


def call(name, *args, **kwargs):
    arguments = msgspec.Raw(msgspec.msgpack.encode((args, kwargs)))
    return Call(1, catalog.ALL[name], arguments, answer=lambda _answer: None)


def refusal(made, grants):
    return providers.refusal(made, Operations.of_values(grants.tables), grants)


REFUSED = [
    (("read_file", "/etc/passwd"), {}, "/etc/passwd: it is not beneath a root of [ops.read_file]"),
    (("read_file",), {"path": "../x"}, "../x: it is not beneath a root of [ops.read_file]"),
    (("read_file", b"/etc/passwd"), {}, "/etc/passwd: it is not beneath a root of [ops.read_file]"),
    (("read_file", "keys/id"), {}, "keys/id: it is never read or written (read_deny_paths)"),
    (("write_file", ".", "x"), {}, ".: it is not a file beneath a root of [ops.write_file]"),
    (("write_file", "b/", "x"), {}, "b/: it is not a file beneath a root of [ops.write_file]"),
    (("write_file", "/b", "x"), {}, "/b: it is not beneath a root of [ops.write_file]"),
    (("list_dir", ".."), {}, "..: it is not beneath a root of [ops.list_dir]"),
    (
        ("http", "http://a.example/v1/"),
        {},
        "http://a.example is not one of its hosts ([ops.http] hosts)",
    ),
    (
        ("http", "https://a.example/v1/"),
        {"method": "PUT"},
        "'PUT' is not one of its methods: GET, HEAD ([ops.http] methods)",
    ),
    (
        ("http",),
        {"url": "https://a.example/"},
        "'/' is not beneath one of its paths ([ops.http] paths)",
    ),
    (
        ("http", "https://10.0.0.1/v1/"),
        {},
        "10.0.0.1: it has a private or loopback address (allow_private)",
    ),
    (("install", "other"), {}, "other: it is not in allow of [ops.install]"),
]


@pytest.mark.parametrize(("args", "kwargs", "why"), REFUSED)
def test_what_is_not_granted_is_refused_by_its_spelling_as_the_worker_does(
    everything, args, kwargs, why
):
    answer = refusal(call(*args, **kwargs), everything)
    assert (answer.kind, answer.message) == ("NotGranted", why)
    name, *rest = args
    if name != "http":  # which is asked of servers, in its own tests
        with pytest.raises(Exception) as caught:
            load(everything)[f"ops.{name}"].function(*rest, **kwargs)
        assert (caught.value.kind, str(caught.value)) == ("NotGranted", why)


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        (("read_file", "a.txt"), {"binary": True}),
        (("write_file", "new.txt", "x"), {}),
        (("list_dir",), {}),
        (("http", "https://a.example/v1/x?y=1"), {"method": "HEAD"}),
        (("install", "some_package", "msgspec>=0.1"), {}),
        (("install",), {}),
    ],
)
def test_what_is_granted_is_asked_about(everything, args, kwargs):
    assert refusal(call(*args, **kwargs), everything) is None


@pytest.mark.parametrize(
    "arguments",
    [
        b"\xc1",
        b"",
        msgspec.msgpack.encode(5),
        msgspec.msgpack.encode(([], {})),
        msgspec.msgpack.encode(([5], {})),
        msgspec.msgpack.encode(([b"\xff"], {})),
        b"\x92\x91" + b"\x91" * 100_000 + b"\x80",
    ],
)
def test_what_is_no_call_of_an_operation_is_left_to_who_says_so(everything, arguments):
    for tool in catalog.ALL.values():
        if tool is not catalog.ALL["list_dir"] and tool is not catalog.ALL["install"]:
            made = Call(1, tool, msgspec.Raw(arguments), answer=lambda _answer: None)
            assert refusal(made, everything) is None


def test_an_address_that_is_none_is_not_asked_about_either(everything):
    answer = refusal(call("http", "https://a@b/"), everything)
    assert answer.kind == "ValueError"
    assert answer.message.startswith("'https://a@b/' is not a plain address")
