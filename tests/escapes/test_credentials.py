"""Keys that cells use and never see: a policy's credentials, in kernels under each backend.

The server is real, over TLS and without it. A cell says all that it finds; no message of the kernel
has the key in it, nor has anything that is written down.
"""

import json
import os
from pathlib import Path

import pytest

from support import machines, reading
from support.kernels import Kernel, argv_for, world_and_prefix
from support.web import LOCALHOST, Web, answer

SECRET = "sk-51f0c0ffee-0123456789abcdef"
IN_FILE = "sk-0ff1ce-fedcba9876543210-file"
POLICY = """
extends = "data"
backend = "{backend}"
subprocess_execution = true
add.magics = ["policy"]
[audit]
sources = true
[ops.http]
hosts = ["https://localhost:{tls}", "http://127.0.0.1:{plain}", "http://127.0.0.1:{closed}"]
methods = ["GET", "POST"]
allow_private = true
ca_file = "{ca}"
[credentials.API]
hosts = ["localhost:{tls}", "127.0.0.1:{closed}"]
prefix = "Bearer "
value = "env:API_KEY"
[credentials.FILE]
hosts = ["127.0.0.1:{plain}"]
header = "X-Api-Key"
value = "file:{file}"
"""


def say(path, head):
    if path.startswith("/echo"):
        return answer(head.encode(), X_Echo=head.splitlines()[1])
    return answer(b"hello")


@pytest.fixture(scope="module", params=machines.places(), ids=" under ".join)
def place(request):
    user, backend = request.param
    if backend == "bubblewrap" and (why := machines.no_bubblewrap()):
        pytest.skip(f"no bubblewrap: {why}")
    world, prefix = world_and_prefix(user)
    world.backend = backend
    yield world, prefix
    world.close()


@pytest.fixture(scope="module")
def servers():
    with Web(say, tls=True, pem=LOCALHOST) as tls, Web(say) as plain, Web(say) as closed:
        closed.close()
        yield tls, plain, closed


def begin(place, servers, **environment):
    world, prefix = place
    tls, plain, closed = servers
    ca = world.write("authority.pem", LOCALHOST.read_text())
    file = world.write("key.txt", f"{IN_FILE}\n")
    (world.work / "link").unlink(missing_ok=True)
    (world.work / "link").symlink_to(file)
    ports = {"tls": tls.port, "plain": plain.port, "closed": closed.port}
    text = POLICY.format(backend=world.backend, ca=ca, file=file, **ports)
    return Kernel(argv_for(world.policy(text)), world=world, prefix=prefix, extra_env=environment)


@pytest.fixture(scope="module")
def started(place, servers):
    kernel = begin(place, servers, API_KEY=SECRET)
    try:
        kernel.wait_ready()
        yield kernel
    finally:
        kernel.close()


@pytest.fixture
def kernel(started, servers):
    for server in servers:
        server.asked.clear()
    return started


def said(kernel, code):
    """Return all that a cell had the kernel say; the key is not in it."""
    reply, published = kernel.run(code)
    found = json.dumps([reply, published], default=str)
    assert SECRET not in found
    assert IN_FILE not in found
    return found, published


def logged(kernel):
    folder = kernel.world.home / ".cache" / "cellblock" / "audit"
    lines = [line for log in sorted(folder.glob("*")) for line in log.read_text().splitlines()]
    assert SECRET not in "".join(lines)
    assert IN_FILE not in "".join(lines)
    return [json.loads(line) for line in lines]


def header(server, name):
    lines = [line.partition(": ") for head in server.asked for line in head.splitlines()]
    return [value for key, _, value in lines if key.lower() == name]


def test_a_cell_uses_a_key_and_does_not_see_it(kernel, servers):
    tls, plain, _ = servers
    code = f"r = ops.http('https://localhost:{tls.port}/v1/x?q=mine')\nprint(r.status, r.text)"
    assert "200 hello" in said(kernel, code)[0]
    assert "hello" in said(kernel, f"ops.http('http://127.0.0.1:{plain.port}/').text")[0]
    assert header(tls, "authorization") == [f"Bearer {SECRET}"]
    assert header(plain, "x-api-key") == [IN_FILE]
    used = [one for one in logged(kernel) if one["kind"] == "credential"]
    assert [(one["name"], one["host"], one["method"], one["path"]) for one in used[-2:]] == [
        ("API", f"localhost:{tls.port}", "GET", "/v1/x"),
        ("FILE", f"127.0.0.1:{plain.port}", "GET", "/"),
    ]
    cells = [one["cell"] for one in logged(kernel) if one["kind"] == "cell"]
    assert used[-1]["cell"] == cells[-1]


def test_what_the_server_echoes_is_shown_without_it(kernel, servers):
    tls, plain, _ = servers
    for url, name in (
        (f"https://localhost:{tls.port}/echo", "API"),
        (f"http://127.0.0.1:{plain.port}/echo", "FILE"),
    ):
        code = f"r = ops.http({url!r})\nprint(r.text, r.headers, repr(r))"
        assert f"[credential {name}]" in said(kernel, code)[0]


