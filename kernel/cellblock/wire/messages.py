"""The messages between host, zygote and guest: one struct for each, distinguished by its tag.

The host chooses ids, which count up from 1 within a session; a reply repeats the id of its request.
Sizes are in bytes and times in seconds, unless a name says otherwise. The unions at the end say who
sends what:

    host ── ToZygote ──> zygote ── FromZygote ──> host    (the control socket)
    host ── ToGuest ───> guest ─── FromGuest ───> host    (one channel for each guest and copy)

Order: base classes; plans and locks; tools; values of variables; then the messages by direction.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

Text = str
Name = Annotated[str, msgspec.Meta(max_length=1_000)]
#: The whole name of a checkpoint or branch.
CHECKPOINT_NAME = r"\A[A-Za-z0-9_][A-Za-z0-9_.-]{0,39}\Z"
Id = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Size = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Position = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
Count = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
Errno = Annotated[int, msgspec.Meta(ge=1, le=4095)]
StreamName = Literal["stdout", "stderr"]
CommKind = Literal["comm_open", "comm_msg", "comm_close"]
#: Most source files in ``Done.compiled``.
MOST_COMPILED = 1_000
#: None, encoded.
NOTHING = b"\xc0"
#: A mime bundle: by mime type, text, bytes (the front end gets these as base64) or JSON data.
Bundle = dict[Name, Any]


class Struct(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The base of all structs: immutable, and decoding refuses unknown fields."""


