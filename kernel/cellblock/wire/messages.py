"""The messages, one struct each, told apart by their tag.

Ids are chosen by the host and count up from 1 within a session; a reply repeats the id of its
request. Sizes are bytes, times seconds, unless a name says otherwise.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

Text = str
Name = Annotated[str, msgspec.Meta(max_length=1_000)]
#: What a checkpoint may be called, in full.
CHECKPOINT_NAME = r"\A[A-Za-z0-9_][A-Za-z0-9_.-]{0,39}\Z"
Id = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Size = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Position = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
Count = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
Errno = Annotated[int, msgspec.Meta(ge=1, le=4095)]
StreamName = Literal["stdout", "stderr"]
CommKind = Literal["comm_open", "comm_msg", "comm_close"]
#: Source files that a cell's end names as compiled.
MOST_COMPILED = 1_000
#: None, encoded.
NOTHING = b"\xc0"
#: A mime bundle: mime type to text, bytes (sent base64 to the front end) or JSON data.
Bundle = dict[Name, Any]


class Struct(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Immutable, and nothing beyond its fields is accepted."""


def _snake_case(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


class Message(Struct, frozen=True, tag=_snake_case):
    """What is sent by itself. Its tag is its class's name: ``tool_call`` for ``ToolCall``."""


class Query(Message, frozen=True, kw_only=True):
    """A request that runs no cell; a ``QueryReply`` with the same id answers it."""

    id: Id


class QueryReply(Message, frozen=True, kw_only=True):
    """The answer to a query."""

    id: Id


class OfSubshell(Message, frozen=True, kw_only=True):
    """What is for, or comes from, the subshell with this number; 0 is the main shell."""

    subshell: Count = 0


class OfOutput(OfSubshell, frozen=True, kw_only=True):
    """What a cell shows beside text; ``mark`` is its place in the pipes (``wire.marks``)."""

    mark: Size = 0


# What the guest must lock.


class Limits(Struct, frozen=True, kw_only=True):
    """Resource limits for the guest; None leaves a limit as the user's session has it.

    A field is called as the policy's. ``RLIMITS`` says what carries it.
    """

    memory_max_bytes: int | None = None
    max_processes: int | None = None
    max_open_files: int | None = None
    max_file_size: int | None = None
    stack_max_bytes: int | None = None


#: Field of ``Limits`` to the limit of setrlimit(2) that carries it, and why that one. Processes are
#: counted at the gate, or by RLIMIT_NPROC from what the user has.
RLIMITS: Final = {
    # RLIMIT_AS would count address space that is never used; RSS is not enforced by Linux.
    # DATA counts private writable memory and fails allocation: MemoryError, process alive.
    "memory_max_bytes": "RLIMIT_DATA",
    "max_open_files": "RLIMIT_NOFILE",
    # SIGXFSZ is ignored by CPython, so that a larger write fails with EFBIG.
    "max_file_size": "RLIMIT_FSIZE",
    # A first thread's, and what the C library gives each other thread of a program that starts.
    "stack_max_bytes": "RLIMIT_STACK",
}

#: Seconds since the last cell after which the user may have changed files, so that layers are to be
#: refreshed.
PAUSE: Final = 0.3
#: In a layer's folder: what cells wrote, and overlayfs's own.
UPPER: Final = "upper"
WORK: Final = "work"
#: What the layer of cells' home folder is called, where those of roots have numbers; and that
#: folder, in scratch.
HOME: Final = "home"
#: Where locks and arrays of ``multiprocessing`` live.
SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - the name that shm_open(3) has


class Layer(Struct, frozen=True, kw_only=True):
    """A folder that cells seem to write in, and the session's folder that holds what they write.

    ``hidden`` and ``fixed`` are paths beneath ``root``: what cells never see of it, and what stays
    as it is for them too. ``covered`` is what a narrower policy denied since. ``kept_in`` is the
    user's folder that the files are listed and kept for, where that is not ``root``: cells' own
    home folder is a layer over an empty folder, and stands for the user's.
    """

    root: str
    folder: str
    kept_in: str = ""
    hidden: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()
    covered: tuple[str, ...] = ()


def lies_in(path: str, folders: Container[str]) -> bool:
    """Return whether one of ``folders`` is ``path``, or is above it: as fast for thousands."""
    end = len(path)
    while end > 0:
        if path[:end] in folders:
            return True
        end = path.rfind("/", 0, end)
    return False


class Device(Struct, frozen=True, kw_only=True):
    """A device that the policy grants: the path of its node, and what tells it from another.

    ``requests`` names the family of ioctl(2) requests that its driver takes
    (``guest.confine.syscalls``); empty where none is known, and then the device is read, written
    and mapped alone.
    """

    path: str
    major: int
    minor: int
    requests: str = ""


class Neighbour(Struct, frozen=True, kw_only=True):
    """A listed host as it is in a session's own network: where guests find it there.

    ``name`` is empty where the policy lists the address itself.
    """

    name: str = ""
    address: str
    port: int

    @property
    def entry(self) -> str:
        """Return how the policy lists it."""
        host = self.name or (f"[{self.address}]" if ":" in self.address else self.address)
        return f"{host}:{self.port}"


class Plan(Struct, frozen=True, kw_only=True):
    """What ``confine`` must achieve before the first user byte.

    ``required`` names the locks whose failure means that nothing runs; the other ``locks`` are
    tried, and reported as they came out. ``unseen`` are names that the host sees and the guest,
    where it has namespaces of its own, must not; ``mounted`` are roots that were mounted there by
    name, while cells could move them; ``bounded`` are folders that are to be file systems of their
    own, in a container, with the bytes of each.
    """

    read_roots: tuple[str, ...] = ()
    write_roots: tuple[str, ...] = ()
    device_files: tuple[str, ...] = ()
    #: Devices that the policy grants, beside those files.
    devices: tuple[Device, ...] = ()
    unseen: tuple[str, ...] = ()
    mounted: tuple[str, ...] = ()
    bounded: tuple[tuple[str, int], ...] = ()
    #: Folders that can be listed, with those in them: single entries are read roots, not all.
    listed: tuple[str, ...] = ()
    #: Writable through a layer, which the zygote lays before its locks.
    staged_roots: tuple[str, ...] = ()
    layers: tuple[Layer, ...] = ()
    #: Whether nothing is mounted writable but what cells may write, which the zygote sees to: they
    #: may then set modes, owners and times.
    attributes: bool = False
    #: Whether no other program of the user's writes what guests can open, beside the machine's own:
    #: a lock that a cell takes keeps nobody else waiting.
    apart: bool = False
    #: Whether guests have a network namespace with a loopback device and no other, in which their
    #: programs reach each other; and whether they make Unix sockets, where no other program's can
    #: be named. The zygote sees to the first where nothing wraps it, or there are ``neighbours``.
    loopback: bool = False
    local_sockets: bool = False
    #: The listed hosts that are reached in that network, by way of the host's relay.
    neighbours: tuple[Neighbour, ...] = ()
    #: Whether the host connects to servers in that network, which it then has a way into. Where
    #: that is all that the network is for, cells listen by TCP at the ports in ``bound`` alone;
    #: None is any.
    serves: bool = False
    bound: tuple[int, ...] | None = None
    #: Bytes of a /dev/shm that is mounted with them, or with those of a session; else 0.
    shared_memory: int = 0
    #: Whether guests of one zygote are of several sessions, and have mounts of their own: no other
    #: session's /dev/shm, processes and folder are there.
    own_mounts: bool = False
    network: bool = False
    subprocess: bool = False
    limits: Limits = Limits()
    locks: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    #: Landlock behaves as on an OS kernel whose ABI is this one, where its own is newer: for tests.
    highest_abi: int | None = None

    @property
    def writable(self) -> tuple[str, ...]:
        """Return what guests may write, be it staged or not."""
        return (*self.write_roots, *self.staged_roots)

    @property
    def device_requests(self) -> frozenset[str]:
        """Return the families of requests that the drivers of granted devices take."""
        return frozenset(device.requests for device in self.devices if device.requests)

    @property
    def has_sockets(self) -> bool:
        """Return whether guests connect sockets of the internet's families, to whomever."""
        return self.network or self.loopback

    def may_set_attributes(self, mounted: Plan) -> bool:
        """Return whether cells may write all that is writable under the plan ``mounted``.

        Only mounts bound what these calls reach, so a plan that grants less loses them.
        """
        return mounted.attributes and self.lets_write(mounted.writable)

    def lets_write(self, paths: Iterable[str]) -> bool:
        """Return whether guests may write to all of ``paths``, be it staged or not."""
        return all(lies_in(path, {*self.writable}) for path in paths)

    def hides(self, path: str) -> bool:
        """Return whether a layer hides ``path`` from guests: not what is mounted over the layer."""
        return not self.not_hidden((path,))

    def not_hidden(self, paths: Iterable[str]) -> list[str]:
        """Return those of ``paths`` that no layer hides; there may be thousands of either."""
        for layer in self.layers:
            if layer.kept_in:  # nothing of the user's is below it that it could hide
                continue
            top = layer.root.rstrip("/")
            hidden = {f"{top}/{name}" for name in (*layer.hidden, *layer.covered)}
            fixed = {f"{top}/{name}" for name in layer.fixed}
            paths = [path for path in paths if not lies_in(path, hidden) or lies_in(path, fixed)]
        return list(paths)


class LockReport(Struct, frozen=True, kw_only=True):
    """What ``confine`` achieved: lock name to a short statement, e.g. ``landlock: ABI 7``.

    ``begins_in`` is the folder that the guest begins in, where that is not the one it was to.
    """

    achieved: dict[Name, Name] = {}
    failed: dict[Name, Name] = {}
    begins_in: Annotated[str, msgspec.Meta(max_length=4_096)] = ""


# Host tools.


#: What the host may do for cells itself, where the policy grants it: ``ops.read_file`` and so on.
OPERATIONS: Final = ("read_file", "write_file", "list_dir", "http", "install")


class Parameter(Struct, frozen=True, kw_only=True):
    """One parameter of a tool, as a cell sees it.

    ``kind`` is ``inspect``'s number of it; ``default`` is its text, None where there is none.
    """

    name: Name
    kind: Annotated[int, msgspec.Meta(ge=0, le=4)]
    annotation: str = ""
    default: str | None = None
    secret: bool = False


class Tool(Struct, frozen=True, kw_only=True):
    """A function on the host that cells may call; secret values are kept out of logs.

    It is the operator's, or ``of_host``: an operation or a language model. Its arguments take
    ``max_bytes`` at most, or if that is 0 as many as those of any tool.
    """

    name: Name
    parameters: tuple[Parameter, ...] = ()
    returns: str = ""
    doc: str = ""
    is_async: bool = False
    secret_result: bool = False
    max_bytes: Size = 0
    of_host: bool = False


# Values of variables. Files of saved sessions have these, so their tags stay as they are.


class Data(Struct, tag="data", frozen=True):
    """A value that ``values`` encoded, which ``values.checked`` decodes."""

    value: bytes


class Array(Struct, tag="array", frozen=True):
    """An array of numpy's: its type as numpy spells it, its sides, its bytes in C order."""

    dtype: Name
    shape: Annotated[tuple[Size, ...], msgspec.Meta(max_length=32)]
    data: bytes


class Column(Struct, frozen=True, kw_only=True):
    """A column in Arrow's layout (columnar format 1.5, "Physical Memory Layout"), from offset 0.

    ``type`` is one of ``arrays``' own, ``unit`` and ``zone`` are a timestamp's. Of a category the
    buffers are those of the numbers, and ``categories`` says what they stand for.
    """

    name: Text
    type: Name
    unit: Literal["", "s", "ms", "us", "ns"] = ""
    zone: Name = ""
    length: Count
    buffers: Annotated[tuple[bytes | None, ...], msgspec.Meta(max_length=3)]
    categories: Column | None = None


class Frame(Struct, tag="frame", frozen=True, kw_only=True):
    """A table, and whose it is. The first ``index`` columns are the index of a DataFrame.

    A column alone (``form``) is the last one of a table: without ``name`` it has none. The columns
    of an index are its levels.
    """

    library: Literal["pandas", "polars", "pyarrow"]
    form: Literal["table", "series", "index"] = "table"
    name: bool = True
    columns: Annotated[tuple[Column, ...], msgspec.Meta(max_length=10_000)]
    index: Count = 0


Value = Data | Array | Frame


# Host to zygote.


class Prepare(Message, frozen=True, kw_only=True):
    """First frame on the zygote's control socket: everything that depends on the policy."""

    rules: dict[str, Any]
    preload: tuple[str, ...]
    pre_imported: tuple[str, ...]
    policy_name: str
    ipython_dir: str
    scratch: str
    cwd: str
    environment: dict[str, str]
    plan: Plan
    #: Of what the plan says to be mounted: device and inode, as the host found them through no
    #: link; zeros where it found nothing.
    mounts: tuple[tuple[int, int], ...] = ()
    #: How charting libraries show by default: ``pages`` that bring the library along, ``stills``
    #: where no script is shown, or as they like.
    charts: Literal["pages", "stills", ""] = ""
    #: Whether pages may leave Vega to the host.
    vega: bool = False
    tools: tuple[Tool, ...] = ()
    #: Folders that packages are imported from, besides those of the interpreter.
    paths: tuple[str, ...] = ()
    #: Where what is preloaded lies, if that is nowhere that guests may read: for the zygote alone.
    preloaded: tuple[str, ...] = ()
    #: Calls of tools that may be under way at once, and bytes of the arguments of one.
    tool_max_in_flight: int = 0
    tool_max_bytes: int = 0
    #: What cells find in ``inputs``, each value as JSON. For guests: no zygote is told.
    inputs: dict[str, str] = {}
    #: What Jupyter started the kernel with. For guests: no zygote is told.
    launch: Launch | None = None


class Launch(Message, frozen=True, kw_only=True):
    """What Jupyter started the kernel with: the first that a guest reads which is about to serve.

    It comes after ``SessionSetup``: a kernel that waits for its launch has guests before that.
    """

    #: Arguments, as ipykernel would find them behind its own name.
    arguments: tuple[str, ...] = ()
    #: The notebook, or whatever else the server calls the session; empty where it calls it nothing.
    session: str = ""
    #: Whether the server said which process it is.
    has_parent: bool = False
    #: Whether cells import what lies in the folder that they run in.
    searches_folder: bool = True
    #: Traits for IPython's shell and what belongs to that, by class; values as on a command line.
    config: dict[str, dict[str, Any]] = {}


class SessionSetup(Message, frozen=True, kw_only=True):
    """The first that a guest reads on its channel: what its session has for itself.

    The zygote never holds it, or later guests would find it in memory that they inherit.
    """

    #: What ``random`` begins with.
    seed: bytes = b""
    ipython_dir: str
    scratch: str
    cwd: str
    environment: dict[str, str]
    plan: Plan
    inputs: dict[str, str] = {}


class Trial(Struct, frozen=True, kw_only=True):
    """What a guest tries its locks on, before it ends: all of it the host's own.

    ``outside`` is a folder that no root has, ``secret`` a file likewise, ``scratch`` the guest's
    own; ``inside`` is a read root, in which ``denied`` is denied. ``ports`` and ``sockets`` (paths,
    and names of abstract ones) have somebody listening, "unlisted_host" at the port of "listed",
    which is an address that the policy has; ``process`` is one outside, ``variable`` is in its
    environment. With ``thread`` a thread exists before the locks do, and nothing else is tried.
    ``bait`` is a descriptor of what the guest inherits, which it notes itself.
    """

    probes: tuple[str, ...]
    scratch: str
    outside: str
    secret: str
    inside: str
    denied: str
    ports: dict[str, int]
    sockets: dict[str, str]
    process: int
    variable: str
    limits: Limits = Limits()
    thread: bool = False
    bait: int = -1


class Fork(Message, frozen=True, kw_only=True):
    """Fork a guest; its channel, stdout and stderr travel with this frame (SCM_RIGHTS).

    One with a ``trial`` answers ``TrialResults`` after ``Ready``, and ends: it never runs a user's
    byte. Where the plan has ``own_mounts``, ``mounts`` is the scratch folder of the session that
    has them, which names it.
    """

    id: Id
    trial: Trial | None = None
    mounts: str = ""


class SeenFolder(Message, frozen=True, kw_only=True):
    """A folder as guests see it at ``path``, where the host does not; the folder travels with it.

    Those are a container's scratch folder, which is nowhere outside, and folders under a layer.
    """

    path: str


class Listening(Message, frozen=True, kw_only=True):
    """Guests' connections to that one of the plan's ``neighbours`` come to a socket.

    The socket, which listens, travels with this frame.
    """

    number: Size


class OwnNetwork(Message, frozen=True, kw_only=True):
    """Guests are in a network of their own that ``serves``.

    A socket travels with this frame by which the OS kernel tells who listens there (sock_diag(7)).
    It also stands for the network.
    """


class SharedMemory(Message, frozen=True, kw_only=True):
    """Of a zygote whose guests have a /dev/shm of their own; the folder travels with it.

    Where sessions have mounts of their own, ``scratch`` names the one whose guests have it.
    """

    scratch: str = ""


class Forked(Message, frozen=True, kw_only=True):
    """The guest's process id, as the zygote counts: its pid namespace may be its own."""

    id: Id
    pid: int


class ForkFailed(Message, frozen=True, kw_only=True):
    """The OS kernel gives no process for the guest of that number; the text is for the user."""

    id: Id
    detail: Text


class AllowFork(Message, frozen=True, kw_only=True):
    """Let the main thread of ``pid``, a guest or one of its snapshots, fork once: a snapshot.

    The number is the zygote's, as in ``Forked``; None is whichever of them asks first.
    """

    id: Id
    pid: int | None


class Protect(Message, frozen=True, kw_only=True):
    """Let no cell of a guest signal its snapshot ``pid``; numbers are as in ``AllowFork``."""

    id: Id
    pid: int


class KeepOnly(Message, frozen=True, kw_only=True):
    """The processes that a guest and its snapshots are; any other in a user's sessions is killed.

    But for ``others``, which are forks, and what descends from them: those of a policy without
    programs are in the same session. Numbers are the zygote's, as in ``Forked``.
    """

    id: Id
    user: Id
    pids: tuple[int, ...]
    others: tuple[int, ...] = ()


class BeginSession(Message, frozen=True, kw_only=True):
    """Let a snapshot of a guest begin a session (setsid(2)), which is that of a ``user``.

    What a cell has started is in its guest's session or in one that was begun from there, so that
    everybody knows whose it is, though its parent has ended.
    """

    id: Id
    pid: int
    user: Id


class EndForks(Message, frozen=True, kw_only=True):
    """End what descends from these forks; ``ForksEnded`` with the same id says that it has."""

    id: Id
    forks: tuple[Id, ...]


class ForksEnded(Message, frozen=True, kw_only=True):
    """Nothing is left of the forks that a ``EndForks`` named."""

    id: Id


class Narrow(Message, frozen=True, kw_only=True):
    """Make the locks of a narrower plan ready for a copy, which asks for them when it takes over.

    ``id`` and ``pid`` are as in ``KeepOnly``. It gets them alone: before it does, whatever else is
    in its sessions is killed; one that is to be a ``fork`` leaves the others as
    they are. It has so many ``rulesets``. ``Narrowed`` repeats the ``ticket``.
    """

    id: Id
    ticket: Id
    pid: int
    plan: Plan
    rulesets: Count
    fork: bool = False


class Refresh(Message, frozen=True, kw_only=True):
    """Have layers forget the names that they have looked up: the user may have changed files.

    The host asks before a cell that begins ``PAUSE`` after the one before it; ``Refreshed`` with
    the same id answers.
    """

    id: Id


class Refreshed(Message, frozen=True, kw_only=True):
    """Layers have forgotten them, or why they could not be made to."""

    id: Id
    failure: Name = ""


class Ping(Message, frozen=True, kw_only=True):
    """Say that you still do what you are told: ``Obeyed`` does."""


class Obeyed(Message, frozen=True, kw_only=True):
    """The zygote has taken up what the host sent, one of these for each frame, in their order.

    After what it answered at once, if anything. ``Prepare`` is obeyed when guests can be forked.
    """


class Quit(Message, frozen=True, kw_only=True):
    """Kill all guests and go; their folder stays, for those of the zygote that comes next."""


class Reaped(Message, frozen=True, kw_only=True):
    """A guest ended, or an orphan of a guest's; ``status`` is as ``os.waitpid`` gives it.

    ``session`` is what it was in, as the zygote calls that, and ``seconds`` the processor time that
    it took, with that of all that it waited for.
    """

    pid: int
    status: int
    session: int = -1
    seconds: float = 0.0


class Answered(Message, frozen=True, kw_only=True):
    """Processor time, in seconds, that the zygote took to answer a user, since it told of it last.

    What a guest has others do for it is its own doing: ``id`` is the guest, and ``user`` says which
    of its forks asked (``BeginSession``), or itself.
    """

    id: Id
    user: Id
    seconds: float


class UsesDevice(Message, frozen=True, kw_only=True):
    """Process ``pid``, a guest or a copy of it that has taken over, asks a device something.

    ``id`` is the guest's fork. It is sent before the process goes on, once for each process.
    """

    id: Id
    pid: int


class Sessions(Message, frozen=True, kw_only=True):
    """The sessions of a guest, as the zygote calls them, when one more begins, and whose each is.

    It is not begun before this is sent. Those in which nothing is any more may be missing.
    """

    id: Id
    sessions: dict[int, Id]


class Narrowed(Message, frozen=True, kw_only=True):
    """The locks that ``Narrow`` asks for are ready, or on the copy, or why they can't be."""

    ticket: Id
    ready: bool = False
    failure: Name = ""


class ZygoteFailed(Message, frozen=True, kw_only=True):
    """The zygote could not prepare; the text is for the user."""

    detail: Text


# Host to guest.


class Template(Struct, frozen=True, kw_only=True):
    """What a cell names that is a template: ``state`` is JSON data, and stays data."""

    name: Name
    state: Any = None


class Granted(Struct, frozen=True, kw_only=True):
    """Imports that the user approved of: modules by their public names, packages as they are."""

    modules: tuple[Name, ...] = ()
    packages: tuple[Name, ...] = ()


class View(Struct, frozen=True):
    """A view of the host's, as ``%usage 3`` asks for it, and what is said of it."""

    name: str
    argument: str


class Execute(OfSubshell, frozen=True, kw_only=True):
    """Run one admitted cell. ``source`` is transformed, ``raw`` is what the user typed.

    With a ``template``, ``source`` is that template's: it runs in a namespace of its own, and then
    its ``run(state)``. With a ``view`` there is no source, and nothing of the session's runs.
    ``granted`` is all that was approved of and counts in this cell.
    """

    id: Id
    source: str
    raw: str
    execution_count: int
    silent: bool = False
    store_history: bool = True
    user_expressions: dict[str, str] = {}
    allow_stdin: bool = False
    template: Template | None = None
    view: View | None = None
    granted: Granted | None = None
    #: Whether ``Done`` is to have the last expression's value.
    value: bool = False
    #: What the front end calls the cell; callbacks of ``pre_run_cell`` are told.
    cell_id: str | None = None
    #: It ran before, as the same, and a copy is to catch up: it finds no other modules now.
    again: bool = False


class Complete(Query, frozen=True, kw_only=True):
    """Complete ``code`` at ``cursor`` (characters)."""

    code: str
    cursor: int


class Inspect(Query, frozen=True, kw_only=True):
    """Describe the object at ``cursor`` (characters)."""

    code: str
    cursor: int
    detail: int = 0


class ListVariables(Query, frozen=True, kw_only=True):
    """List what is in the user's namespace, without running anything of it."""


class GetVariable(Query, frozen=True, kw_only=True):
    """Return a variable's value, without running anything of a class of the user's."""

    name: Name


class ShrinkImage(Query, frozen=True, kw_only=True):
    """Return a smaller version of a picture that a cell showed, as a file of ``most`` bytes."""

    image: bytes
    most: Size


class SetVariables(Message, frozen=True, kw_only=True):
    """Set all of these variables; ``Done`` says whether that went well, as of a cell, or none."""

    id: Id
    values: dict[Name, Value]


class Input(Message, frozen=True, kw_only=True):
    """The answer to an ``InputRequest``; ``eof`` says that there is none."""

    id: Id
    value: str
    eof: bool = False


class CommIn(OfSubshell, frozen=True, kw_only=True):
    """A comm message from the front end: ``kind`` is comm_open, comm_msg or comm_close."""

    id: Id
    kind: str
    content: dict[str, Any]
    metadata: dict[str, Any] = {}
    buffers: list[bytes] = []
    granted: Granted | None = None


class Preload(Message, frozen=True, kw_only=True):
    """Import these modules where they are installed: a spare guest's first request."""

    modules: tuple[Name, ...]


class Subshells(Message, frozen=True, kw_only=True):
    """The subshells that there are from now on, by number: each is a thread."""

    numbers: Annotated[tuple[Count, ...], msgspec.Meta(max_length=100)]


class ToolResult(Message, frozen=True, kw_only=True):
    """What came of a ``ToolCall``: a value, or where ``kind`` is not empty, an error."""

    id: Id
    value: msgspec.Raw = msgspec.Raw(NOTHING)
    kind: str = ""
    message: str = ""


class Snapshot(Message, frozen=True, kw_only=True):
    """Fork a copy that waits; its channel, stdout and stderr travel with this frame."""

    id: Id


class Resume(Message, frozen=True, kw_only=True):
    """To a copy: the guest is gone, go on in its place.

    ``seed`` makes its random numbers its own. ``inputs`` are the cells that the copy has not
    seen, by count, for ``In``. With a ``plan`` it is first to ask for the locks of that.
    It is sent ``again`` cells that ran before, and has its own numbers behind those. Of a ``fork``
    the guest goes on, and so do its open files; with a ``place`` it has a folder and an environment
    of its own. It is first to begin a ``session``, where it has yet to be in one of its user's.
    """

    seed: bytes
    again: Size = 0
    inputs: list[tuple[int, str]] = []
    plan: Plan | None = None
    place: SessionSetup | None = None
    fork: bool = False
    session: bool = False


# Guest to host.


class Ready(Message, frozen=True, kw_only=True):
    """Sent once, before the first user byte. Later claims about locks count for nothing."""

    report: LockReport


class NotReady(Message, frozen=True, kw_only=True):
    """A required lock failed; the guest ends after this frame."""

    lock: Name
    detail: Text


class Attempt(Struct, frozen=True, kw_only=True):
    """What came of a probe: it was refused, with its control; it passed; or neither was seen."""

    outcome: Literal["refused", "passed", "unwitnessed"]
    detail: Name = ""


class TrialResults(Message, frozen=True, kw_only=True):
    """Last frame of a guest with a trial: each probe by name."""

    results: Annotated[dict[Name, Attempt], msgspec.Meta(max_length=1_000)]


class SnapshotReady(Message, frozen=True, kw_only=True):
    """First frame of a copy: it waits. ``connections`` are how many of the guest's it dropped."""

    id: Id
    connections: Count = 0


class SnapshotFailed(Message, frozen=True, kw_only=True):
    """No copy could be made: the number of the error, as errno(3) has them."""

    id: Id
    errno: Errno


class Resumed(Message, frozen=True, kw_only=True):
    """A copy has taken over; what it could not take along, as it says itself."""

    threads: Annotated[list[Name], msgspec.Meta(max_length=100)] = []
    tasks: Count = 0
    files: Count = 0
    connections: Count = 0


class Preloaded(Message, frozen=True, kw_only=True):
    """The modules of ``Preload`` are imported; ``same``: as a cell would have found them."""

    same: bool


class Began(Message, frozen=True, kw_only=True, omit_defaults=True):
    """The guest has taken up a request.

    ``interrupted``: it may have been since the request before. An interrupt that was sent and is
    not reported here is still to come, and hits this one.
    """

    id: Id
    interrupted: bool = False


class Awaits(Message, frozen=True, kw_only=True):
    """A cell of the main shell awaits from here on: comm messages are taken up meanwhile."""

    id: Id


class Queued(Message, frozen=True, kw_only=True):
    """A request was read beside an answer, while the main thread is busy, which takes it later."""

    id: Id


class Stream(OfSubshell, frozen=True, kw_only=True, omit_defaults=True):
    """Text for stdout or stderr, of the cell with this number; 0 is whichever runs.

    A task that a cell started may write when another cell runs. ``late``: so does a thread of some
    earlier cell.
    """

    name: StreamName
    text: Text
    cell: Count = 0
    late: bool = False


class Display(OfOutput, frozen=True, kw_only=True):
    """A mime bundle to show, or to replace an earlier one with; ``cell`` is as in ``Stream``."""

    data: Bundle
    metadata: dict[str, Any] = {}
    display_id: Name | None = None
    update: bool = False
    cell: Count = 0


class Result(OfOutput, frozen=True, kw_only=True):
    """The value of a cell's last expression."""

    data: Bundle
    metadata: dict[str, Any] = {}


class Clear(OfOutput, frozen=True, kw_only=True):
    """Clear the running cell's output."""

    wait: bool = False


class FailedCall(Struct, frozen=True):
    """A call that a cell was refused, as its guest says: advice for the words of a card.

    ``target`` is the path, without links, or ``host:port``; either may be missing. That of a
    ``process`` is the program, or the folder that it was to start in. An ``import`` is one of a
    module that lies in the folder that cells run in, where imports don't look. A file was to be
    written, made or removed if it ``writes``; with ``in_folder`` the target is the folder in which
    it was to be made. ``size`` is the bytes of ``memory`` that were asked for, as far as known.
    """

    kind: Literal["database", "file", "import", "memory", "network", "process", "signal", "thread"]
    errno: Annotated[int, msgspec.Meta(ge=0, le=4095)] = 0
    target: Name = ""
    writes: bool = False
    in_folder: bool = False
    size: Annotated[int, msgspec.Meta(ge=0, le=1 << 60)] = 0


class Error(OfOutput, frozen=True, kw_only=True):
    """An exception that was shown, and the call that it came from.

    That of ``Done`` ended the cell.
    """

    ename: Text
    evalue: Text
    traceback: list[Text]
    failed_call: FailedCall | None = None
    #: A magic or a handler of the cell's own has shown it, by other means.
    is_shown: bool = False
    #: Raised while something was formatted to be shown, which is not shown whole then.
    of_display: bool = False


class InputRequest(Message, frozen=True, kw_only=True):
    """input() or getpass() waits for the user; ``mark`` is as in ``OfOutput``."""

    id: Id
    mark: Size = 0
    prompt: Text
    password: bool = False


class Done(Message, frozen=True, kw_only=True):
    """A cell ended. ``error`` is set when it failed; what it printed stands before ``mark``."""

    id: Id
    mark: Size = 0
    error: Error | None = None
    user_expressions: dict[Name, dict[str, Any]] = {}
    payload: list[dict[str, Any]] = []
    refused: list[dict[str, Any]] = []
    #: What the cell read from disk.
    read_bytes: Size = 0
    #: As far as was seen, it did nothing that would come out otherwise a second time.
    repeatable: bool = False
    #: Source files that were compiled since the last such list, as there was no byte code.
    compiled: Annotated[tuple[Name, ...], msgspec.Meta(max_length=MOST_COMPILED)] = ()
    #: The last expression's value, encoded, where that was asked for and is data.
    value: bytes = NOTHING
    #: How the last program that ``!`` ran and that failed ended; negative for a signal, 0 for none.
    program_status: Annotated[int, msgspec.Meta(ge=-128, le=255)] = 0


class Completed(QueryReply, frozen=True, kw_only=True):
    """Completions for the span ``start``..``end`` (characters)."""

    matches: list[Text]
    start: Position
    end: Position
    types: list[dict[str, Any]] = []


class Inspected(QueryReply, frozen=True, kw_only=True):
    """What was found; an empty bundle means nothing was."""

    data: Bundle


class Variable(Struct, frozen=True, kw_only=True):
    """A name in the user's namespace; ``shape`` is in words, ``size`` bytes, 0 where not known."""

    name: Name
    type: Name
    shape: Name = ""
    size: Size = 0


class Variables(QueryReply, frozen=True, kw_only=True):
    """The first variables by name, and how many more there are."""

    variables: Annotated[tuple[Variable, ...], msgspec.Meta(max_length=1_000)] = ()
    more: Count = 0


class VariableValue(QueryReply, frozen=True, kw_only=True):
    """A variable's value, or why there is none to be had."""

    value: Value | None = None
    why: Name = ""


class ShrunkImage(QueryReply, frozen=True, kw_only=True):
    """A PNG or JPEG file; empty where none could be made."""

    image: bytes = b""


class CommOut(OfOutput, frozen=True, kw_only=True):
    """A comm message for the front end."""

    kind: CommKind
    content: dict[str, Any]
    metadata: dict[str, Any] = {}
    #: Each is a part of a message for front ends, which costs them something when it is empty, too.
    buffers: Annotated[list[bytes], msgspec.Meta(max_length=10_000)] = []


class Breach(Message, frozen=True, kw_only=True):
    """User code got around the guards and tried this operation; the guest ends after this frame."""

    operation: Name


class Show(OfOutput, frozen=True, kw_only=True):
    """The magic ``what`` ran: the host shows its table, or a page, here.

    It is one of those that ``analysis.magic_table`` has as shown by the host: any other is a
    violation. ``argument`` is what was typed behind it.
    """

    what: Name
    argument: Name = ""


class NotThere(OfSubshell, frozen=True, kw_only=True):
    """A cell looked for this and was told that it is not there, which raises nothing: advice.

    A ``folder`` that was searched, and a ``file`` that was asked for, by their paths; a
    ``variable`` of the environment, by its name. An ``argument`` is a path on the command line of a
    program that failed, which may have been to write there; a ``word`` is one that may be a path.
    ``direct`` says that no library looked on the cell's behalf, ``seen`` that there is something
    at the path, as cells see it.
    """

    kind: Literal["argument", "file", "folder", "variable", "word"]
    name: Name
    direct: bool = True
    seen: bool = False
    writes: bool = False


class ToolCall(OfSubshell, frozen=True, kw_only=True):
    """Call a tool. The id is the guest's own; ``arguments`` are an array and a map, encoded.

    They are not decoded on their way to whoever runs the tool. ``cell`` is the number of the cell
    that calls, as its guest says, with the cell's tasks; 0 for a thread, of which nobody knows.
    """

    id: Id
    name: Name
    arguments: msgspec.Raw
    cell: Count = 0


class ToolWithdrawn(Message, frozen=True, kw_only=True):
    """Nobody waits any more for the answer to this ``ToolCall``."""

    id: Id


class Undo(Message, frozen=True, kw_only=True):
    """``%undo`` ran: when its cell has ended, the host steps back over this many before it."""

    steps: Annotated[int, msgspec.Meta(ge=1, lt=2**31)]


class Checkpoint(Message, frozen=True, kw_only=True):
    """``%checkpoint`` ran, or ``%restore``: when its cell has ended, the host does as it says."""

    name: Annotated[str, msgspec.Meta(pattern=CHECKPOINT_NAME)]
    restores: bool = False


class Branch(Message, frozen=True, kw_only=True):
    """``%branch`` ran: go to a branch, begun at ``start`` or here, or drop it; else list them."""

    name: Annotated[str, msgspec.Meta(pattern=CHECKPOINT_NAME)] | None = None
    start: Annotated[str, msgspec.Meta(pattern=CHECKPOINT_NAME)] | None = None
    drops: bool = False


ToZygote = (
    Prepare | Fork | AllowFork | Protect | BeginSession | KeepOnly | Narrow | EndForks | Refresh
    | Ping | Quit
)  # fmt: skip
FromZygote = (
    SeenFolder | SharedMemory | Listening | OwnNetwork | Forked | ForkFailed | Reaped | Answered
    | Sessions | UsesDevice | Narrowed | ForksEnded | Refreshed | Obeyed | ZygoteFailed
)  # fmt: skip
ToGuest = (
    SessionSetup | Launch | Execute | Complete | Inspect | ListVariables | GetVariable
    | ShrinkImage | SetVariables | Input | CommIn | ToolResult | Preload | Subshells | Snapshot
    | Resume
)  # fmt: skip
FromGuest = (
    Ready | NotReady | TrialResults | SnapshotReady | SnapshotFailed | Resumed | Began | Awaits
    | Queued
    | Stream | Display | Result | Clear | Error | InputRequest | Done | Completed | Inspected
    | Variables | VariableValue | ShrunkImage | CommOut | Show | NotThere | Undo | Checkpoint
    | Branch | ToolCall | Preloaded | ToolWithdrawn | Breach
)  # fmt: skip