SEARCH = """
import glob, os, subprocess, sys
found = [repr(dict(os.environ)), repr(inputs), repr(vars(ops)) if hasattr(ops, '__dict__') else '']
for name in glob.glob('/proc/*/environ') + glob.glob('/proc/*/task/*/environ') + [
    '/proc/self/environ', '/proc/1/environ', '/proc/%d/environ' % os.getppid(), FILE, LINK,
    '/proc/self/cwd/key.txt', '/proc/self/root' + FILE,
]:
    for read in (lambda: open(name, 'rb').read(), lambda: os.readlink(name)):
        try:
            found.append(repr(read()))
        except OSError as error:
            found.append(f'{name}: {error}')
found.append(subprocess.run(
    'env; cat /proc/*/environ; cat key.txt link; ln key.txt mine; cat mine; cp key.txt x; cat x',
    shell=True, capture_output=True).stdout.decode(errors='replace'))
print(len(found), *found, sep='\\n')
"""


def test_no_process_and_no_file_gives_a_cell_the_key(kernel):
    work = kernel.world.work
    code = SEARCH.replace("FILE", repr(f"{work}/key.txt")).replace("LINK", repr(f"{work}/link"))
    found, _ = said(kernel, code)
    assert "API_KEY" not in found
    # The control: the host has one, and the other is in the file.
    if os.geteuid() == 0:  # the host is not to be read by who runs it
        assert SECRET.encode() in Path(f"/proc/{kernel.proc.pid}/environ").read_bytes()
    assert (work / "key.txt").read_text().strip() == IN_FILE


def test_a_file_beside_it_is_read(kernel):
    kernel.world.write("beside.txt", "beside")
    assert "beside" in said(kernel, "print(open('beside.txt').read())")[0]


def test_errors_and_tracebacks_do_not_have_it(kernel, servers):
    tls, plain, closed = servers
    wrong = [
        f"ops.http('http://127.0.0.1:{closed.port}/')",
        f"ops.http('https://localhost:{tls.port}/', timeout=0.0001)",
        f"ops.http('https://localhost:{tls.port}/', headers={{'aUTHORIZATION': 'mine'}})",
        f"ops.http('http://127.0.0.1:{plain.port}/', headers={{'x_api_key': 'mine'}})",
        f"ops.http('https://user@localhost:{tls.port}/')",
        f"ops.http('https://localhost.:{tls.port}/')",
        f"ops.http('https://127.0.0.1:{tls.port}/')",
        f"ops.http('https://localhost:{tls.port}/', method='PUT')",
    ]
    for code in wrong:
        text = (
            f"import traceback\ntry:\n    {code}\nexcept Exception as e:\n    traceback.print_exc()\n"
            "    print(vars(e), e.__context__, e.__cause__)\n    raise"
        )
        found, _ = said(kernel, text)
        assert "ToolError" in found, code
    assert header(tls, "authorization") == []
    assert SECRET not in kernel.stderr()


def test_a_policy_says_who_gets_which_key_and_not_the_key(kernel, servers):
    tls, _, closed = servers
    _, published = said(kernel, "%policy")
    assert (
        f"requests to localhost:{tls.port} and 127.0.0.1:{closed.port} carry your key API "
        "(cells do not see it)"
    ) in " ".join(reading.card_text(published).split())


def test_a_narrowed_session_sends_none_and_gets_none_back(place, servers):
    tls, plain, _ = servers
    kernel = begin(place, servers, API_KEY=SECRET)
    try:
        kernel.wait_ready()
        url = f"ops.http('https://localhost:{tls.port}/echo').status"
        assert "200" in said(kernel, url)[0]
        _, published = said(kernel, '%policy narrow credentials=["FILE"]')
        assert "carry your key API" in " ".join(reading.card_text(published).split())
        for server in servers:
            server.asked.clear()
        assert "200" in said(kernel, url)[0]
        said(kernel, f"ops.http('http://127.0.0.1:{plain.port}/')")
        assert header(tls, "authorization") == []
        assert header(plain, "x-api-key") == [IN_FILE]
        for wider in ('["API", "FILE"]', f'{{API = {{hosts = ["localhost:{tls.port}"]}}}}'):
            assert "policy" in said(kernel, f"%policy narrow credentials={wider}")[0]
            said(kernel, url)
        assert header(tls, "authorization") == []
        said(kernel, "import os\nos.kill(os.getpid(), 9)")
        said(kernel, url)
        assert header(tls, "authorization") == []
    finally:
        kernel.close()


def test_without_its_variable_a_key_is_missed_at_the_start_and_its_requests_are_refused(
    place, servers
):
    tls, _, _ = servers
    kernel = begin(place, servers)
    try:
        kernel.wait_ready()
        _, published = said(kernel, "1")
        told = reading.notices(published)
        assert f"refuses requests to localhost:{tls.port} and " in told
        assert (
            "which take the key API (env:API_KEY): the host's environment has no API_KEY. "
            "Set API_KEY where the kernel is started, and restart it."
        ) in told
        tls.asked.clear()
        content, _ = kernel.run(f"ops.http('https://localhost:{tls.port}/')")
        assert content["evalue"].startswith(f"ops.http: NoKey: localhost:{tls.port} takes the key")
        assert tls.asked == []
    finally:
        kernel.close()