def _snake_case(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


class Message(Struct, frozen=True, tag=_snake_case):
    """The base of messages. The tag is the name of the class: ``tool_call`` for ``ToolCall``."""


class Query(Message, frozen=True, kw_only=True):
    """A request that runs no cell. It is answered by a ``QueryReply`` with the same id."""

    id: Id


class QueryReply(Message, frozen=True, kw_only=True):
    """The answer to a query."""

    id: Id


class OfSubshell(Message, frozen=True, kw_only=True):
    """A message to or from the subshell with this number; 0 is the main shell."""

    subshell: Count = 0


class OfOutput(OfSubshell, frozen=True, kw_only=True):
    """Output of a cell other than text. ``mark`` is its place among the text (``wire.marks``)."""

    mark: Size = 0


# Plans: what the guest must lock.


class Limits(Struct, frozen=True, kw_only=True):
    """Resource limits of a guest, named like the policy's fields.

    None leaves a limit as the user has it. ``RLIMITS`` says what enforces each.
    """

    memory_max_bytes: int | None = None
    max_processes: int | None = None
    max_open_files: int | None = None
    max_file_size: int | None = None
    stack_max_bytes: int | None = None


#: From a field of ``Limits`` to the limit of setrlimit(2) that enforces it, and why that one. The
#: number of processes is not here: the gate counts them, or else RLIMIT_NPROC is set.
RLIMITS: Final = {
    # RLIMIT_AS would count address space that is never used, and Linux does not enforce RSS. DATA
    # counts private writable memory. Above it allocation fails: MemoryError, the process lives.
    "memory_max_bytes": "RLIMIT_DATA",
    "max_open_files": "RLIMIT_NOFILE",
    # CPython ignores SIGXFSZ, so that a larger write fails with EFBIG.
    "max_file_size": "RLIMIT_FSIZE",
    # The first thread's stack, and the size that the C library gives other threads of a program.
    "stack_max_bytes": "RLIMIT_STACK",
}

#: Seconds since the last cell after which layers are refreshed, as the user may have changed files.
PAUSE: Final = 0.3
#: Folders in a layer's folder: the one with what cells wrote, and overlayfs's own.
UPPER: Final = "upper"
WORK: Final = "work"
#: Name of the layer of cells' home folder, while layers of roots have numbers; and of that folder
#: in the scratch folder.
HOME: Final = "home"
#: Folder of locks and arrays of ``multiprocessing``.
SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - the name that shm_open(3) has


class Layer(Struct, frozen=True, kw_only=True):
    """A folder in which cells seem to write, and the session's folder that gets what they write.

    ``hidden``, ``fixed`` and ``covered`` are paths beneath ``root``.
    """

    #: The folder as cells see it.
    root: str
    #: The session's folder.
    folder: str
    #: The user's folder to which files are kept, if that is not ``root``. The cells' home folder is
    #: a layer over an empty folder, and its files are kept to the user's home.
    kept_in: str = ""
    #: What cells never see.
    hidden: tuple[str, ...] = ()
    #: What cells see unchanged and can't change.
    fixed: tuple[str, ...] = ()
    #: What a narrower policy has denied since.
    covered: tuple[str, ...] = ()


def lies_in(path: str, folders: Container[str]) -> bool:
    """Return whether ``path`` is one of ``folders`` or beneath one, whose number may be large."""
    end = len(path)
    while end > 0:
        if path[:end] in folders:
            return True
        end = path.rfind("/", 0, end)
    return False


class Device(Struct, frozen=True, kw_only=True):
    """A device that the policy grants: the path of its node, and the device's number.

    ``requests`` names the family of ioctl(2) requests that the driver takes
    (``guest.confine.syscalls.OF_DRIVERS``). If the family is not known, ``requests`` is empty, and
    the device can only be read, written and mapped.
    """

    path: str
    major: int
    minor: int
    requests: str = ""


class Neighbour(Struct, frozen=True, kw_only=True):
    """A listed host in a session's own network, with its address there.

    ``name`` is empty if the policy lists the address itself.
    """

    name: str = ""
    address: str
    port: int

    @property
    def entry(self) -> str:
        """Return the entry of the policy."""
        host = self.name or (f"[{self.address}]" if ":" in self.address else self.address)
        return f"{host}:{self.port}"


class Plan(Struct, frozen=True, kw_only=True):
    """What a guest may do, as a backend planned it, and what ``confine`` must achieve for that."""

    read_roots: tuple[str, ...] = ()
    write_roots: tuple[str, ...] = ()
    device_files: tuple[str, ...] = ()
    #: The devices that the policy grants, beside ``device_files``.
    devices: tuple[Device, ...] = ()
    #: Names that the host sees, and that a guest in namespaces of its own must not see.
    unseen: tuple[str, ...] = ()
    #: Roots that were mounted in the guest's namespaces by name, while cells could move them.
    mounted: tuple[str, ...] = ()
    #: In a container: folders that must be file systems of their own, with the bytes of each.
    bounded: tuple[tuple[str, int], ...] = ()
    #: Folders that can be listed, though only some of their entries are read roots.
    listed: tuple[str, ...] = ()
    #: Writable through a layer, which the zygote mounts before its locks.
    staged_roots: tuple[str, ...] = ()
    layers: tuple[Layer, ...] = ()
    #: Whether everything that cells may not write is mounted read-only, which the zygote finds out.
    #: Cells may then set modes, owners and times.
    attributes: bool = False
    #: Whether no other program of the user writes files that guests can open, except those of the
    #: machine. A lock that a cell takes then makes no other program wait.
    apart: bool = False
    #: Whether guests have a network namespace with only a loopback device, through which their
    #: programs reach each other. The zygote makes it if nothing wraps the zygote, or if there are
    #: ``neighbours``.
    loopback: bool = False
    #: Whether guests may make Unix sockets. No other program's can be named there.
    local_sockets: bool = False
    #: The listed hosts that can be reached in that network, through the host's relay.
    neighbours: tuple[Neighbour, ...] = ()
    #: Whether the host connects to servers of cells in that network, and so needs a way into it.
    serves: bool = False
    #: The TCP ports to which cells may bind; None for any port. Set only if the session has its own
    #: network for nothing but ``serves``.
    bound: tuple[int, ...] | None = None
    #: Bytes of a /dev/shm that is mounted with the layers, or with a session's mounts; 0 for none.
    shared_memory: int = 0
    #: Whether one zygote forks guests of several sessions, each with mounts of its own, in which no
    #: other session's /dev/shm, processes and folder are.
    own_mounts: bool = False
    network: bool = False
    subprocess: bool = False
    limits: Limits = Limits()
    #: The locks that are tried, and reported as they came out.
    locks: tuple[str, ...] = ()
    #: The locks without which nothing runs.
    required: tuple[str, ...] = ()
    #: For tests: Landlock behaves as on an OS kernel with this ABI, if its own is newer.
    highest_abi: int | None = None

    @property
    def writable(self) -> tuple[str, ...]:
        """Return the roots that guests may write, staged or not."""
        return (*self.write_roots, *self.staged_roots)

    @property
    def device_requests(self) -> frozenset[str]:
        """Return the families of requests that drivers of the granted devices take."""
        return frozenset(device.requests for device in self.devices if device.requests)

    @property
    def has_sockets(self) -> bool:
        """Return whether guests may connect sockets of the internet's families, to any peer."""
        return self.network or self.loopback

    def may_set_attributes(self, mounted: Plan, scratch: str) -> bool:
        """Return whether cells under this plan may set modes, owners and times.

        ``mounted`` is the plan by which the zygote has mounted, ``scratch`` the session's folder: a
        session with mounts of its own sees no other session's. Only mounts bound what these calls
        reach. So cells may make them only if they may write everything that is mounted writable.
        """
        writable = mounted.writable
        if mounted.own_mounts:
            pools, _, _ = scratch.rpartition("/")
            writable = (*(path for path in writable if path != pools), scratch)
        return mounted.attributes and self.lets_write(writable)

    def lets_write(self, paths: Iterable[str]) -> bool:
        """Return whether guests may write to all of ``paths``, staged or not."""
        return all(lies_in(path, {*self.writable}) for path in paths)

    def hides(self, path: str) -> bool:
        """Return whether a layer hides ``path`` from guests, and nothing is mounted over it."""
        return not self.not_hidden((path,))

    def not_hidden(self, paths: Iterable[str]) -> list[str]:
        """Return those of ``paths`` that no layer hides. Both may be thousands."""
        for layer in self.layers:
            if layer.kept_in:  # a layer over an empty folder, in which there is nothing to hide
                continue
            top = layer.root.rstrip("/")
            hidden = {f"{top}/{name}" for name in (*layer.hidden, *layer.covered)}
            fixed = {f"{top}/{name}" for name in layer.fixed}
            paths = [path for path in paths if not lies_in(path, hidden) or lies_in(path, fixed)]
        return list(paths)


class LockReport(Struct, frozen=True, kw_only=True):
    """What ``confine`` achieved: by the lock's name, a short statement, e.g. ``ABI 7``.

    ``begins_in`` is the folder in which the guest begins, if it could not enter the planned one.
    """

    achieved: dict[Name, Name] = {}
    failed: dict[Name, Name] = {}
    begins_in: Annotated[str, msgspec.Meta(max_length=4_096)] = ""


# Host tools.


#: Operations, which the host does for cells if the policy grants them: ``ops.read_file`` etc.
OPERATIONS: Final = ("read_file", "write_file", "list_dir", "http", "install")


class Parameter(Struct, frozen=True, kw_only=True):
    """A parameter of a tool, as a cell sees it.

    ``kind`` is a number of ``inspect``. ``default`` is the default's text, None if there is none.
    """

    name: Name
    kind: Annotated[int, msgspec.Meta(ge=0, le=4)]
    annotation: str = ""
    default: str | None = None
    secret: bool = False


class Tool(Struct, frozen=True, kw_only=True):
    """A function of the host that cells may call. Secret values are kept out of logs.

    ``of_host`` marks operations and language models; other tools are the operator's. The arguments
    of a call may take ``max_bytes``, or if that is 0 the policy's ``tool_max_bytes``.
    """

    name: Name
    parameters: tuple[Parameter, ...] = ()
    returns: str = ""
    doc: str = ""
    is_async: bool = False
    secret_result: bool = False
    max_bytes: Size = 0
    of_host: bool = False


# Values of variables. Files of saved sessions contain these, so their tags must not change.


class Data(Struct, tag="data", frozen=True):
    """A value that ``values`` has encoded and ``values.checked`` decodes."""

    value: bytes


class Array(Struct, tag="array", frozen=True):
    """An array of numpy: its type in numpy's spelling, its shape, its bytes in C order."""

    dtype: Name
    shape: Annotated[tuple[Size, ...], msgspec.Meta(max_length=32)]
    data: bytes


class Column(Struct, frozen=True, kw_only=True):
    """A column in Arrow's layout (columnar format 1.5, "Physical Memory Layout"), from offset 0.

    ``type`` is one of those in ``arrays``. ``unit`` and ``zone`` are for timestamps and durations.
    A categorical column has the buffers of its codes, and ``categories`` are the values that the
    codes stand for.
    """

    name: Text
    type: Name
    unit: Literal["", "s", "ms", "us", "ns"] = ""
    zone: Name = ""
    length: Count
    buffers: Annotated[tuple[bytes | None, ...], msgspec.Meta(max_length=3)]
    categories: Column | None = None


class Frame(Struct, tag="frame", frozen=True, kw_only=True):
    """A table, a column or an index of a library.

    The first ``index`` columns of a table are the index of a DataFrame. A ``series`` is the last
    column of a table; if ``name`` is False, it has no name. The columns of an ``index`` are its
    levels.
    """

    library: Literal["pandas", "polars", "pyarrow"]
    form: Literal["table", "series", "index"] = "table"
    name: bool = True
    columns: Annotated[tuple[Column, ...], msgspec.Meta(max_length=10_000)]
    index: Count = 0


Value = Data | Array | Frame


# Host to zygote.


class Prepare(Message, frozen=True, kw_only=True):
    """The first message to a zygote: everything that depends on the policy."""

    rules: dict[str, Any]
    preload: tuple[str, ...]
    pre_imported: tuple[str, ...]
    policy_name: str
    ipython_dir: str
    scratch: str
    cwd: str
    environment: dict[str, str]
    plan: Plan
    #: For each path in ``plan.mounted``: device and inode as the host found them, following no
    #: link; zeros if it found nothing.
    mounts: tuple[tuple[int, int], ...] = ()
    #: How charting libraries show by default: ``pages`` that contain the library, ``stills`` if no
    #: scripts are shown, "" as they like.
    charts: Literal["pages", "stills", ""] = ""
    #: Whether the host has Vega, so that pages need not contain it.
    vega: bool = False
    tools: tuple[Tool, ...] = ()
    #: Folders from which packages are imported, besides the interpreter's own.
    paths: tuple[str, ...] = ()
    #: Folders of preloaded packages that guests may not read. For the zygote only.
    preloaded: tuple[str, ...] = ()
    #: Calls of tools that may be under way at once, and bytes that the arguments of one may take.
    tool_max_in_flight: int = 0
    tool_max_bytes: int = 0
    #: The contents of ``inputs``, each value as JSON. For guests; empty when sent to a zygote.
    inputs: dict[str, str] = {}
    #: For guests; None when sent to a zygote.
    launch: Launch | None = None


class Launch(Message, frozen=True, kw_only=True):
    """How Jupyter started the kernel: the first message to a guest that is about to serve.

    It comes after ``SessionSetup``, because a kernel that waits for its launch already has guests.
    """

    #: Arguments, as ipykernel would find them after its own name.
    arguments: tuple[str, ...] = ()
    #: The server's name of the session, such as the notebook; may be empty.
    session: str = ""
    #: Whether the server said which process it is.
    has_parent: bool = False
    #: Whether cells import modules from the folder in which they run.
    searches_folder: bool = True
    #: By class: traits of IPython's shell and its parts, with values as on a command line.
    config: dict[str, dict[str, Any]] = {}


class SessionSetup(Message, frozen=True, kw_only=True):
    """The first message on a guest's channel: what belongs to its session only.

    The zygote never gets it. Otherwise later guests would find it in the memory they inherit.
    """

    #: Seed of ``random``.
    seed: bytes = b""
    ipython_dir: str
    scratch: str
    cwd: str
    environment: dict[str, str]
    plan: Plan
    inputs: dict[str, str] = {}


class Trial(Struct, frozen=True, kw_only=True):
    """The surroundings on which a guest tries its locks before it ends. The host has made them."""

    #: Names of the probes.
    probes: tuple[str, ...]
    #: The guest's own folder.
    scratch: str
    #: A folder, and a file, that are in no root.
    outside: str
    secret: str
    #: A read root, and a folder in it that is denied.
    inside: str
    denied: str
    #: By probe: a port at which the host listens. "listed" is in the policy; "unlisted_host" is the
    #: same port of another address.
    ports: dict[str, int]
    #: Paths of Unix sockets, and names of abstract ones, at which the host listens.
    sockets: dict[str, str]
    #: A process outside, and a variable in its environment.
    process: int
    variable: str
    limits: Limits = Limits()
    #: Whether a thread exists before the locks do. Nothing else is tried then.
    thread: bool = False
    #: A descriptor that the guest inherits. The guest itself fills it in.
    bait: int = -1


class Fork(Message, frozen=True, kw_only=True):
    """Fork a guest. Its channel, stdout and stderr come with this frame (SCM_RIGHTS).

    A guest with a ``trial`` sends ``TrialResults`` after ``Ready`` and ends, without running any
    user's code. If the plan has ``own_mounts``, ``mounts`` is the scratch folder of the guest's
    session, which identifies the session.
    """

    id: Id
    trial: Trial | None = None
    mounts: str = ""


class SeenFolder(Message, frozen=True, kw_only=True):
    """A folder that guests see at ``path`` and the host does not. The folder comes with this frame.

    It is a container's scratch folder, which does not exist outside, or a folder under a layer.
    """

    path: str


class Listening(Message, frozen=True, kw_only=True):
    """The socket that listens for neighbour ``number`` of the plan comes with this frame.

    Guests' connections to that neighbour arrive there.
    """

    number: Size


class OwnNetwork(Message, frozen=True, kw_only=True):
    """Guests are in a network of their own, and the plan ``serves``.

    A socket comes with this frame, by which the OS kernel says who listens in that network
    (sock_diag(7)), and by which the host can enter it.
    """


class SharedMemory(Message, frozen=True, kw_only=True):
    """Guests have a /dev/shm of their own, which comes with this frame.

    If sessions have mounts of their own, ``scratch`` identifies the session.
    """

    scratch: str = ""


class Forked(Message, frozen=True, kw_only=True):
    """A guest was forked. ``pid`` is its pid in the zygote's pid namespace. A pidfd comes along."""

    id: Id
    pid: int


class ForkFailed(Message, frozen=True, kw_only=True):
    """The OS kernel refused to fork the guest with this id. The text is for the user."""

    id: Id
    detail: Text


class AllowFork(Message, frozen=True, kw_only=True):
    """Allow the main thread of a guest, or of one of its snapshots, to fork one snapshot.

    ``pid`` is as in ``Forked``; None is whichever of these processes forks first.
    """

    id: Id
    pid: int | None


class Protect(Message, frozen=True, kw_only=True):
    """Refuse signals of a guest's cells to its snapshot ``pid``, which is as in ``Forked``."""

    id: Id
    pid: int


class KeepOnly(Message, frozen=True, kw_only=True):
    """Kill every process in a user's sessions, except these.

    ``pids`` are the guest and its snapshots. ``others`` are forks, which go on together with their
    descendants: if the policy allows no programs, they are in the same session. Pids are as in
    ``Forked``. Forks that were allowed and not made are withdrawn.
    """

    id: Id
    user: Id
    pids: tuple[int, ...]
    others: tuple[int, ...] = ()


class BeginSession(Message, frozen=True, kw_only=True):
    """Allow a snapshot of a guest to begin a session (setsid(2)), whose user is ``user``.

    Every process that a cell starts is in its guest's session, or in one that such a process began.
    So the process's user is known even if its parent has ended.
    """

    id: Id
    pid: int
    user: Id


class EndForks(Message, frozen=True, kw_only=True):
    """End these forks and all their descendants. ``ForksEnded`` with the same id answers later."""

    id: Id
    forks: tuple[Id, ...]


class ForksEnded(Message, frozen=True, kw_only=True):
    """No process is left of the forks that an ``EndForks`` named."""

    id: Id


class Narrow(Message, frozen=True, kw_only=True):
    """Prepare the locks of a narrower plan for copy ``pid``, which asks for them at its takeover.

    Before the copy gets them, all other processes in its sessions are killed, unless the copy
    becomes a ``fork``. ``rulesets`` is how many Landlock rulesets the copy has. ``Narrowed``
    with the same ``ticket`` answers.
    """

    id: Id
    ticket: Id
    pid: int
    plan: Plan
    rulesets: Count
    fork: bool = False


class Refresh(Message, frozen=True, kw_only=True):
    """Make layers forget the names that they have looked up: the user may have changed files.

    The host sends this before a cell if the last one ended ``PAUSE`` ago or earlier. ``Refreshed``
    with the same id answers.
    """

    id: Id


class Refreshed(Message, frozen=True, kw_only=True):
    """Layers have forgotten the names, or ``failure`` says why not."""

    id: Id
    failure: Name = ""


class Ping(Message, frozen=True, kw_only=True):
    """Ask the zygote for a sign of life, which is ``Obeyed``."""


class Obeyed(Message, frozen=True, kw_only=True):
    """The zygote has taken up a message of the host. It sends one for each message, in order.

    It comes after the message's own immediate answer, if there is one. For ``Prepare`` it is sent
    when guests can be forked.
    """


class Quit(Message, frozen=True, kw_only=True):
    """Kill all guests and end. Their folder stays, for the next zygote's guests."""


class Reaped(Message, frozen=True, kw_only=True):
    """A guest, or an orphan of a guest, has ended. ``status`` is as from ``os.waitpid``.

    ``session`` is the process's session, by its number in the zygote's pid namespace. ``seconds``
    is the processor time of the process and of all children that it has reaped.
    """

    pid: int
    status: int
    session: int = -1
    seconds: float = 0.0


class Answered(Message, frozen=True, kw_only=True):
    """Processor time that the zygote took to decide about system calls since its last report.

    It counts for the guest, because the work was done for the guest. ``id`` is the guest; ``user``
    is the guest itself or the fork that made the calls (``BeginSession``).
    """

    id: Id
    user: Id
    seconds: float


class UsesDevice(Message, frozen=True, kw_only=True):
    """A process begins to use a device: a guest, or a copy of it that has taken over.

    ``id`` is the number of the guest, ``pid`` the zygote's number for the process. The zygote sends
    this message once for each process, before its request to the device goes on.
    """

    id: Id
    pid: int


class Sessions(Message, frozen=True, kw_only=True):
    """The sessions of a guest, by their numbers, each with its user. Sent before one more begins.

    Sessions in which no process is left may be missing.
    """

    id: Id
    sessions: dict[int, Id]


class Narrowed(Message, frozen=True, kw_only=True):
    """The locks that ``Narrow`` asks for are ``ready``, or else on the copy; or they failed."""

    ticket: Id
    ready: bool = False
    failure: Name = ""


class ZygoteFailed(Message, frozen=True, kw_only=True):
    """The zygote could not prepare, and ends. The text is for the user."""

    detail: Text


# Host to guest.


class Template(Struct, frozen=True, kw_only=True):
    """The template that a cell names. ``state`` is JSON data, never run as code."""

    name: Name
    state: Any = None


class Granted(Struct, frozen=True, kw_only=True):
    """Imports that the user has approved: modules by their public names only, packages raw."""

    modules: tuple[Name, ...] = ()
    packages: tuple[Name, ...] = ()


class View(Struct, frozen=True):
    """A view that the host shows, such as ``%usage 3``, and the argument."""

    name: str
    argument: str


class Execute(OfSubshell, frozen=True, kw_only=True):
    """Run one admitted cell. ``source`` is transformed, ``raw`` is what the user typed.

    With a ``template``, ``source`` is the template's. It runs in a namespace of its own, followed
    by its ``run(state)``. With a ``view`` there is no source, and no code of the session runs.
    ``granted`` are all approved imports that count in this cell.
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
    #: Whether ``Done`` must have the value of the last expression.
    value: bool = False
    #: The front end's id of the cell, which callbacks of ``pre_run_cell`` get.
    cell_id: str | None = None
    #: The cell ran before and runs again in a copy. It must not find other modules than before.
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
    """List the user's variables, without running any code of the user."""


class GetVariable(Query, frozen=True, kw_only=True):
    """Return a variable's value, without running any code of a user's class."""

    name: Name


class ShrinkImage(Query, frozen=True, kw_only=True):
    """Return a smaller version of a cell's picture, as a file of at most ``most`` bytes."""

    image: bytes
    most: Size


class SetVariables(Message, frozen=True, kw_only=True):
    """Set all of these variables, or none. ``Done`` answers, as for a cell."""

    id: Id
    values: dict[Name, Value]


class Input(Message, frozen=True, kw_only=True):
    """The answer to an ``InputRequest``. ``eof`` says that nobody answers."""

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
    """Import these modules if they are installed: the first request to a spare guest."""

    modules: tuple[Name, ...]


class Subshells(Message, frozen=True, kw_only=True):
    """The numbers of the subshells that exist from now on. Each is a thread."""

    numbers: Annotated[tuple[Count, ...], msgspec.Meta(max_length=100)]


class ToolResult(Message, frozen=True, kw_only=True):
    """The answer to a ``ToolCall``: a value, or an error if ``kind`` is not empty."""

    id: Id
    value: msgspec.Raw = msgspec.Raw(NOTHING)
    kind: str = ""
    message: str = ""


class Snapshot(Message, frozen=True, kw_only=True):
    """Fork a copy that waits. Its channel, stdout and stderr come with this frame."""

    id: Id


class Resume(Message, frozen=True, kw_only=True):
    """Tells a copy to take over from the guest. The copy answers ``Resumed``."""

    #: A new seed for random numbers, used after the cells that are run again.
    seed: bytes
    #: How many cells will be run again first.
    again: Size = 0
    #: Execution count and source of each cell that ran after the copy was forked, for IPython's
    #: ``In``.
    inputs: list[tuple[int, str]] = []
    #: A narrower plan, whose locks the copy must ask for.
    plan: Plan | None = None
    #: A folder and an environment of the copy's own, if it becomes the guest of a fork.
    place: SessionSetup | None = None
    #: The guest itself goes on, so its open files must not be set back.
    fork: bool = False
    #: The copy must begin a session, because it is not yet in one of its user.
    session: bool = False


# Guest to host.


class Ready(Message, frozen=True, kw_only=True):
    """The guest has taken its locks. Sent once, before it runs any code of the user."""

    report: LockReport


class NotReady(Message, frozen=True, kw_only=True):
    """A required lock failed; the guest ends after this frame."""

    lock: Name
    detail: Text


class Attempt(Struct, frozen=True, kw_only=True):
    """The outcome of a probe: refused while its control worked, passed, or neither was seen."""

    outcome: Literal["refused", "passed", "unwitnessed"]
    detail: Name = ""


class TrialResults(Message, frozen=True, kw_only=True):
    """The last frame of a guest with a trial: the outcome of each probe, by name."""

    results: Annotated[dict[Name, Attempt], msgspec.Meta(max_length=1_000)]


class SnapshotReady(Message, frozen=True, kw_only=True):
    """The first frame of a copy: it waits. ``connections`` is how many connections it dropped.

    A waiting copy that has forked another one also sends this.
    """

    id: Id
    connections: Count = 0


class SnapshotFailed(Message, frozen=True, kw_only=True):
    """No copy could be made, for the reason ``errno`` (errno(3))."""

    id: Id
    errno: Errno


class Resumed(Message, frozen=True, kw_only=True):
    """A copy has taken over. It reports what it has lost: names of threads, numbers of all else."""

    threads: Annotated[list[Name], msgspec.Meta(max_length=100)] = []
    tasks: Count = 0
    files: Count = 0
    connections: Count = 0


class Preloaded(Message, frozen=True, kw_only=True):
    """The modules of ``Preload`` are imported. ``same``: a cell's import would give the same."""

    same: bool


class Began(Message, frozen=True, kw_only=True, omit_defaults=True):
    """The guest has begun a request.

    ``interrupted``: an interrupt may have arrived since the request before. An interrupt that was
    sent but is not reported here has yet to arrive, and will hit this request.
    """

    id: Id
    interrupted: bool = False


class Awaits(Message, frozen=True, kw_only=True):
    """A cell of the main shell awaits from now on. Comm messages are handled meanwhile."""

    id: Id


class Queued(Message, frozen=True, kw_only=True):
    """A request was read while the main thread is busy, which will take it later."""

    id: Id


class Stream(OfSubshell, frozen=True, kw_only=True, omit_defaults=True):
    """Text for stdout or stderr, of the cell with this number; 0 is the cell that runs.

    A task of an earlier cell may write while another cell runs. ``late``: the text is a thread's,
    which some earlier cell has left running.
    """

    name: StreamName
    text: Text
    cell: Count = 0
    late: bool = False


class Display(OfOutput, frozen=True, kw_only=True):
    """A mime bundle to show, or if ``update``, one that replaces an earlier one.

    ``cell`` is as in ``Stream``.
    """

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
    """A call of a cell that was refused, as the guest says. Advice only, for the words of a card.

    ``target`` is the path, without links, or ``host:port``; it may be missing. For a ``process`` it
    is the program, or the folder in which the program should start. For an ``import`` it is a
    module in the folder that cells run in, where imports don't look.

    ``writes``: the file should be written, made or removed. ``in_folder``: ``target`` is the folder
    in which the file should be made. ``other`` is the second path of a move between two mounts.
    ``size`` is how many bytes of ``memory`` were wanted, as far as known.
    """

    kind: Literal["database", "file", "import", "memory", "network", "process", "signal", "thread"]
    errno: Annotated[int, msgspec.Meta(ge=0, le=4095)] = 0
    target: Name = ""
    writes: bool = False
    in_folder: bool = False
    other: Name = ""
    size: Annotated[int, msgspec.Meta(ge=0, le=1 << 60)] = 0


class Error(OfOutput, frozen=True, kw_only=True):
    """An exception that was shown, and the refused call behind it.

    The one in ``Done`` has ended the cell.
    """

    ename: Text
    evalue: Text
    traceback: list[Text]
    failed_call: FailedCall | None = None
    #: The traceback without frames of libraries, to stand above a card; empty if there are none.
    folded: list[Text] = []
    #: It was not shown by this message: a magic or a handler of the cell has shown it otherwise.
    is_shown: bool = False
    #: It was raised while an output was being formatted, which is then incomplete.
    of_display: bool = False


class InputRequest(Message, frozen=True, kw_only=True):
    """input() or getpass() waits for the user. ``mark`` is as in ``OfOutput``."""

    id: Id
    mark: Size = 0
    prompt: Text
    password: bool = False


class Done(Message, frozen=True, kw_only=True):
    """A cell has ended. ``error`` is set if it failed. All its text stands before ``mark``."""

    id: Id
    mark: Size = 0
    error: Error | None = None
    user_expressions: dict[Name, dict[str, Any]] = {}
    payload: list[dict[str, Any]] = []
    refused: list[dict[str, Any]] = []
    #: Bytes that the cell read from disk.
    read_bytes: Size = 0
    #: As far as was seen, the cell would come out the same if it ran again.
    repeatable: bool = False
    #: Source files that were compiled since the last such list, because they have no byte code.
    compiled: Annotated[tuple[Name, ...], msgspec.Meta(max_length=MOST_COMPILED)] = ()
    #: The value of the last expression, encoded, if it was asked for and is data.
    value: bytes = NOTHING
    #: Status of the last program of ``!`` that failed; negative for a signal, 0 for none.
    program_status: Annotated[int, msgspec.Meta(ge=-128, le=255)] = 0


class Completed(QueryReply, frozen=True, kw_only=True):
    """Completions for the span ``start``..``end`` (characters)."""

    matches: list[Text]
    start: Position
    end: Position
    types: list[dict[str, Any]] = []


class Inspected(QueryReply, frozen=True, kw_only=True):
    """A description of the object; an empty bundle if there is none."""

    data: Bundle


class Variable(Struct, frozen=True, kw_only=True):
    """A variable of the user. ``shape`` is in words; ``size`` is 0 if unknown."""

    name: Name
    type: Name
    shape: Name = ""
    size: Size = 0


class Variables(QueryReply, frozen=True, kw_only=True):
    """Variables in the order of their names, and how many more there are."""

    variables: Annotated[tuple[Variable, ...], msgspec.Meta(max_length=1_000)] = ()
    more: Count = 0


class VariableValue(QueryReply, frozen=True, kw_only=True):
    """A variable's value, or why it can't be had."""

    value: Value | None = None
    why: Name = ""


class ShrunkImage(QueryReply, frozen=True, kw_only=True):
    """A PNG or JPEG file; empty if none could be made."""

    image: bytes = b""


class CommOut(OfOutput, frozen=True, kw_only=True):
    """A comm message for the front end."""

    kind: CommKind
    content: dict[str, Any]
    metadata: dict[str, Any] = {}
    #: Bounded in number, because each is a part of a message, which costs front ends something
    #: even if it is empty.
    buffers: Annotated[list[bytes], msgspec.Meta(max_length=10_000)] = []


class Breach(Message, frozen=True, kw_only=True):
    """User code got around the guards and tried an operation. The guest ends after this frame."""

    operation: Name


class Show(OfOutput, frozen=True, kw_only=True):
    """The magic ``what`` ran: the host shows its table, or a page, at this place.

    ``analysis.magic_table`` says which magics the host shows; any other is a violation.
    ``argument`` is what was typed after the magic.
    """

    what: Name
    argument: Name = ""


class NotThere(OfSubshell, frozen=True, kw_only=True):
    """A cell looked for something in vain, without an error. Advice only.

    ``kind`` is what: a ``folder`` that was searched or a ``file`` that was asked for, by path; a
    ``variable`` of the environment, by name; an ``argument``, a path on the command line of a
    program that failed; a ``word`` of a command line that may be a path; an ``address`` that such a
    program was given, as ``host:port``, or empty if not known. ``direct``: the cell itself looked,
    not a library on its behalf. ``seen``: there is something at the path, as cells see it.
    ``writes``: the program may have wanted to write there.
    """

    kind: Literal["address", "argument", "file", "folder", "variable", "word"]
    name: Name
    direct: bool = True
    seen: bool = False
    writes: bool = False


class ToolCall(OfSubshell, frozen=True, kw_only=True):
    """Call a tool. The guest chooses the id.

    ``arguments`` are an array and a map, encoded, which only the process that runs the tool
    decodes. ``cell`` is the number of the calling cell, its tasks included, as the guest says; 0 if
    a thread calls, whose cell is unknown.
    """

    id: Id
    name: Name
    arguments: msgspec.Raw
    cell: Count = 0


class ToolWithdrawn(Message, frozen=True, kw_only=True):
    """The guest no longer waits for the answer to the ``ToolCall`` with this id."""

    id: Id


class Undo(Message, frozen=True, kw_only=True):
    """``%undo`` ran: when its cell has ended, the host undoes so many cells before it."""

    steps: Annotated[int, msgspec.Meta(ge=1, lt=2**31)]


class Checkpoint(Message, frozen=True, kw_only=True):
    """``%checkpoint`` or ``%restore`` ran: the host carries it out when its cell has ended."""

    name: Annotated[str, msgspec.Meta(pattern=CHECKPOINT_NAME)]
    restores: bool = False


class Branch(Message, frozen=True, kw_only=True):
    """``%branch`` ran: the host goes to a branch or drops it, or without a name lists all.

    A new branch begins at the checkpoint ``start``, or here.
    """

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
