# ruff: noqa: RUF001 - look-alike letters are what is tested
"""P8: cells make the policy narrower, never wider, and no cell can prevent or undo it.

Each attack has its control: the same worked before the policy was narrower. Kernels are shared
where a test leaves nothing that another would miss.
"""

import os
import signal
import time

import nbformat
import pytest

from support import machines, processes, reading, tool_kernels
from support.kernels import Kernel, argv_for

#: Allows a little of everything, so that there is something to take away.
OPEN = """
extends = "unsafe"
network_access = true
subprocess_execution = true
filesystem_read_roots = ["{project}"]
filesystem_write_roots = ["{scratch}", "{project}/work"]
env_var_access = ["LAB"]
"""
DENIED = "PermissionError"


def opened(start, world, text=OPEN, **keywords):
    """Return a kernel under a policy of ``text``, in whose folder there is something to read."""
    for folder in ("data", "work"):
        (world.work / folder).mkdir(exist_ok=True)
        world.give(world.work / folder)
        world.write(f"{folder}/file.txt", f"in {folder}")
    world.write("outside.txt", "not in data")
    return start(world.policy(text), "--allow-unsafe", world=world, **keywords)


def ran(kernel, code, **extra):
    """Run a cell that has to end well; return what was published."""
    reply, published = kernel.run(code, **extra)
    assert reply["status"] == "ok", (code, reply)
    return published


def value(kernel, expression):
    return reading.result(ran(kernel, expression))


def tried(kernel, code):
    """Return "ok", or the name of the error that a cell ended with."""
    reply, _ = kernel.run(code)
    return reply["status"] if reply["status"] == "ok" else reply["ename"]


def narrow(kernel, line):
    """Narrow the policy, which has to be done; return the card's JSON."""
    (card,) = reading.cards(ran(kernel, f"%policy narrow {line}"), "narrowing")
    return card


def in_force(kernel):
    (table,) = reading.cards(ran(kernel, "%policy"), "policy")
    return table


def denied(kernel, code):
    """Run a cell that has to be denied; return the rules that it breaks."""
    reply, published = kernel.run(code)
    assert (reply["status"], reply.get("ename")) == ("error", "PolicyDenied"), (code, reply)
    (card,) = reading.cards(published, "denial")
    return [(finding["rule"], finding["subject"]) for finding in card["findings"]]


def is_narrowed(kernel):
    """Say whether the guest that there is can neither have a socket nor read outside of data."""
    kernel.run("import os, socket")
    found = [tried(kernel, code) for code in ("socket.socket()", "open('outside.txt')")]
    return found == [DENIED, DENIED]


# --- what a user gets -----------------------------------------------------------------------------


#: Whoever we are, and who may do least, in namespaces.
USERS = machines.users(wrapped=True)


@pytest.mark.parametrize("somebody", [USERS[0], USERS[-1]], indirect=True)
@pytest.mark.quick
def test_what_is_taken_away_is_gone_from_the_next_cell_on_and_variables_stay(somebody, start):
    kernel = opened(start, **somebody)
    cells = {
        "open('outside.txt').read()": DENIED,
        "open('work/new.txt', 'w')": DENIED,
        "import socket; socket.socket()": DENIED,
        "import subprocess; subprocess.run(['/bin/true'])": DENIED,
        "files = [open('/dev/null') for _ in range(90)]; files.clear()": "OSError",
        "memory = bytearray(200_000_000); del memory": "MemoryError",
    }
    ran(kernel, "kept = [1]\ndef function(): return kept")
    assert {code: tried(kernel, code) for code in cells} == dict.fromkeys(cells, "ok")
    card = narrow(
        kernel,
        'filesystem_read_roots=["data"] filesystem_write_roots=["{scratch}"] max_open_files=80 '
        "network_access=false subprocess_execution=false memory_max_bytes=150_000_000",
    )
    assert (card["guest"], len(card["changes"])) == ("kept", 6)
    assert {code: tried(kernel, code) for code in cells} == cells
    assert value(kernel, "function()") == "[1]"
    assert value(kernel, "import os; os.listdir('data')") == "['file.txt']"


