"""What each door does with text that nobody judged, by what a policy says about cells.

A row is a door, a column a kind of policy. Each is tried in a kernel with a text that prints a mark
if it is evaluated. ``RUNS`` is the positive control of a row: there the mark is heard. Rows that
run nowhere have theirs in the first, where the same text is a cell.
"""

import json

import pytest

from support.admission import approve
from support.kernels import Kernel, World, argv_for
from support.lab import LabFront

#: In two parts, so that a door which repeats the text is no false alarm.
MARK = "MARK" + "ED"
TEXT = "print('MARK' + 'ED')"
#: Runs first in each kernel. What it defines prints the mark if it is handed what a request names.
HOOKS = """
class Told:
    def __class_getitem__(cls, item): print('MARK' + 'ED'); return cls
    def __init_subclass__(cls, **_): print('MARK' + 'ED')
    def __getattr__(self, name):
        if name == 'asked': print('MARK' + 'ED')
        raise AttributeError(name)
    def __getitem__(self, item): print('MARK' + 'ED'); return item
    @property
    def own(self): print('MARK' + 'ED'); return 1
class Descriptor:
    def __get__(self, instance, owner=None): print('MARK' + 'ED'); return 1
class Meta(type):
    def __getattr__(cls, name):
        if name == 'asked': print('MARK' + 'ED')
        raise AttributeError(name)
class Described(metaclass=Meta): pass
class Plain:
    own = Descriptor()
class Missing(dict):
    def __missing__(self, key): print('MARK' + 'ED'); return key
class Posing:
    def __getitem__(self, item): print('MARK' + 'ED'); return item
import collections
class Users(collections.UserDict):
    def __missing__(self, key): print('MARK' + 'ED'); return key
class Key(str):
    def __eq__(self, other):
        if other in ('asked', 'aske'): print('MARK' + 'ED')
        return False
    def __hash__(self): return hash('asked')
class Listed:
    def __dir__(self): return [Began('asked')]
    def _ipython_key_completions_(self): return [Began('asked')]
class Began(str):
    def startswith(self, *_): print('MARK' + 'ED'); return False
    def __getitem__(self, part): return Key('asked')
told, missing, described, plain, posing = Told(), Missing(), Described(), Plain(), Posing()
users, keyed, listed = Users(), {Key('asked'): 1}, Listed()
"""
#: What mode safe has no names for.
MORE_HOOKS = """
Posing.__module__ = 'numpy'
def completer(shell, event):
    print('MARK' + 'ED')
    return ['told']
shell = get_ipython()
shell.set_hook('complete_command', completer, str_key='told')
def matcher(text):
    if text == 'asked': print('MARK' + 'ED')
    return []
shell.Completer.custom_matchers.append(matcher)
globals()[Key('asked')] = 1
shell.register_magic_function(lambda line: print('MARK' + 'ED'), 'line', 'output')
from IPython.core.magic_arguments import argument, magic_arguments
@magic_arguments()
@argument('-n', type=lambda said: print('MARK' + 'ED'))
def top(line): pass
shell.register_magic_function(top)
"""
TEMPLATE = (
    'def run(state):\n    """Run the cell that defines hooks."""\n'
    "    from IPython import get_ipython\n\n"
    f"    exec({HOOKS + MORE_HOOKS!r}, get_ipython().user_ns)\n"
)
RUNS, NOTHING, REFUSED = "evaluated as a cell", "never evaluated", "refused"


def cell(kernel, **options):
    return kernel.run(TEXT, **options)[0]


def expression(kernel, code="", **options):
    reply = kernel.run(code, user_expressions={"x": TEXT}, **options)[0]
    return reply if reply["status"] == "error" else reply["user_expressions"].get("x", reply)


def in_subshell(kernel, kind="execute_request", **content):
    """Send the text to a subshell, as a cell or as what is to be completed."""
    made = kernel.ask("create_subshell_request", {}, "control")["content"]["subshell_id"]
    header = kernel.session.msg_header(kind) | {"subshell_id": made}
    content = content or {"code": TEXT, "silent": False}
    reply = kernel.ask(kind, content, header=header)["content"]
    kernel.ask("delete_subshell_request", {"subshell_id": made}, "control")
    return reply


def complete(code):
    content = {"code": code, "cursor_pos": len(code)}
    return lambda kernel: kernel.ask("complete_request", content)["content"]


