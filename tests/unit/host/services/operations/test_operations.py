"""What cells are told of operations is what runs; what a policy grants is what they may touch."""

import asyncio
import inspect
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from msgspec.structs import replace

from cellblock.errors import PolicyError
from cellblock.host.services.operations import catalog, loading
from cellblock.host.services.operations.grants import OperationError, OperationGrants
from cellblock.host.services.tools import registry
from cellblock.host.services.tools.calls import Answer, Call
from cellblock.host.services.tools.providers import OperationsProvider
from cellblock.policy import operations as tables
from cellblock.policy.folders import package_folder
from cellblock.policy.model import Policy
from cellblock.render.tables import WriteBudget
from cellblock.wire import messages
from support.simulator import Reactor


@pytest.mark.parametrize("name", catalog.ALL)
def test_what_cells_are_told_is_the_signature_of_what_runs(everything, name):
    found = loading.load(everything)[f"ops.{name}"]
    described = registry._described(f"ops.{name}", found.function.__wrapped__)
    told = catalog.ALL[name]
    plain = tuple(replace(one, secret=False) for one in told.parameters)
    # A cell gets what is made of an answer: a response, and names without where they lie.
    returns = {"http": "dict[str, Any]", "install": "dict[str, Any]"}.get(name, told.returns)
    assert (
        replace(
            told, parameters=plain, returns=returns, max_bytes=0, doc=described.doc, of_host=False
        )
        == described
    )


MANY = 200_000
BAD = {str(n): None for n in range(MANY)}


@pytest.mark.parametrize(
    ("name", "args", "kwargs"),
    [
        ("http", ["x"], {"params": BAD}),
        ("http", ["x"], {"headers": BAD}),
        ("http", ["x"], BAD),
        ("install", [None] * MANY, {}),
        ("read_file", ["x"], BAD),
    ],
)
def test_arguments_that_are_a_flood_are_refused_unread(everything, name, args, kwargs):
    function = loading.load(everything)[f"ops.{name}"].function
    with pytest.raises(ValueError, match="more than 100,000 values: give fewer"):
        function(*args, **kwargs)


def test_what_is_sent_as_json_may_be_long(everything):
    function = loading.load(everything)["ops.http"].function
    with pytest.raises(OperationError, match="is not one of its hosts"):
        asyncio.run(function("http://b.example", json=[None] * 2_000, params={"a": 1}))


def test_the_guest_knows_all_operations_by_name_and_each_says_what_its_section_needs():
    assert tuple(catalog.ALL) == messages.OPERATIONS == tuple(tables.OPERATIONS)
    assert set(catalog._NEEDED) == set(catalog.ALL)
    for name, tool in catalog.ALL.items():
        assert f"[{tool.name}]" in catalog.refusal(tool.name), name
        assert inspect.cleandoc(tool.doc) == tool.doc


def test_settings_cross_to_the_worker(everything):
    encoded = msgspec.msgpack.encode(everything)
    crossed = msgspec.msgpack.decode(encoded, type=OperationGrants)
    assert tables.Operations.of_values(crossed.tables) == tables.Operations.of_values(
        everything.tables
    )
    assert replace(crossed, tables={}) == replace(everything, tables={})
    assert len(loading.load(OperationGrants(project="/"))) == 0


def policy(**granted):
    return Policy(ops=tables.Operations(**granted))


def test_what_may_be_touched_is_what_the_policy_says_less_what_is_never_read(tmp_path):
    roots = (str(tmp_path / "data"),)
    Path(roots[0]).mkdir()
    key = tmp_path / "key.json"
    laid = catalog.grants_of(
        policy(
            read_file=tables.ReadFile(roots=roots, max_bytes=7),
            write_file=tables.WriteFile(roots=roots),
        ),
        project=tmp_path,
        private=[key],
    )
    section = tables.Operations.of_values(laid.tables)
    assert section.read_file == tables.ReadFile(roots=roots, max_bytes=7)
    assert section.write_file == tables.WriteFile(roots=roots)
    assert (section.list_dir, section.http, section.install) == (None, None, None)
    assert {str(key), "/proc", str(Path.home() / ".ssh"), package_folder()} <= set(laid.denied)
    assert catalog.grants_of(Policy(), project=tmp_path) is None