def test_the_card_says_what_is_left_and_what_is_not_in_force_yet(start, world):
    kernel = opened(start, world)
    ran(kernel, "1")  # what is not enforced here comes first
    published = ran(kernel, "%policy narrow network_access=false timeout=10")
    assert (
        reading.card_text(published)
        == """\
The policy is narrower from the next cell on
  network_access             yes → no
  timeout                    60 s → 10 s
Your variables are kept, and cells run under the new limits.
It stays so until the kernel is restarted.
Not everything of it is enforced here:
  network_access             connections that were open before may stay open
                             → begin afresh, which costs the variables: %policy
                               narrow --fresh …"""
    )
    assert reading.kinds(published) == ["display_data"]
    assert in_force(kernel)["narrowed_from"] == {"network_access": True, "timeout": 60.0}
    shown = reading.card_text(ran(kernel, "%policy"))
    assert shown.startswith("Policy mine (narrowed): ")
    assert "10 s (narrowed from 60 s)" in shown
    assert shown.count("connections that were open before may stay open") == 1


def test_what_is_open_stays_open_as_the_card_says_and_is_gone_with_a_new_guest(start, world):
    kernel = opened(start, world, extra_env={"LAB": "secret"})
    ran(kernel, "import os; file = open('outside.txt')")
    gaps = narrow(kernel, 'filesystem_read_roots=["data"]')["gaps"]
    assert [gap["consequence"] for gap in gaps] == [
        "files and folders that were open before stay open"
    ]
    assert value(kernel, "file.read(), os.environ['LAB']") == "('not in data', 'secret')"
    for line in ("mode='safe'", "env_var_access=[]"):
        assert denied(kernel, f"%policy narrow {line}")[0][0] == "narrowing-not-kept"
    ran(kernel, "open(os.environ['TMPDIR'] + '/kept.txt', 'w').write('kept')")
    before = set(kernel.tree()[1:])
    card = narrow(kernel, "--fresh env_var_access=[]")
    assert (card["guest"], card["gaps"]) == ("instead", [])
    assert before.isdisjoint(kernel.tree()), "the new guest is a new zygote's"
    assert tried(kernel, "file") == "NameError"
    assert tried(kernel, "open('outside.txt')") == DENIED
    assert value(kernel, "import os; os.listdir('data'), os.environ.get('LAB')") == (
        "(['file.txt'], None)"
    )
    assert value(kernel, "open(os.environ['TMPDIR'] + '/kept.txt').read()") == "'kept'"


@pytest.mark.parametrize("backend", ["landlock", "bubblewrap"])
def test_a_zygote_reads_nothing_that_a_checkout_or_a_guest_has_put_there(start, world, backend):
    pytest.importorskip("matplotlib")
    if backend == "bubblewrap" and (why := machines.no_bubblewrap()):
        pytest.skip(f"no bubblewrap: {why}")
    settings = f'preload = ["matplotlib.pyplot"]\nbackend = "{backend}"\n'
    text = OPEN.replace('extends = "unsafe"\n', f'extends = "unsafe"\n{settings}')
    world.write("matplotlibrc", "lines.linewidth: 77\n")
    victim = world.write("victim.txt", "the user's")
    victim.parent.joinpath("theirs").mkdir()
    kernel = opened(start, world, text)
    width = "__import__('matplotlib').rcParams['lines.linewidth']"
    assert value(kernel, width) == "1.5"
    # The control: what is read there counts, for whoever looks there.
    assert value(kernel, "import matplotlib; matplotlib.rc_params()['lines.linewidth']") == "77.0"
    ran(
        kernel,
        "import os, glob, matplotlib as m\nfrom matplotlib import font_manager\n"
        "home = os.environ['HOME']\n"
        "font = f'fontlist-v{font_manager.FontManager.__version__}.json'\n"
        "for folder in [os.environ['MPLCONFIGDIR'], m.get_cachedir(), home]:\n"
        "    os.makedirs(folder, exist_ok=True)\n"
        "    open(f'{folder}/matplotlibrc', 'w').write('lines.linewidth: 88')\n"
        f"    if os.path.lexists(f'{{folder}}/{{font}}'): os.remove(f'{{folder}}/{{font}}')\n"
        f"    os.symlink({str(victim)!r}, f'{{folder}}/{{font}}')\n"
        "profile = f'{home}/.ipython/profile_default'\n"
        "os.makedirs(profile, exist_ok=True)\n"
        "for name in ('security', 'pid', 'startup', 'log'):\n"
        "    for found in glob.glob(f'{profile}/{name}'): os.rename(found, found + '.old')\n"
        f"    os.symlink({str(victim.parent / 'theirs')!r} + name[3:], f'{{profile}}/{{name}}')\n",
    )
    narrow(kernel, "--fresh env_var_access=[]")
    assert value(kernel, width) == "1.5"
    assert victim.read_text() == "the user's"
    made = {path.name for path in victim.parent.iterdir() if path.name.startswith("theirs")}
    assert made == {"theirs"}


