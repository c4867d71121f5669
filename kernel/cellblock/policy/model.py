"""What a policy is: one frozen value, its fields, their units and defaults.

A policy is carried by a plain dataclass and checked by pydantic (``schema``), so that a kernel
under a shipped preset starts without importing pydantic (ADR 0019). Build one with ``load.load``
or ``schema.parse``; calling the class checks nothing.

The docstring below a field is its documentation of record: ``cellblock policy schema`` and
``docs/policy.md`` are made from it. The defaults are those of preset ``safe``.

What else there is to say of a field is in its row (``rows``), and nowhere else: to add a limit, add
its row here, and whoever enforces it.

``Enforcement`` is what a field is worth here: status, mechanism, holes, evidence. A capability is a
policy field that something enforces. Where the operating system has a part in that, its status is
never assumed: a backend declares it, the guest's own report confirms or lowers it, and what remains
is a gap that is shown (promise P7).
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Protocol

from cellblock.analysis import Rules, allowlist
from cellblock.analysis.magic_table import ALLOWED_MAGICS
from cellblock.errors import PolicyError
from cellblock.policy.credentials import Credential, credentials_of, named_by, words
from cellblock.policy.mcp_servers import McpServer
from cellblock.policy.rows import (
    Beneath,
    EnforcedBy,
    Never,
    Row,
    Shown,
    Towards,
    Way,
    row,
    rows_of,
)
from cellblock.policy.vocabulary import (
    GIB,
    KIB,
    MIB,
    Bytes,
    Count,
    Depth,
    InFlight,
    Memory,
    Port,
    Range,
    Seconds,
    Table,
    ToolBytes,
    base_of,
    frozen,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cellblock.policy.operations import Operations


# --- tables of their own in a file: [approval], [audit], [templates], [llm], [ops.NAME] -----------


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval(Table):
    """What it is that ``cellblock approve`` writes and a kernel reads: manifests, and their key."""

    folder: str = "{data}/approved"
    """Where manifests lie. ``{data}`` is ``$XDG_DATA_HOME/cellblock`` or
    ``~/.local/share/cellblock``. No guest can write it."""

    key: str = "{data}/approval.key"
    """The file of the key that manifests are signed with: the user's alone, or root's. Whoever can
    read it can approve. No guest can read it."""

    scope: str = "{project}"
    """What a manifest is for, and what a user allows for always: the folder of the notebooks, or a
    name of the operator's where they are to count in other places, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit(Table):
    """What is written down of a session, and what happens where it can't be."""

    log: bool = True
    """Whether the host writes an audit log of the session."""

    required: bool = False
    """Whether no cell runs while the log can't be written. If not, cells run and the first one
    says that nothing is written."""

    folder: str = "{cache}/audit"
    """Where logs lie, a file a session. ``{cache}`` is ``$XDG_CACHE_HOME/cellblock`` or
    ``~/.cache/cellblock``: a log that somebody relies on needs a folder that nobody clears. No
    guest can read or write it."""

    max_bytes: Annotated[int, Range(64 * KIB)] = 256 * MIB
    """Bytes that a session's log may have. Once it has them, nothing more runs in the session."""

    fsync: bool = False
    """Whether each record is on disk before its cell starts: it then outlives a power cut, not
    only the host. Costs what the disk takes for it, a millisecond or more a cell."""

    sources: bool = False
    """Whether sources of cells, lines that were refused and messages of exceptions stand in the
    log. If not, sources are there as SHA-256 only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Templates(Table):
    """Where templates come from."""

    folders: tuple[str, ...] = ("{shipped}",)
    """Folders of templates, each a ``NAME.py`` and a ``NAME.schema.json``. ``{shipped}`` holds
    cellblock's own. No guest can write them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Llm(Table):
    """Which language models cells may ask, through the host, and how much of that there is."""

    base_url: str = ""
    """The endpoint, compatible with OpenAI's: ``https://api.openai.com/v1``. Empty: cells can ask
    none. The host asks it, with what cells say; they learn neither address nor key."""

    models: tuple[str, ...] = ()
    """Models that cells may ask; the first where they name none."""

    key_env: str = ""
    """The host's environment variable that holds the key. Cells never have it."""

    timeout: Annotated[float, Range(0.1)] = 120.0
    """Seconds that one call may take, with all its retries."""

    retries: Annotated[int, Range(0, 10)] = 2
    """How often a call is tried again that the endpoint was too busy for, or that did not reach
    it."""

    max_calls: Annotated[int, Range(1)] = 1_000
    """Calls that all cells of a session may make."""

    max_tokens: Annotated[int, Range(1)] = 1_000_000
    """Tokens that all calls of a session may take, prompts and completions together."""

    max_tokens_per_call: Annotated[int, Range(1)] = 4_096
    """Tokens of the longest completion. Also what a call gets that names no number."""

    max_in_flight: Annotated[int, Range(1, 1_000)] = 16
    """Calls under way at once; more wait, within their ``timeout``."""

    token_parameter: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """What the endpoint calls the length of a completion."""

    @property
    def granted(self) -> bool:
        """Whether cells have ``llm``."""
        return bool(self.base_url)