@pytest.mark.parametrize(
    ("name", "root", "message"),
    [
        ("read_file", "/proc/self", "this root lies in a place that is never readable"),
        ("read_file", "~/.ssh", "this root lies in a place that is never readable"),
        ("list_dir", "/dev", "this root lies in a place that is never readable"),
        ("list_dir", "a.txt", "not a folder"),
        ("write_file", "a.txt", "not a folder"),
        (
            "write_file",
            "",
            "can't be kept: what is writable is readable, and this holds a denied path",
        ),
        ("write_file", "{packages}", "this root lies in a place that is never readable"),
    ],
)
def test_a_root_that_can_not_be_granted_is_one_error(tmp_path, name, root, message):
    (tmp_path / "a.txt").touch()
    path = root.format(packages=package_folder())
    place = (
        str(Path(path).expanduser()) if path[:1] in ("/", "~") else f"{tmp_path}/{path}".rstrip("/")
    )
    granted = policy(**{name: tables.OPERATIONS[name](roots=(place,))})
    with pytest.raises(PolicyError) as refused:
        catalog.grants_of(granted, project=tmp_path, private=[tmp_path / "private"])
    assert (refused.value.key, refused.value.message) == (f"ops.{name}.roots", message)


def test_nothing_is_written_to_what_runs_unconfined(tmp_path):
    import cellblock  # noqa: PLC0415

    where = str(Path(cellblock.__file__).parent)
    with pytest.raises(PolicyError, match="cells could change what runs unconfined"):
        catalog.grants_of(policy(write_file=tables.WriteFile(roots=(where,))), project=tmp_path)


def test_the_folder_of_packages_is_there_before_a_guest_is(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    granted = policy(install=tables.Install(index="http://127.0.0.1:9/simple", allow=("a",)))
    laid = catalog.grants_of(granted, project=tmp_path)
    assert Path(granted.package_library()).is_dir()
    assert laid.packages == str(Path(granted.package_library()).parent)
    monkeypatch.setenv("XDG_DATA_HOME", "/proc/none")
    with pytest.raises(PolicyError, match="can't be made"):
        catalog.grants_of(granted, project=tmp_path)


def test_arguments_may_be_as_large_as_what_is_written_or_sent():
    section = tables.Operations(
        read_file=tables.ReadFile(roots=("/a",)),
        write_file=tables.WriteFile(roots=("/a",), max_bytes=5_000_000),
    )
    sizes = {tool.name: tool.max_bytes for tool in catalog.granted_tools(section)}
    assert sizes == {"ops.read_file": 65_536, "ops.write_file": 5_065_536}


def under(grants, **fields):
    return Policy(ops=tables.Operations.of_values(grants.tables), **fields)


def operating(grants, begin):
    """Return the operations of a session, with this to begin a call in place of a worker."""
    operations = OperationsProvider(Reactor(), under(grants), grants)
    operations.worker = SimpleNamespace(begin=begin)
    return operations


def test_what_a_session_writes_is_counted_where_no_worker_can_forget_it(everything):
    answers, begun = [], []
    operations = operating(everything, begun.append)
    for size in (1, 1, 9_000, 1_800, 1, 1):
        arguments = msgspec.Raw(b"x" * size)
        operations.begin(Call(1, catalog.WRITE_FILE, arguments, answers.append))
    # A file counts as 4 KiB at least: two small ones leave no room for a third.
    assert [len(bytes(call.arguments)) for call in begun] == [1, 1]
    assert {answer.kind for answer in answers} == {"BudgetSpent"}
    assert operations.spent() == WriteBudget(8_192, 10_000)


@pytest.mark.parametrize(
    ("kind", "left"),
    [
        ("NotGranted", 0),
        ("PermissionError", 0),
        ("TooLarge", 0),
        ("ValidationError", 0),
        ("", 8_000),
        ("Cancelled", 8_000),
        ("OSError", 8_000),
        ("TimeoutError", 8_000),
        ("WorkerLost", 8_000),
    ],
)
def test_what_a_refused_write_would_have_taken_is_given_back(everything, kind, left):
    answers = []
    operations = operating(everything, lambda call: call.answer(Answer(kind=kind)))
    operations.begin(Call(1, catalog.WRITE_FILE, msgspec.Raw(b"x" * 8_000), answers.append))
    assert [answer.kind for answer in answers] == [kind]
    assert operations.spent() == WriteBudget(left, 10_000)


def test_a_worker_knows_a_narrower_policy_or_is_another_and_what_was_spent_stays(everything):
    operations, answers = OperationsProvider(Reactor(), under(everything), everything), []
    first, quota = operations.worker, operations._written
    operations.narrow_to(under(everything, tool_timeout=2.0), everything)
    assert operations.worker is first
    assert first._settings.timeout == 2.0
    first._queue.append(Call(1, catalog.READ_FILE, msgspec.Raw(b""), answers.append))
    denied = replace(everything, denied=("/a/secret",))
    operations.narrow_to(under(denied, tool_timeout=2.0), denied)
    assert operations.worker is not first
    assert operations.worker._settings.operations == denied
    assert [answer.kind for answer in answers] == ["WorkerLost"]
    assert operations._written is quota