def test_the_language_layer_is_narrowed_in_a_new_guest(start, world):
    kernel = opened(start, world, f'{OPEN}allowed_modules = ["os", "socket"]\n')
    assert tried(kernel, "import os, socket, gc") == "ok"
    narrow(kernel, "--fresh mode='safe'")
    assert denied(kernel, "import gc") == [("import-not-allowed", "gc")]
    assert tried(kernel, "import os, socket") == "ok"
    narrow(kernel, '--fresh allowed_modules=["os"]')
    assert denied(kernel, "import socket") == [("import-not-allowed", "socket")]
    assert tried(kernel, "__import__('so' + 'cket')") != "ok"
    assert tried(kernel, "import os") == "ok"


def test_tools_are_taken_away_with_a_new_guest_and_their_time_at_once(start, world):
    kernel = start(argv=tool_kernels.argv(world), world=world)
    assert value(kernel, "add(1, 2), echo(3)") == "(3, 3)"
    narrow(kernel, "tool_timeout=0.5 tool_timeouts={slow=0.4}")
    assert tried(kernel, "slow(30)") == "ToolError"
    assert denied(kernel, "%policy narrow tool_timeouts.slow=0.45") == [
        ("policy-only-narrows", "tool_timeouts")
    ]
    narrow(kernel, '--fresh tools=["operators_tools:add"]')
    assert value(kernel, "add(1, 2)") == "3"
    assert tried(kernel, "echo(3)") == "NameError"
    assert "echo" not in reading.card_text(ran(kernel, "%tools"))
    narrow(kernel, "--fresh tools=[]")
    assert tried(kernel, "add(1, 2)") == "NameError"


def test_what_the_host_keeps_takes_no_other_guest(start):
    kernel = start("safe")
    guest = kernel.guest()
    card = narrow(kernel, "timeout=0.5 stdout_max_bytes=1000 undo_depth=1 display='text'")
    assert (card["guest"], card["gaps"]) == ("same", [])
    assert len(reading.stream(ran(kernel, "print('x' * 5_000)"))) < 1_200
    shown = ran(kernel, "from IPython.display import HTML; HTML('<b>x</b>')")
    (data,) = [content["data"] for content in reading.of(shown, "execute_result")]
    assert set(data) == {"text/plain"}
    assert kernel.guest() == guest
    assert kernel.run("while True: pass")[0]["status"] == "error"


def test_narrowings_add_up_until_a_guest_takes_no_more_locks(start, world):
    kernel = opened(start, world)
    ran(kernel, "x = 1")
    for most in range(208, 200, -1):
        assert narrow(kernel, f"max_open_files={most}")["guest"] == "kept"
    assert narrow(kernel, "max_open_files=201")["changes"] == []
    assert denied(kernel, "%policy narrow max_open_files=200") == [("narrowing-not-kept", "narrow")]
    assert in_force(kernel)["policy"]["max_open_files"] == 201
    assert value(kernel, "x") == "1"
    assert narrow(kernel, "--fresh max_open_files=200")["guest"] == "instead"


# --- for good -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def once_wide(shared_world, start_shared):
    """Return a kernel that has lost the network and most of what it could read."""
    kernel = opened(start_shared, shared_world)
    assert tried(kernel, "import socket; socket.socket(); open('outside.txt')") == "ok"
    narrow(kernel, 'network_access=false filesystem_read_roots=["data"]')
    reply, _ = kernel.run("%undo")
    assert reply["evalue"] == "%undo 1: there is nothing to undo"
    return kernel


@pytest.fixture
def narrowed(once_wide):
    """Return that kernel with a variable."""
    ran(once_wide, "x = [1]")
    return once_wide