def _operations_class() -> type[Operations]:
    """Return the class of ``ops``, imported for policies that grant any: that takes 3 ms."""
    from cellblock.policy.operations import Operations  # noqa: PLC0415 - 3 ms

    return Operations


class OperationsField:
    """The annotation of ``ops``: pydantic reads ``Operations``, and None where none is granted."""

    __slots__ = ()

    def __get_pydantic_core_schema__(
        self, _source: object, handler: Callable[[object], dict[str, Any]]
    ) -> dict[str, Any]:
        def none_if_empty(section: Operations) -> Operations | None:
            granted = (getattr(section, table.name) for table in dataclasses.fields(section))
            return section if any(granted) else None

        after = {"type": "no-info", "function": none_if_empty}
        schema = handler(_operations_class())
        return {"type": "function-after", "function": after, "schema": schema}


def servers_of(**values: Any) -> dict[str, McpServer]:
    """Return MCP servers of a file's values, or of servers."""
    return {
        name: one if isinstance(one, McpServer) else McpServer(**frozen(one))
        for name, one in values.items()
    }


def _operations(**values: Any) -> Operations | None:
    return _operations_class().of_values(values) if values else None


#: Fields that are tables of fields.
TABLES: Final = {"approval": Approval, "audit": Audit, "llm": Llm, "templates": Templates}
#: Fields that are tables: how each is made of a file's values.
SECTIONS: Final[dict[str, Callable[..., Any]]] = {
    **TABLES,
    "mcp": servers_of,
    "ops": _operations,
    "credentials": credentials_of,
}