def inspect(code):
    content = {"code": code, "cursor_pos": len(code), "detail_level": 1}
    return lambda kernel: kernel.ask("inspect_request", content)["content"]


def ask(kind, **content):
    return lambda kernel: kernel.ask(kind, content)["content"]


def on_control(kind, **content):
    """Send what belongs to another channel; what comes of it is over when the next is answered."""

    def attack(kernel):
        kernel.send(kind, content, "control")
        return kernel.ask("kernel_info_request", {}, "control")["content"]

    return attack


def comm(kernel):
    """Have text in each place of a comm's messages."""
    content = {"comm_id": TEXT, "target_name": TEXT, "target_module": TEXT, "data": {TEXT: TEXT}}
    for kind in ("comm_open", "comm_msg", "comm_close"):
        kernel.until_idle(kernel.send(kind, content))


def lab(kernel):
    """Have JupyterLab's extension send the text to be checked, and in place of names."""
    front = LabFront(kernel)
    front.until("state")
    front.answer("check", "findings", code=TEXT)
    for kind, fields in (
        ("checkpoint", {"name": TEXT}),
        ("restore", {"name": TEXT}),
        ("diff", {"path": TEXT}),
        ("keep", {"digest": TEXT, "paths": [TEXT]}),
        ("drop", {"paths": [TEXT]}),
    ):
        front.answer(kind, **fields)


def answer(kernel):
    """Answer what nobody asked."""
    kernel.send("input_reply", {"status": "ok", "value": TEXT}, "stdin")


JUDGED = (NOTHING, NOTHING, NOTHING, RUNS)
ADMITTED = (RUNS, REFUSED, REFUSED, RUNS)
NOWHERE = (NOTHING,) * 4
COLUMNS = ("safe", "approved", "template", "any")
#: What each column does with the text, in the order of ``COLUMNS``.
DOORS = {
    "cell": (cell, ADMITTED),
    "silent cell": (lambda kernel: cell(kernel, silent=True), ADMITTED),
    "unstored cell": (lambda kernel: cell(kernel, store_history=False), ADMITTED),
    "help on an attribute": (lambda kernel: kernel.run("told.asked?")[0], ADMITTED),
    "help with source": (lambda kernel: kernel.run("told.asked??")[0], ADMITTED),
    "view of the host's, by a name that a cell took": (
        lambda kernel: kernel.run("%output told")[0],
        JUDGED,
    ),
    "cell of a subshell": (in_subshell, ADMITTED),
    "expression beside no cell": (expression, ADMITTED),
    "expression of a silent cell": (lambda kernel: expression(kernel, silent=True), ADMITTED),
    "expression beside blanks": (lambda kernel: expression(kernel, " \n"), ADMITTED),
    "completion: type subscripted": (complete("Told[1]."), JUDGED),
    "completion: text subscripts": (complete(f"Told[{TEXT}]."), NOWHERE),
    "completion: subclass above": (complete("class X(Told):\n    pass\nX."), JUDGED),
    "completion: class body above": (complete("class X:\n    Told[1]\nX."), JUDGED),
    "completion: name below a class": (complete("class X(Told):\n    pass\n\nX"), JUDGED),
    "completion: keyword of a subclass": (complete("class X(Told): pass\nX("), NOWHERE),
    "completion: attribute hook": (complete("told.asked."), NOWHERE),
    "completion: metaclass": (complete("Described.asked."), NOWHERE),
    "completion: class of a metaclass": (complete("described.asked."), NOWHERE),
    "completion: property": (complete("told.own."), NOWHERE),
    "completion: descriptor": (complete("plain.own."), JUDGED),
    "completion: descriptor of a class": (complete("Plain.own."), JUDGED),
    "completion: item": (complete("told['asked']."), NOWHERE),
    "completion: missing item": (complete("missing['asked']."), JUDGED),
    "completion: missing item of a library's class": (complete("users['asked']."), JUDGED),
    "completion: key that compares itself": (complete("keyed['asked']."), JUDGED),
    "completion: keys that say how they begin": (complete("listed['aske"), JUDGED),
    "completion: name that compares itself": (complete("asked."), JUDGED),
    "completion: names that compare themselves": (complete("listed.aske"), JUDGED),
    "completion: item of a class that poses": (complete("posing['asked']."), NOWHERE),
    "completion: arguments of an item": (complete("missing['asked'].x("), NOWHERE),
    "completion: arguments of an attribute": (complete("told.asked(xx"), NOWHERE),
    "completion: completer of a cell": (complete("told xx"), NOWHERE),
    "completion: matcher of a cell": (complete("asked"), JUDGED),
    "completion: argument that a magic of a cell reads": (complete("%top -n 7 told."), JUDGED),
    "completion: argument of a magic above": (complete("%top -n 7\ntold."), JUDGED),
    "completion of a subshell": (
        lambda kernel: in_subshell(kernel, "complete_request", code="Told[1].", cursor_pos=8),
        JUDGED,
    ),
    "inspection: attribute hook": (inspect("told.asked"), JUDGED),
    "inspection: name that compares itself": (inspect("asked"), JUDGED),
    "inspection: metaclass": (inspect("Described.asked"), JUDGED),
    "inspection: descriptor": (inspect("plain.own"), JUDGED),
    "inspection: property": (inspect("told.own"), NOWHERE),
    "inspection: behind a property": (inspect("told.own.real"), JUDGED),
    "inspection: item": (inspect("told[7]"), NOWHERE),
    "inspection: call": (inspect(f"told({TEXT}, "), NOWHERE),
    "is it complete": (ask("is_complete_request", code=TEXT), NOWHERE),
    "is a magic complete": (ask("is_complete_request", code=f"%time {TEXT}"), NOWHERE),
    "history": (
        ask("history_request", hist_access_type="search", pattern=TEXT, raw=True, output=True),
        NOWHERE,
    ),
    "comms": (comm, NOWHERE),
    "comm list": (ask("comm_info_request", target_name=TEXT), NOWHERE),
    "answer to no question": (answer, NOWHERE),
    "comm of JupyterLab": (lab, NOWHERE),
    "control: cell": (on_control("execute_request", code=TEXT, silent=False), NOWHERE),
    "control: completion": (on_control("complete_request", code="Told[1].", cursor_pos=8), NOWHERE),
    "control: inspection": (
        on_control("inspect_request", code="told.asked", cursor_pos=9),
        NOWHERE,
    ),
    "control: debugger": (
        on_control(
            "debug_request",
            type="request",
            seq=1,
            command="evaluate",
            arguments={"expression": TEXT, "context": "repl"},
        ),
        NOWHERE,
    ),
}