@pytest.mark.parametrize("how", ["", "--fresh "])
def test_a_plan_that_is_too_large_is_refused_and_variables_stay(start, world, how):
    """The zygote took a frame that it held for too long for the end of its host."""
    text = OPEN + 'backend = "landlock"\n'
    kernel = opened(start, world, text)
    deep = "/".join(["work", *["d" * 240] * 11])
    ran(kernel, f"kept = 1; here = {deep!r}; import os")
    ran(kernel, "os.chdir('work')\nfor _ in range(11): os.mkdir('d' * 240); os.chdir('d' * 240)")
    ran(kernel, "for number in range(3_500): open(f'{number}' + 'f' * 240, 'w').close()")
    line = f'filesystem_write_roots=["{{scratch}}"] add.read_deny_paths=["{deep}/x"]'
    reply, published = kernel.run(f"%policy narrow {how}{line}")
    assert reply["ename"] == "PolicyDenied"
    assert "singly takes more than 4,194,304 bytes" in str(published)
    assert value(kernel, "kept") == "1"
    assert tried(kernel, "open('../new', 'w')") == "ok"  # as wide as before
    narrow(kernel, f'{how}filesystem_write_roots=["{{scratch}}"] add.read_deny_paths=["{deep}"]')
    assert value(kernel, "1") == "1"


def test_undo_does_not_go_behind_a_narrowing(narrowed):
    ran(narrowed, "x.append(2)")
    ran(narrowed, "%undo")
    assert (value(narrowed, "x"), is_narrowed(narrowed)) == ("[1]", True)
    assert narrowed.run("%undo 50")[0]["status"] == "error"
    assert is_narrowed(narrowed)


def test_a_guest_that_is_killed_is_followed_by_one_that_is_as_narrow(narrowed):
    os.kill(narrowed.guest(), signal.SIGKILL)
    assert (is_narrowed(narrowed), value(narrowed, "x")) == (True, "[1]")


def test_when_all_of_a_guest_is_killed_the_next_one_is_as_narrow(narrowed):
    for _ in range(2):
        processes.end([*narrowed.copies(), narrowed.guest()])
        assert is_narrowed(narrowed)


def test_when_the_zygote_is_killed_the_next_one_is_as_narrow(narrowed):
    before = narrowed.zygote()
    os.kill(before, signal.SIGKILL)
    processes.gone([before])
    deadline = time.monotonic() + 20
    while narrowed.run("1")[0]["status"] != "ok" or narrowed.zygote() == before:
        assert time.monotonic() < deadline
    assert is_narrowed(narrowed)


# --- attacks: a guest that will not be narrowed ---------------------------------------------------

TAKEN_OVER = """
import ctypes, os, resource, threading, time
from cellblock.guest.confine import landlock as again
libc = ctypes.CDLL(None, use_errno=True)
def restrict(number, flags):
    if libc.syscall(446, number, flags):
        raise OSError(ctypes.get_errno(), 'refused')
most = lambda: resource.getrlimit(resource.RLIMIT_NOFILE)[0]
"""
#: What takes the guest's own part in it away, or does it otherwise than it is told.
RESISTANCE = {
    "nothing is asked": "again.request_ruleset = lambda: None",
    "asked in a thread": (
        "def ask():\n"
        "    thread = threading.Thread(target=lambda: restrict(1, 0))\n"
        "    thread.start(); thread.join()\n"
        "again.request_ruleset = ask"
    ),
    "asked with a thread beside": (
        "def ask():\n"
        "    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
        "    restrict(1, 0)\n"
        "again.request_ruleset = ask"
    ),
    "the copy ends": "again.request_ruleset = lambda: os._exit(0)",
}


def test_a_guest_that_resists_is_ended_and_a_narrow_one_takes_its_place(start, world):
    kernel = opened(start, world)
    ran(kernel, f"{TAKEN_OVER}\nagain.request_ruleset = lambda: restrict(os.dup(1), 0)")
    assert narrow(kernel, "max_open_files=200")["guest"] == "kept", "the control does as it is told"
    for number, (how, resistance) in enumerate(RESISTANCE.items()):
        ran(kernel, f"{TAKEN_OVER}\n{resistance}")
        assert value(kernel, "most()") == str(200 - number)
        card = narrow(kernel, f"max_open_files={199 - number}")
        assert card["guest"] == "instead", how
        assert tried(kernel, "most()") == "NameError", how
    ran(kernel, TAKEN_OVER)
    assert value(kernel, "most()") == str(200 - len(RESISTANCE))