def plain(value: Any) -> Any:
    """Return a policy's value with sections as dicts; what they do not grant is left out."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        found = dataclasses.asdict(value)
        return {key: own for key, own in found.items() if own is not None}
    if isinstance(value, dict):
        return {key: plain(own) for key, own in value.items()}
    return value


def flat_fields(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return fields as ``Policy.as_dict`` has them, those of tables one by one: ``audit.log``.

    A table that has nothing in it is one field.
    """
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict) and value and (prefix or name in SECTIONS):
            flat |= flat_fields(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


Names = tuple[str, ...]

#: What has to be enforced for mode ``confined``, which has no other layer.
CONFINEMENT: Final = (
    "filesystem_read_roots",
    "filesystem_write_roots",
    "network_access",
    "subprocess_execution",
)

# What several rows say.
LOCKS, GUEST = EnforcedBy.locks, EnforcedBy.guest
_OPERATORS: Final = Never("what enforces a policy is chosen in its file")
_LOADED: Final = Never("it says what is made ready for cells, and allows nothing")
_ADMITTED: Final = Never(
    "which cells may run at all is said in the policy's file, before there is any"
)
_COPIED: Final = Never("what is copied out is for others than cells: the policy's file says it")
_GRANTED: Final = Never(
    "it is granted table by table in the policy's file, and kept by workers of the host's own"
)
_FORKS: Final = "use Linux 5.0 or later, and no seccomp listener above the kernel"
_OPEN_FILES: Final = "files and folders that were open before stay open"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy(Table):
    """What cells may say and what their process may do.

    A field is one ``row``: its default, which is preset safe's, and what ``rows.Row`` has. Its type
    says its bounds, and the docstring below it what it means.
    """

    name: str = row("safe", narrower=Never("it is what messages call the policy"))
    """What messages call this policy; a file's default is its name without ``.toml``."""

    mode: Literal["safe", "confined", "unsafe"] = row(
        "safe",
        narrower=Towards(("unsafe", "confined", "safe")),
        enforced_by=GUEST,
        means="Cells may import and call anything; the OS layer confines them.",
    )
    """``safe`` checks every cell's source. ``confined`` does not: cells may import and call
    anything, and nothing runs where the OS layer does not confine files, network and processes.
    ``unsafe`` runs without that, too, and has to be asked for with ``--allow-unsafe``."""

    backend: Literal["auto", "landlock", "bubblewrap", "seatbelt", "docker", "noop"] = row(
        "auto",
        narrower=_OPERATORS,
    )
    """What enforces the OS layer; ``auto`` picks the strongest that works on this machine.
    ``bubblewrap`` (namespaces around the same as ``landlock``), ``landlock``, ``seatbelt`` and
    ``noop`` (audit only) are tried in that order; ``docker`` (a container around the same) is taken
    by name only."""

    on_unsupported: Literal["warn", "error", "ignore"] = row(
        "warn",
        narrower=Towards(("ignore", "warn", "error")),
        for_cells=False,
    )
    """What a gap between policy and enforcement does: it is shown on the first cell, nothing runs,
    or it is not shown."""

    require: Names = row(CONFINEMENT, narrower=Way.more, for_cells=False)
    """Capabilities (names of fields below) without whose enforcement nothing runs."""

    container_engine: Literal["auto", "docker", "podman", "nerdctl"] = row(
        "auto",
        narrower=_OPERATORS,
        only_with=("backend", ("docker",)),
    )
    """Whose containers backend ``docker`` uses; ``auto`` takes the first that is installed."""

    container_runtime: str = row(
        "",
        narrower=_OPERATORS,
        only_with=("backend", ("docker",)),
    )
    """The OCI runtime, by the name that the engine knows it by; empty for the engine's default."""

    container_image: str = row(
        "",
        narrower=_OPERATORS,
        only_with=("backend", ("docker",)),
    )
    """The image, which has to be there: nothing is pulled. Empty for the one that ``cellblock image
    build`` makes."""

    admission: Literal["any", "approved", "template"] = row("any", narrower=_ADMITTED)
    """Which cells may run at all: ``any``; those that ``cellblock approve`` has ``approved``, text
    for text; or those that name a ``template`` and give its state as JSON."""

    approval: Approval = row(
        Approval(),
        narrower=_ADMITTED,
        only_with=("admission", ("approved",)),
    )
    """Where approvals are kept. In a file, a table: ``[approval]``."""

    approvals: Literal["never", "prompt"] = row(
        "never",
        narrower=Never(
            "to ask users is less for calls and more for imports: the policy's file says it"
        ),
    )
    """Whether a user who can be asked may approve of what the policy does not give by itself:
    ``prompt`` asks, in the front end, about an import beyond the allowlist, about each call of a
    tool, an operation or a language model, and at start about what takes ``--allow-unsafe``."""

    templates: Templates = row(
        Templates(),
        narrower=_ADMITTED,
        only_with=("admission", ("template",)),
    )
    """The templates that there are. In a file, a table: ``[templates]``."""

    audit: Audit = row(
        Audit(),
        narrower=Never("the audit log is about cells, and not theirs"),
        for_cells=False,
    )
    """The audit log. In a file, a table: ``[audit]``."""

    allowed_modules: Names = row(
        (),
        narrower=Way.fewer,
        enforced_by=GUEST,
        shown=Shown.language,
        only_with=("mode", ("safe",)),
        means="Cells may import these.",
    )
    """Top-level packages that cells may import as they are, in addition to the allowlist of
    record. Such a package is trusted with all the process may do."""

    magics: Names = row(
        ALLOWED_MAGICS,
        narrower=Way.fewer,
        enforced_by=GUEST,
        shown=Shown.language,
        only_with=("mode", ("safe",)),
        means="Cells may use these magics.",
    )
    """Line and cell magics that cells may use, without their percent signs."""

    preload: Names = row((), narrower=_LOADED, for_cells=False)
    """Modules imported once at kernel start. Faster later, slower now; the import is confined as
    cells are, in an empty folder: it finds no settings of the project's or the user's
    (`./matplotlibrc`)."""

    preload_when_idle: Names = row((), narrower=_LOADED, for_cells=False)
    """Modules that are imported, where they are installed and cells may import them, while a kernel
    waits for its launch or its first cell: one that names any of them need not wait. They take
    memory meanwhile, for five minutes at most."""

    pre_imported: Names = row(("json", "math", "re", "asyncio"), narrower=_LOADED)
    """Modules bound to their names before the first cell."""

    tools: Names = row(
        (),
        narrower=Way.fewer,
        enforced_by=GUEST,
    )
    """Functions of the operator's that cells may call: ``module:function``. Imported in a process
    of their own, from what is installed."""

    mcp: dict[str, McpServer] = row(default_factory=dict, narrower=_GRANTED)
    """MCP servers whose tools cells call as ``NAME_TOOL``. In a file, a table for each:
    ``[tools.mcp.NAME]``, with ``command`` or ``url``, ``env``, ``token_env`` and ``tools``;
    functions are then ``tools.functions``."""

    tool_timeout: Seconds | None = row(
        30.0,
        narrower=Way.lower,
        only_with=("tools", "any"),
    )
    """Seconds that one call of a tool may take."""

    tool_timeouts: dict[str, Seconds] = row(
        default_factory=dict,
        narrower=Way.lower_each,
        only_with=("tools", "any"),
    )
    """A table of tools that have another limit, by name."""

    tool_max_calls: Count | None = row(
        100_000,
        narrower=Way.lower,
        only_with=("tools", "any"),
    )
    """Calls of tools that one cell may make."""

    tool_max_in_flight: InFlight = row(
        1_024,
        narrower=Way.lower,
        enforced_by=GUEST,
        only_with=("tools", "any"),
    )
    """Calls of tools under way at once."""

    tool_max_bytes: ToolBytes = row(
        MIB,
        narrower=Way.lower,
        enforced_by=GUEST,
        only_with=("tools", "any"),
    )
    """Bytes that the arguments of one call may take, or what it returns."""

    llm: Llm = row(
        Llm(),
        narrower=_GRANTED,
        only_with=("llm.base_url", "any"),
    )
    """Language models. In a file, a table: ``[llm]``."""

    ops: Annotated[Any, OperationsField()] = row(None, narrower=_GRANTED)
    """Operations of the host's own that cells may call. In a file, a table for each that is
    granted: ``[ops.read_file]``."""

    credentials: dict[str, Credential] = row(
        default_factory=dict,
        narrower=Way.fewer_tables,
        host="the host adds each to requests of ops.http, over TLS, and tells it to no guest",
        shown=Shown.first,
        only_with=("credentials", "any"),
        words=words,
    )
    """Keys that cells use and never see. In a file, a table for each: ``[credentials.NAME]``, with
    ``hosts``, ``header``, ``prefix`` and ``value``. A notebook or a cell that keeps some names
    them: ``["NAME"]``."""

    packages: Names = row(
        (),
        narrower=Never("they are there before the first cell, and allow nothing by themselves"),
    )
    """Requirements installed before the first cell, wheels only, with the index and within the
    list of ``[ops.install]``."""

    artifact_export_paths: Names = row(
        (),
        narrower=_COPIED,
        only_with=("artifact_export_paths", "any"),
    )
    """Glob patterns of files that are copied out after the cell that wrote them: beneath the folder
    that cells run in, or with ``{scratch}`` or ``{project}`` before them; ``**`` is any number of
    folders. They have to be beneath a write root."""

    artifact_folder: str = row(
        "{project}/artifacts",
        narrower=_COPIED,
        only_with=("artifact_export_paths", "any"),
    )
    """Where such files are copied to. Cells can't write there."""

    filesystem_read_roots: Names = row(
        (),
        narrower=Beneath(
            # What is writable is readable.
            ("filesystem_read_roots", "filesystem_write_roots"),
            "can be read or written",
        ),
        enforced_by=LOCKS,
        gap="a cell can read any file that you can",
        remedy="to hide them, {bubblewrap}",
        stays=_OPEN_FILES,
        must_exist=True,
        shown=Shown.first,
        means="Cells may read files there; {checkout} is the notebook's repository.",
    )
    """Folders and files readable besides the interpreter, its libraries and site-packages, time
    zones and locales, which always are."""

    filesystem_write_roots: Names = row(
        ("{scratch}",),
        narrower=Beneath(("filesystem_write_roots",), "can be written"),
        enforced_by=LOCKS,
        gap="a cell can change any file that you can",
        stays=_OPEN_FILES,
        must_exist=True,
        shown=Shown.first,
    )
    """Folders writable. ``{scratch}`` is private to the kernel and deleted with it."""

    filesystem_staged_roots: Names = row(
        (),
        narrower=Beneath(("filesystem_staged_roots",), "are staged"),
        enforced_by=LOCKS,
        gap="a cell can change the project's files",
        asked=lambda policy: bool(policy.filesystem_staged_roots),
        must_exist=True,
        shown=Shown.first,
        only_with=("filesystem_staged_roots", "any"),
        means="Cells may write there; your files change only once you keep that.",
    )
    """Folders beneath read roots that look writable: what cells write lands in a layer over them,
    and they stay as they are until the user keeps it (``%changes``, ``cellblock changes``). Counts
    towards ``scratch_max_bytes``."""

    read_deny_paths: Names = row(
        (
            "~/.ssh",
            "~/.aws",
            "~/.gnupg",
            "~/.config/gcloud",
            "~/.kube",
            "~/.docker/config.json",
            "~/.netrc",
        ),
        narrower=Way.denied,
        enforced_by=LOCKS,
        gap="a cell can read your credentials",
        remedy_if_partial="grant narrower filesystem_read_roots, with nothing denied beneath them",
        asked=lambda policy: bool(policy.read_deny_paths),
        stays=_OPEN_FILES,
        must_exist=False,
        shown=Shown.first,
        means="But they read none of these; @secrets are .env, private keys and the like.",
    )
    """Paths never readable, even below a read root. They need not exist. ``**/NAME`` is all of that
    name beneath read roots, but for what a root names itself; ``@secrets`` are the names under
    which projects keep secrets."""

    network_access: bool | Names = row(
        False,
        narrower=Way.addresses,
        enforced_by=LOCKS,
        gap="a cell can send data anywhere",
        remedy="set network_access to true, or register a host operation for that address",
        asked=lambda policy: policy.network_access is not True,
        stays="connections that were open before may stay open",
        shown=Shown.first,
    )
    """Nothing outside, all of the network, or a list of ``host:port``, which libraries and programs
    reach by TCP."""

    ports: Literal["any"] | tuple[Port, ...] = row(
        (),
        narrower=Way.ports,
        gap="servers that cells start can't be reached",
        remedy=(
            "use backend bubblewrap or landlock, where user namespaces can be made: cellblock "
            "doctor says what forbids them"
        ),
        remedy_if_partial="open pages only where cells know nothing secret, or leave ports empty",
        asked=lambda policy: bool(policy.ports),
        shown=Shown.used,
    )
    """Ports at which a cell's HTTP server can be opened in your browser, at an address that
    ``%ports`` shows: a list of numbers, or ``"any"``, which is any that a cell listens at. Not
    together with ``network_access = true``, under which cells listen in your own network."""

    port_hosts: Names = row(
        (),
        narrower=Way.fewer,
        host="the host passes on requests for these hosts, and for the address of each port",
        for_cells=False,
        only_with=("ports", "any"),
    )
    """Hosts, each as a browser sends it (``hub.example.org``), whose requests may also come to
    these ports: those of a Jupyter server with jupyter-server-proxy. A page that comes so has that
    server's origin and cookies, and can do all that you can there."""

    devices: Names = row(
        (),
        narrower=Way.devices,
        enforced_by=LOCKS,
        gap="cells have other devices than these, or none of them",
        remedy=(
            "use backend bubblewrap or landlock, and Linux 6.10 or later; see that the driver is "
            "loaded, and that you may open the device yourself"
        ),
        remedy_if_partial=(
            "see that drivers of missing devices are loaded and that you may open these; leave "
            "devices empty where cells are not to be trusted with a driver"
        ),
        asked=lambda policy: bool(policy.devices),
        stays="devices that were open before stay open",
        shown=Shown.used,
        means="Cells may use these devices; nothing counts the memory that these have.",
    )
    """Devices that cells may use: ``"nvidia"`` is all GPUs of NVIDIA's driver, ``"nvidia:0"`` one
    of them, ``"dri"`` what renders, and a path below /dev is a character device, such as
    ``"/dev/kfd"``. What a driver keeps in a device, or pins for it, no limit counts, and a process
    with a device in use is not copied."""

    subprocess_execution: bool = row(
        False,
        narrower=Way.off,
        enforced_by=LOCKS,
        gap="a cell can start programs",
        asked=lambda policy: not policy.subprocess_execution,
        shown=Shown.first,
        means="Cells may start programs, which are confined as they are.",
    )
    """Whether cells may start processes."""

    package_installation: bool = row(
        False,
        narrower=Way.off,
        gap="a cell can install packages",
        remedy="list what notebooks need in packages, or grant ops.install",
    )
    """Whether cells may install packages themselves, as pip does. No backend lets them, which is
    shown as a gap; ``packages`` and ``ops.install`` have the host do it."""

    env_var_access: Names = row(
        (),
        narrower=Way.fewer,
        enforced_by=GUEST,
        gap="a cell can read the host's environment",
        shown=Shown.first,
    )
    """Environment variables passed to cells. All others are stripped; HOME, LANG, PATH,
    PYTHONDONTWRITEBYTECODE and TMPDIR always have sandbox values, USER where it is not
    passed; SHELL is passed on where cells may start it. A kernel's cells have JPY_PARENT_PID,
    JPY_SESSION_NAME and variables for terminals as under ipykernel."""

    display: Literal["text", "sanitized", "isolated"] = row(
        "sanitized",
        narrower=Towards(("isolated", "sanitized", "text")),
        host={
            "text": "the host passes on plain text only",
            "sanitized": "the host passes on what it has sanitised",
            "isolated": (
                "as sanitized; what needs scripts runs in nested frames without origin or network"
            ),
        },
        shown=Shown.language,
    )
    """What of a cell's output reaches the page: ``text`` alone; rich output ``sanitized`` of all
    that runs or loads; or that, with interactive HTML ``isolated`` in frames of its own."""

    widget_modules: Names = row(
        (),
        narrower=Way.fewer,
        host="the host passes on comms of these alone",
    )
    """Front-end modules whose widgets cells may show. ipywidgets' own are cleaned key by key; any
    other module that is named here gets from a cell what the cell sends, and runs it in the
    page. Of no effect where ``display`` is ``text``."""

    comm_targets: Names = row(
        (),
        narrower=Way.fewer,
        host="the host passes on comms of these alone",
    )
    """Targets of comms, other than widgets', through which cells and extensions of the front end
    may talk. What is said there is bounded, not cleaned."""

    snapshots: Literal["auto", "always", "off"] = row(
        "auto",
        narrower=Never("snapshots keep your variables, and no cell is to take that away"),
        gap="a killed cell costs the variables",
        remedy=_FORKS,
        lacked=True,
        asked=lambda policy: policy.snapshots != "off",
    )
    """Whether copies of the guest are kept, from which the state before a killed cell is
    restored. ``auto`` takes none while memory is short, nor for a while after two in a row of a
    guest of 256 MiB or more took over 0.25 s, and says so; ``always`` does not ask; with ``off`` a
    killed cell costs the variables."""

    undo_depth: Depth = row(
        3,
        narrower=Way.lower,
        gap="%undo has nothing to go back to",
        remedy=_FORKS,
        lacked=True,
        asked=lambda policy: policy.snapshots != "off" and policy.undo_depth > 0,
    )
    """How many cells ``%undo`` can step back over. Each may keep a copy of the guest."""

    max_branches: Depth = row(
        8,
        narrower=Way.lower,
        gap="there are no checkpoints",
        remedy=_FORKS,
        lacked=True,
        asked=lambda policy: policy.snapshots != "off" and policy.max_branches > 0,
    )
    """How many checkpoints and branches a session may keep; and of a sandbox, how many forks there
    may be at a time, those of its forks among them."""

    timeout: Seconds | None = row(
        60.0,
        narrower=Way.lower,
        host="the host kills the guest",
        shown=Shown.first,
        means="A cell may run for so many seconds.",
    )
    """Seconds one cell may run."""

    idle_timeout: Seconds | None = row(
        None,
        narrower=Way.lower,
        gap="an idle kernel keeps its memory",
        remedy="let the server cull idle kernels (MappingKernelManager.cull_idle_timeout)",
        lacked=True,
        shown=Shown.limits,
    )
    """Seconds without a cell after which the kernel ends."""

    cpu_seconds: Count | None = row(
        None,
        narrower=Way.lower,
        gap="a cell can keep the processor busy until its timeout",
        remedy_if_partial=(
            "set subprocess_execution to false, or timeout, which ends such cells too"
        ),
        shown=Shown.limits,
    )
    """Seconds of processor time one cell may use, all its threads and processes together."""

    memory_max_bytes: Memory | None = row(
        GIB,
        narrower=Way.lower,
        enforced_by=LOCKS,
        gap="a cell can use up the machine's memory",
        remedy="run the kernel in a cgroup with memory.max",
        shown=Shown.first,
    )
    """Bytes of memory of one guest process, the interpreter's own among them: 32 MiB at least. What
    is larger is a MemoryError; a guest that comes to hold an eighth more by other ways, all its
    processes and its /dev/shm together, is killed."""

    max_processes: Count | None = row(
        128,
        narrower=Way.lower,
        enforced_by=LOCKS,
        gap="a cell can start threads without number",
        remedy="run the kernel as an unprivileged user, or in a cgroup with pids.max",
        shown=Shown.limits,
    )
    """Threads and processes of the guest at once. Where the OS kernel has no seccomp listeners
    they are counted over all that the user runs."""

    max_open_files: Count | None = row(
        256,
        narrower=Way.lower,
        enforced_by=LOCKS,
        gap="a cell can open files without number",
        stays=_OPEN_FILES,
        shown=Shown.limits,
    )
    """Files open at once."""

    max_file_size: Bytes | None = row(
        64 * MIB,
        narrower=Way.lower,
        enforced_by=LOCKS,
        gap="a cell can fill the disk",
        shown=Shown.limits,
    )
    """Bytes of the largest file written."""

    stack_max_bytes: Annotated[int, Range(MIB)] | None = row(
        None,
        narrower=Way.lower,
        enforced_by=LOCKS,
        gap="a cell's recursion can take a larger stack",
        shown=Shown.limits,
    )
    """Bytes of the stack of a process's first thread, and of each other thread of a program that a
    cell starts: 1 MiB at least, and never more than the kernel itself has. A process that needs
    more crashes. Stacks of other threads count as memory, whole: many fit if each is small."""

    scratch_max_bytes: Bytes | None = row(
        256 * MIB,
        narrower=Way.lower,
        gap="a cell can fill the disk with many files",
        remedy="put the folder for temporary files on a disk with a quota",
        shown=Shown.limits,
    )
    """Bytes on disk of all that is in the scratch folder; a file counts as 4 KiB at least."""

    stdout_max_bytes: Bytes | None = row(
        MIB,
        narrower=Way.lower,
        host="the host leaves out and counts what is beyond",
    )
    """Bytes of standard output shown for one cell: its beginning and its end."""

    stderr_max_bytes: Bytes | None = row(
        MIB,
        narrower=Way.lower,
        host="the host leaves out and counts what is beyond",
    )
    """Bytes of standard error shown for one cell: its beginning and its end."""

    display_max_bytes: Bytes | None = row(
        8 * MIB,
        narrower=Way.lower,
        host="the host leaves out what is beyond",
    )
    """Bytes of rich output shown for one cell: the first displays and the last."""

    undo_max_bytes: Bytes | None = row(
        512 * MIB,
        narrower=Way.lower,
        host="the host lets go of the oldest copies",
        for_cells=False,
    )
    """Bytes that the copies for ``%undo`` may hold for themselves; the oldest go first."""

    forks_max_bytes: Bytes | None = row(
        4 * GIB,
        narrower=Way.lower,
        host="the host kills the guest in which they come to hold more",
    )
    """Bytes that a sandbox and its forks may hold together, by an estimate that counts what they
    share once; the cell in which they come to hold more is stopped."""

    output_kept_max_bytes: Annotated[int, Range(0)] | None = row(
        64 * MIB,
        narrower=Way.lower,
        host="the host writes no more",
        for_cells=False,
    )
    """Bytes of text that the host keeps on disk, while the kernel lives, of cells that said more
    than is shown; ``%output`` pages through it. One cell gets half, its beginning; the oldest
    cells go first. 0 keeps nothing."""

    artifact_max_bytes: Bytes | None = row(
        64 * MIB,
        narrower=_COPIED,
        host="the host copies no more of a file",
        only_with=("artifact_export_paths", "any"),
    )
    """Bytes of the largest file that is copied out."""

    artifacts_max_bytes: Bytes | None = row(
        512 * MIB,
        narrower=_COPIED,
        host="the host copies no more",
        only_with=("artifact_export_paths", "any"),
    )
    """Bytes of all files together that one session has copied out."""

    @classmethod
    def preset(cls, name: str = "safe", /, **changes: Any) -> Policy:
        """Return a shipped preset, or a tier, with these fields changed.

        They are what a policy file has, ``add={"allowed_modules": ["mylib"]}`` too, and checked
        as there: PolicyError names what is wrong, and what to write instead.
        """
        from cellblock.policy.load import preset_policy  # noqa: PLC0415 - it imports this

        return preset_policy(name, changes)

    def as_dict(self) -> dict[str, Any]:
        """All fields in their order; tuples stay tuples, a section is a dict."""
        return {name: plain(getattr(self, name)) for name in FIELDS} | {
            "ops": plain(self.ops) or {}
        }

    @property
    def operations(self) -> Operations | None:
        """What ``ops`` grants, None where that is nothing."""
        section: Operations | None = self.ops
        return section

    def secret_variables(self) -> dict[str, str]:
        """Return the host's environment variables that hold secrets, each with what it is.

        Cells get none of them: not by ``env_var_access``, nor from a program.
        """
        named = {self.llm.key_env: "the key of language models"}
        named |= {one.token_env: f"the token of {name}" for name, one in self.mcp.items()}
        for name, one in self.credentials.items():
            named[named_by(one.value, "env")] = f"the credential {name}"
        return {variable: what for variable, what in named.items() if variable}

    def secret_files(self) -> dict[str, str]:
        """Return the files that hold secrets, by the field that names each."""
        found = {
            f"credentials.{name}.value": named_by(one.value, "file")
            for name, one in self.credentials.items()
        }
        return {field: path for field, path in found.items() if path}

    def package_library(self) -> str | None:
        """Return the folder of the packages that cells may read; None where none are installed."""
        install = self.operations.install if self.operations is not None else None
        return None if install is None else f"{install.store()}/lib"

    def replace(self, **changes: Any) -> Policy:
        """Return a copy with other values. Checks nothing, as the class itself."""
        return dataclasses.replace(self, **changes)

    def error(self, message: str, key: str, value: object, remedy: str) -> PolicyError:
        """Return what is wrong with a field's value, or a part of it."""
        return PolicyError(message, file=self.name, key=key, value=repr(value), remedy=remedy)

    def digest(self) -> str:
        """SHA-256, in hex, of the canonical JSON of all fields: equal policies, equal digest."""
        canonical = json.dumps(self.as_dict(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()

    @property
    def required(self) -> frozenset[str]:
        """Capabilities without whose enforcement nothing runs: ``require``, and the mode's own."""
        return frozenset((*self.require, *(CONFINEMENT if self.mode == "confined" else ())))

    def enforced_capabilities(self, backend: Enforcer) -> tuple[str, ...]:
        """Return the capabilities that ``backend`` enforces here, holes apart: verified, asserted.

        ``backends.named("landlock")`` is one.
        """
        found = backend.enforcement(self)
        return tuple(name for name, each in found.items() if each.holds)

    def unenforced_capabilities(self, backend: Enforcer) -> tuple[str, ...]:
        """Return all others, those that are enforced in part among them."""
        found = backend.enforcement(self)
        return tuple(name for name, each in found.items() if not each.holds)

    @property
    def has_budget(self) -> bool:
        """Whether cells have a budget for a whole session, which a second session would renew."""
        operations = self.operations.granted() if self.operations is not None else ()
        return self.llm.granted or "write_file" in operations

    def rules(self, file: str = "") -> Rules:
        """Return what the language layer needs of this policy.

        ``file`` is the policy's file as it was named, or a preset's name: for remedies.
        """
        extends = base_of(file or self.name)
        written = self.operations.write_file if self.operations is not None else None
        modules = allowlist.MODULES  # those of mode safe; the other modes ignore it
        if self.llm.granted and "dspy" in self.allowed_modules:
            modules = {**modules, "cellblock.dspy": ("LM",)}
        operations = self.operations.granted() if self.operations is not None else ()
        granted = {f"ops.{name}" for name in operations} | ({"llm"} if self.llm.granted else set())
        return Rules(
            language=self.mode == "safe",
            modules=modules,
            raw_modules=frozenset(self.allowed_modules),
            magics=frozenset(self.magics),
            operations=frozenset(granted),
            approvals=self.approvals == "prompt",
            reads=bool(self.filesystem_read_roots),
            writes=self._written_beneath_read(),
            write_root=written.roots[0].removesuffix("?") if written is not None else "",
            file="" if extends else file,
            extends=extends,
            admission=self.admission != "any",
        )

    def _written_beneath_read(self) -> str:
        """Return the first folder that cells may write beneath one they read, from there; or empty.

        Folders may be as they are written: ``{project}/work?``.
        """
        for root in self.filesystem_write_roots:
            for read in self.filesystem_read_roots:
                # A checkout is the project, or above it.
                base = read.replace("{checkout}", "{project}").rstrip("/")
                if root.startswith(f"{base}/"):
                    return root[len(base) + 1 :].removesuffix("?")
        return ""


#: Each field's row, in the model's order.
ROWS: Final[dict[str, Row]] = rows_of(Policy)
FIELDS: Final = tuple(ROWS)
_TYPES: Final = {one.name: str(one.type) for one in dataclasses.fields(Policy)}

#: Fields for which "none" in a file means no limit: TOML has no null.
OPTIONAL_FIELDS: Final = tuple(name for name in FIELDS if _TYPES[name].endswith("| None"))

#: Fields that hold lists.
LISTS: Final = tuple(name for name in FIELDS if _TYPES[name] == "Names")

#: Lists of paths, and which of them have to exist.
PATHS: Final = {name: row.must_exist for name, row in ROWS.items() if row.must_exist is not None}

#: The fields that something enforces, in the order in which they are shown.
CAPABILITIES: Final = tuple(name for name, row in ROWS.items() if row.is_capability)

#: Those that can have a gap. A backend declares each of them, or can't be imported; the host alone
#: enforces the others, everywhere alike.
DECLARED: Final = tuple(name for name, row in ROWS.items() if row.gap)


# --- what fields are worth under a backend --------------------------------------------------------


class Status(StrEnum):
    """How far a capability holds on this machine."""

    verified = "verified"
    """A probe saw an attempt fail, and its positive control succeed, in the real launch path."""

    asserted = "asserted"
    """The mechanism is in place; nothing attempted to break it here."""

    partial = "partial"
    """It holds, but for the holes that are listed."""

    unenforced = "unenforced"
    """Nothing enforces it."""

    unavailable = "unavailable"
    """The mechanism exists, but not on this machine, or its lock failed."""


@dataclass(frozen=True, slots=True)
class Enforcement:
    """What one backend does about one capability on this machine.

    ``locks`` names the guest's locks without which the statement is void. ``at_gate`` is what a
    guest's gate does about the capability, without holes: where a guest reports a gate, that holds
    instead. ``contradicted`` says that a probe saw the statement not to hold.
    """

    capability: str
    status: Status
    mechanism: str
    holes: tuple[str, ...]
    evidence: str
    locks: tuple[str, ...] = ()
    contradicted: bool = False
    at_gate: str = ""

    @property
    def holds(self) -> bool:
        """Whether there is nothing to disclose."""
        return self.status in (Status.verified, Status.asserted)


@dataclass(frozen=True, slots=True)
class Gap:
    """The difference between what is configured and what is enforced, for the user's eyes.

    ``contradicted`` says that the backend claims more than a probe saw to hold, ``matters`` that a
    cell can do what the policy forbids: then it is shown on a session's first cell.
    """

    capability: str
    status: Status
    asked: str
    actual: str
    consequence: str
    remedy: str
    contradicted: bool = False
    matters: bool = True


class Enforcer(Protocol):
    """What a policy asks of a backend to say what that enforces on this machine."""

    def enforcement(self, policy: Policy) -> Mapping[str, Enforcement]:
        """Return what each capability is worth here; nothing holds where it can't be had."""