@pytest.fixture(scope="module")
def kernels():
    """A kernel of each column, with hooks; all of them start at once."""
    made = {}
    for name in COLUMNS:
        world = World()
        hooks = HOOKS if name == "safe" else HOOKS + MORE_HOOKS
        text = "" if name == "safe" else f'extends = "data"\npreload = []\nadmission = "{name}"\n'
        if name == "template":
            folder = world.root / "templates"
            folder.mkdir(mode=0o755)
            (folder / "hooks.py").write_text(TEMPLATE)
            (folder / "hooks.schema.json").write_text("{}")
            text += f"templates.folders = [{json.dumps(str(folder))}]\n"
            hooks = "%%template hooks\n{}"
        policy = world.policy(text or 'extends = "safe"\n')
        if name == "approved":
            approve(world, policy, hooks)
        kernel = Kernel(argv_for(policy), world=world)
        kernel.own_world = True
        made[name] = kernel, hooks
    for kernel, hooks in made.values():
        kernel.wait_heard()
        reply, published = kernel.run(hooks)
        assert reply["status"] == "ok", (reply, published)
    yield {name: kernel for name, (kernel, _) in made.items()}
    for kernel, _ in made.values():
        kernel.close()


def heard(kernel):
    """Say whether a mark reached the front end, once what was sent is over."""
    kernel.ask("kernel_info_request", {})
    told = [m["content"] for channel, m in kernel.log if channel == "iopub"]
    return any(MARK in str(content.get("text", content.get("data"))) for content in told)


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("door", DOORS)
def test_text_at_each_door_comes_to_what_the_mode_says(kernels, door, column):
    kernel = kernels[column]
    attack, expected = DOORS[door]
    kernel.log.clear()
    reply = attack(kernel)
    wanted = expected[COLUMNS.index(column)]
    assert heard(kernel) is (wanted is RUNS), reply
    if wanted is REFUSED:
        assert reply["status"] == "error", reply
        assert reply["ename"] == "PolicyDenied", reply