def test_cells_can_lay_no_ruleset_of_their_own(unsafe):
    """One that could would have a wider one ready, or lock out the cells after it."""
    ran(unsafe, TAKEN_OVER)
    for call, arguments in ((444, "0, 0, 1"), (445, "3, 1, 0, 0"), (446, "1, 0"), (317, "1, 0, 0")):
        ran(unsafe, f"result = libc.syscall({call}, {arguments}), ctypes.get_errno()")
        assert value(unsafe, "result") == "(-1, 1)", call
    assert tried(unsafe, "import json; open(json.__file__)") == "ok"


LEFT_BEHIND = {
    "thread": """
import os, threading, time
def beat():
    out = open(os.environ['TMPDIR'] + '/thread', 'ab', buffering=0)
    while True:
        out.write(b'x'); time.sleep(0.01)
threading.Thread(target=beat, daemon=True).start()
""",
    "process": """
import os, subprocess, sys
code = '''
import os, signal, time
for number in (1, 2, 13, 15, 18): signal.signal(number, signal.SIG_IGN)
out = open(os.environ['TMPDIR'] + '/process', 'ab', buffering=0)
while True:
    out.write(b'x'); time.sleep(0.01)
'''
subprocess.Popen([sys.executable, '-c', code])
""",
    "forking": """
import os, subprocess, sys
code = '''
import os, time
out = open(os.environ['TMPDIR'] + '/forking', 'ab', buffering=0)
while True:
    out.write(b'x'); time.sleep(0.01)
    if os.fork(): os._exit(0)
'''
for _ in range(3): subprocess.Popen([sys.executable, '-c', code])
""",
}


def test_what_was_left_behind_does_not_go_on_beside(start, world):
    kernel = opened(start, world)
    for code in LEFT_BEHIND.values():
        ran(kernel, code)
    deadline = time.monotonic() + 20

    def sizes():
        found = {
            path.name: path.stat().st_size for path in world.root.glob("tmp/cellblock-*/scratch/*")
        }
        return {name: found.get(name, 0) for name in LEFT_BEHIND}

    while not all(sizes().values()) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert all(sizes().values())
    card = narrow(kernel, 'filesystem_read_roots=["data"]')  # processes are still allowed
    assert (card["guest"], len(card["lost"])) == ("kept", 1)
    before = sizes()
    time.sleep(0.3)
    assert sizes() == before


def test_a_socket_from_before_reaches_nobody_new(start, world):
    kernel = opened(start, world)
    ran(
        kernel,
        "import socket\n"
        "server = socket.create_server(('127.0.0.1', 0))\n"
        "there = server.getsockname()\n"
        "stream = socket.create_connection(there)\n"
        "friend = socket.socket(type=socket.SOCK_DGRAM)\n"
        "friend.connect(there)\n"
        "def both(): return socket.socket(), socket.socket(type=socket.SOCK_DGRAM)\n"
        "tcp, udp = both()",
    )
    ways = [
        "udp.sendto(b'x', there)",
        "udp.sendmsg([b'x'], [], 0, there)",
        "udp.connect(there)",
        "tcp.connect(there)",
        "server.accept()",
        "socket.create_server(('127.0.0.1', 0))",
        "udp.bind(('127.0.0.1', 0))",
        "server.listen()",
    ]
    # The flags by which the gate's own listener is given away pass the gate, and not the filter.
    assert tried(kernel, "udp.sendmsg([b'x'], [], 4, there)") == DENIED
    found = {way: tried(kernel, f"tcp, udp = both(); {way}") for way in ways}
    assert found == dict.fromkeys(ways, "ok")
    ran(kernel, "tcp, udp = both()")
    narrow(kernel, "network_access=false")
    assert {way: tried(kernel, way) for way in ways} == dict.fromkeys(ways, DENIED)
    assert tried(kernel, "udp.sendmsg([b'x'], [], 4, there)") == DENIED
    assert value(kernel, "friend.send(b'x')") == "1", "as the card says"
    assert tried(kernel, "stream.send(b'x')") == "BrokenPipeError", "a copy has no connections"


# --- attacks: asking for more ---------------------------------------------------------------------

#: Every spelling that may be mistaken for less; unit/policy/test_narrowing.py has every field.
WIDER = """
mode="unsafe"
require=[]
require=["network_access"]
audit={log=false}
allowed_modules=["os"]
allowed_modules=["Math"]
add.allowed_modules=["os"]
filesystem_read_roots=["/"]
filesystem_read_roots=["."]
filesystem_read_roots=["~"]
filesystem_read_roots=["{project}"]
filesystem_read_roots=["{scratch}/.."]
filesystem_read_roots=["{scratch}/../.."]
filesystem_read_roots=["{scratch}x"]
filesystem_read_roots=["{SCRATCH}"]
filesystem_read_roots=["/proc/self/cwd"]
filesystem_read_roots=["leads-out"]
filesystem_read_roots=["{project}/leads-out"]
filesystem_write_roots=["/tmp"]
filesystem_write_roots=["{scratch}", "leads-out"]
filesystem_write_roots=["{scratch}", "/"]
read_deny_paths=[]
read_deny_paths=["~/.ssh"]
read_deny_paths=["/"] add.read_deny_paths=[]
network_access=true
network_access=["example.org:443"]
network_access=1
network_access="false"
subprocess_execution=true
subprocess_execution=1
display="Text"
timeout=61
timeout=60.0001
timeout=1e9
timeout=inf
timeout=nan
timeout=-1
timeout=0
timeout=true
timeout="1"
timeout="none"
timeout=1 timeout=1000
timeout=1, network_access=true
Timeout=1
TIMEOUT=1
ｔimeout=1
timeout =
timeout=99999999999999999999999999999999
timeout=1979-05-27
idle_timeout="off"
cpu_seconds=-1
memory_max_bytes=1
max_open_files=10.5
display_max_bytes=0xFFFFFFFF
extends="unsafe"
[policy]
--force timeout=1
"""
#: The control: read as they are meant.
NOT_WIDER = ["timeout=9.5 # 1000", "timeout = 8, undo_depth\t=1", "timeout=0x7"]


def test_no_spelling_of_any_field_allows_more(start, world):
    (world.work / "leads-out").symlink_to("/usr")
    kernel = start(world.policy('require = ["timeout"]'), world=world)
    before, guest = in_force(kernel)["policy"], kernel.guest()
    for line in WIDER.strip().split("\n"):
        found = denied(kernel, f"%policy narrow {line}")
        assert {rule for rule, _ in found} <= {"policy-only-narrows", "argument-not-allowed"}, line
    assert (in_force(kernel)["policy"], kernel.guest()) == (before, guest)
    for line in NOT_WIDER:
        assert narrow(kernel, line)["changes"] != []


#: Where a narrowing is not the host's to settle, and so nobody's.
ELSEWHERE = [
    "x = 1\n%policy narrow timeout=1",
    "%policy narrow timeout=1\nx = 1",
    "if True:\n    %policy narrow timeout=1",
    "def f():\n    %policy narrow timeout=1\nf()",
    "%%time\n%policy narrow timeout=1",
    "%%capture\n%policy narrow timeout=1",
    "%time get_ipython().run_line_magic('policy', 'narrow timeout=1')",
    "%%policy narrow timeout=1",
    "%%policy\nnarrow timeout=1",
    "get_ipython().run_line_magic('policy', 'narrow timeout=1')",
    "get_ipython().run_cell_magic('policy', 'narrow timeout=1', '')",
    "%policy narrow timeout=1 \\\n  undo_depth=1",
    "%policy narrow timeout=1; x = 1",
    "%policy {'narrow timeout=1'}",
    "%policy timeout=1",
    "%policy NARROW timeout=1",
    "x = %policy narrow timeout=1",
    "!%policy narrow timeout=1",
    ">>> %policy narrow timeout=1",
]


@pytest.mark.parametrize("mode", ["safe", "unsafe"])
def test_a_narrowing_stands_alone_or_is_none(request, mode):
    kernel = request.getfixturevalue(mode)
    before = in_force(kernel)["policy"]
    for cell in ELSEWHERE:
        reply, published = kernel.run(cell)
        assert reply["status"] == "error" or mode == "unsafe", (cell, reply)
        assert reading.cards(published, "narrowing") == [], cell
    hidden = {
        "a": "get_ipython().run_line_magic('policy', 'narrow timeout=1')",
        "b": "%policy narrow timeout=1",
    }
    reply, _ = kernel.run("1", user_expressions=hidden)
    assert [one["status"] for one in reply["user_expressions"].values()] == ["error", "error"]
    assert in_force(kernel)["policy"] == before


def test_nothing_in_the_magics_argument_is_evaluated_on_the_way(safe):
    for cell in ("%policy # {marked.append(1)}", "%policy narrow x # {marked.append(1)}"):
        safe.run("marked = []")
        safe.run(cell)
        assert value(safe, "marked") == "[]"


def test_a_denial_of_more_says_where_and_what_instead(safe):
    ran(safe, "1")
    _, published = safe.run("%policy narrow network_access=false max_processes=1_000")
    assert (
        reading.card_text(published)
        == """\
cellblock did not run this cell: 1 finding                          policy: safe

  line 1  max_processes can't be changed so: 1000 is more than 128

  Instead: only a policy file of your own can allow more: cellblock install
  --policy FILE."""
    )


# --- under other conditions -----------------------------------------------------------------------


def test_where_nothing_is_enforced_a_narrowing_is_a_gap_like_the_rest(start, world):
    kernel = opened(start, world, f'{OPEN}backend = "noop"\n')
    for line in ('require=["network_access"] network_access=false', 'on_unsupported="error"'):
        assert denied(kernel, f"%policy narrow {line}")[0][0] == "narrowing-not-kept"
    card = narrow(kernel, "network_access=false timeout=10")
    assert card["guest"] == "same"
    assert [(gap["capability"], gap["status"]) for gap in card["gaps"]] == [
        ("network_access", "unenforced")
    ]


# --- notebooks, and the audit log -----------------------------------------------------------------


def notebook(world, own):
    """Write a notebook with ``own`` in its metadata; return the environment of its kernel."""
    made = nbformat.v4.new_notebook()
    made.metadata["cellblock"] = own
    nbformat.write(made, world.work / "mine.ipynb")
    return {"JPY_SESSION_NAME": str(world.work / "mine.ipynb")}


@pytest.mark.quick
def test_a_notebooks_metadata_narrows_from_the_start_and_all_of_it_is_on_record(
    start, world, records
):
    asked = {"network_access": False, "filesystem_read_roots": ["data"], "timeout": 20}
    env = notebook(world, {"policy": asked})
    kernel = opened(start, world, extra_env=env)
    assert is_narrowed(kernel)
    assert value(kernel, "open('data/file.txt').read()") == "'in data'"
    assert in_force(kernel)["narrowed_from"]["network_access"] is True
    denied(kernel, "%policy narrow timeout=30")
    narrow(kernel, "timeout=10 max_open_files=100")
    kernel.end()
    by_notebook, by_cell = records(world, "narrowing")
    assert by_notebook["fields"]["network_access"] == "false"
    assert by_notebook["file"] == env["JPY_SESSION_NAME"]
    assert by_cell["fields"] == {"timeout": "10", "max_open_files": "100"}
    (session,) = records(world, "session-start")
    assert len({one["digest"] for one in (session, by_notebook, by_cell)}) == 3
    decided = records(world, "cell")
    assert (by_cell["guest"], by_cell["cell"]) == ("relock", decided[-1]["cell"])
    enforced = records(world, "enforcement")[-1]
    assert enforced["seq"] > by_cell["seq"]
    assert "files and folders that were open before stay open" in {
        g["consequence"] for g in enforced["gaps"]
    }
    refused = [one for one in decided if one["decision"] == "denied"]
    assert [finding["rule"] for finding in refused[-1]["findings"]] == ["policy-only-narrows"]


def test_a_notebook_that_asks_for_more_runs_nothing(world):
    own = {"policy": {"timeout": 100}}
    with Kernel(argv_for("safe"), world=world, extra_env=notebook(world, own)) as kernel:
        kernel.wait_heard()
        reply, published = kernel.run("x = 1")
        assert (reply["status"], reply["ename"]) == ("error", "PolicyProblem")
        (card,) = reading.cards(published, "problem")
        assert card["file"] == str(world.work / "mine.ipynb")
        assert card["key"] == "metadata.cellblock.policy.timeout"
        assert card["detail"].startswith("a notebook can't have more")
        assert kernel.tree() == [kernel.proc.pid], "no guest was started"


def test_a_notebook_that_is_none_is_told_once_and_narrows_nothing(start, world):
    path = world.write("broken.ipynb", "{")
    kernel = start("safe", world=world, extra_env={"JPY_SESSION_NAME": str(path)})
    assert reading.notices(ran(kernel, "1")) == (
        "[cellblock does not know whether broken.ipynb narrows the policy: "
        "it is not a notebook in JSON]\n"
    )
    assert reading.notices(ran(kernel, "1")) == ""
    assert "narrowed_from" not in in_force(kernel)
