"""The policy: one frozen value with its fields, their units and defaults.

A policy is a plain dataclass. pydantic checks it in a module apart (``schema``), because a kernel
under a shipped preset starts without importing pydantic (ADR 0019). Make a policy with
``load.load`` or ``schema.parse``. Calling the class checks nothing.

The docstring below a field is its documentation of record: ``cellblock policy schema`` and
``docs/policy.md`` are made from it. The defaults are those of preset ``safe``.

All other properties of a field are in its row (``rows``), and nowhere else. To add a limit, add its
field with a row here, and the code that enforces it.

A capability is a policy field that something enforces. ``Enforcement`` describes how far a
capability holds on this machine: status, mechanism, holes, evidence. If the operating system takes
part in the enforcement, the status is never assumed. A backend declares it, the guest's own report
confirms or lowers it, and any remaining difference is shown as a gap (promise P7).
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


# --- fields that are tables in a policy file: [approval], [audit], [templates], [llm], [ops.NAME] -


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval(Table):
    """The manifests that ``cellblock approve`` writes and a kernel reads, and the key for them."""

    folder: str = "{data}/approved"
    """The folder of the manifests. ``{data}`` is ``$XDG_DATA_HOME/cellblock`` or
    ``~/.local/share/cellblock``. No guest can write there."""

    key: str = "{data}/approval.key"
    """The file with the key that signs the manifests. It must belong to you or to root. Others must
    not be able to read it, because whoever can read the key can approve cells; only root may let a
    group read it. No guest can read it."""

    scope: str = "{project}"
    """Where approvals count: those in a manifest, and those that a user gives for always.
    ``{project}`` means only in the folder of the notebooks. If you write a name instead, they count
    in every folder whose policy has the same name here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit(Table):
    """The audit log of a session, and what happens if the log can't be written."""

    log: bool = True
    """Whether the host writes an audit log of the session."""

    required: bool = False
    """Whether cells are refused while the log can't be written. If false, cells run, and the first
    cell shows that nothing is logged."""

    folder: str = "{cache}/audit"
    """The folder of the logs, which has one file per session. ``{cache}`` is
    ``$XDG_CACHE_HOME/cellblock`` or ``~/.cache/cellblock``. If you rely on the log, choose a folder
    that nobody clears. No guest can read or write there."""

    max_bytes: Annotated[int, Range(64 * KIB)] = 256 * MIB
    """A session's log has at most this many bytes. When the log is full, the session runs no
    further cells, handlers or tools."""

    fsync: bool = False
    """Whether each record is on disk before its cell starts. The record then survives a power cut,
    and not only the end of the host. This costs the time of one write to the disk per cell: a
    millisecond or more."""

    sources: bool = False
    """Whether the log contains the source of cells, the lines that were refused and the messages of
    exceptions. If false, it contains only the SHA-256 of each source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Templates(Table):
    """The folders that templates are read from."""

    folders: tuple[str, ...] = ("{shipped}",)
    """The folders of the templates. A template is two files, ``NAME.py`` and ``NAME.schema.json``.
    ``{shipped}`` is the folder of cellblock's own templates. No guest can write in these
    folders."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Llm(Table):
    """The language models that cells may call through the host, and the limits of these calls."""

    base_url: str = ""
    """The address of the endpoint, which must be compatible with OpenAI's:
    ``https://api.openai.com/v1``. If empty, cells can call no language model. The host sends the
    cells' texts to the endpoint. Cells learn neither the address nor the key."""

    models: tuple[str, ...] = ()
    """The models that cells may call. A call that names no model gets the first."""

    key_env: str = ""
    """The host's environment variable that holds the key. Cells never see the key."""

    timeout: Annotated[float, Range(0.1)] = 120.0
    """One call takes at most this many seconds, all its retries included."""

    retries: Annotated[int, Range(0, 10)] = 2
    """A call is tried again at most this many times, if the endpoint was too busy or could not be
    reached."""

    max_calls: Annotated[int, Range(1)] = 1_000
    """All cells of a session together may make at most this many calls."""

    max_tokens: Annotated[int, Range(1)] = 1_000_000
    """All calls of a session together may use at most this many tokens, prompts and completions
    included."""

    max_tokens_per_call: Annotated[int, Range(1)] = 4_096
    """One completion has at most this many tokens. This is also the number for a call that names
    none."""

    max_in_flight: Annotated[int, Range(1, 1_000)] = 16
    """At most this many calls run at once. Further calls wait, and the wait counts towards their
    ``timeout``."""

    token_parameter: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """The endpoint's name for the parameter that limits the length of a completion."""

    @property
    def granted(self) -> bool:
        """Whether the policy gives cells ``llm``."""
        return bool(self.base_url)


def _operations_class() -> type[Operations]:
    """Return the class of ``ops``.

    It is imported only for policies that grant operations, because the import takes 3 ms.
    """
    from cellblock.policy.operations import Operations  # noqa: PLC0415 - 3 ms

    return Operations


class OperationsField:
    """The annotation of ``ops``.

    pydantic validates the value as ``Operations``, and makes it None if no operation is granted.
    """

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
    """Return MCP servers by name. Each value is a server already, or its table in a policy file."""
    return {
        name: server if isinstance(server, McpServer) else McpServer(**frozen(server))
        for name, server in values.items()
    }


def _operations(**values: Any) -> Operations | None:
    """Return the value of ``ops`` from its tables in a policy file. None if there are no tables."""
    return _operations_class().of_values(values) if values else None


#: The fields that are tables with a fixed set of keys, and the class of each.
TABLES: Final = {"approval": Approval, "audit": Audit, "llm": Llm, "templates": Templates}
#: All fields that are tables in a policy file. The function makes the field from the file's values.
SECTIONS: Final[dict[str, Callable[..., Any]]] = {
    **TABLES,
    "mcp": servers_of,
    "ops": _operations,
    "credentials": credentials_of,
}


def plain(value: Any) -> Any:
    """Return a field's value with every table as a dict. Keys whose value is None are left out."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        keys = dataclasses.asdict(value)
        return {key: item for key, item in keys.items() if item is not None}
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value


def flat_fields(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the fields of a ``Policy.as_dict``; each key of a section becomes one: ``audit.log``.

    An empty section stays one field.
    """
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict) and value and (prefix or name in SECTIONS):
            flat |= flat_fields(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


Names = tuple[str, ...]

#: Capabilities that mode ``confined`` requires, because it has no layer besides the OS layer.
CONFINEMENT: Final = (
    "filesystem_read_roots",
    "filesystem_write_roots",
    "network_access",
    "subprocess_execution",
)

# Values that several rows share.
LOCKS, GUEST = EnforcedBy.locks, EnforcedBy.guest
_OPERATORS: Final = Never("only the policy file chooses what enforces the policy")
_LOADED: Final = Never("it only prepares modules for cells, and allows nothing")
_ADMITTED: Final = Never("only the policy file says which cells may run at all")
_COPIED: Final = Never("files are copied out for people, so only the policy file chooses them")
#: The fields by which cells get something to call on the host.
_CALLED: Final = ("tools", "mcp", "ops", "llm.base_url")
_GRANTED: Final = Never("only the policy file grants it, and the host's own workers enforce it")
_FORKS: Final = "use Linux 5.0 or later, and start the kernel where no seccomp listener is in use"
_OPEN_FILES: Final = "files and folders that were open before stay open"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy(Table):
    """The code that cells may contain, and the rights of the process that runs the cells.

    A field is one ``row``: its default, which is the value of preset safe, and the properties of a
    ``rows.Row``. The field's type has its bounds, and the docstring below the field its meaning.
    """

    name: str = row("safe", narrower=Never("it is only the policy's name in messages"))
    """The policy's name in messages. The default for a policy file is the file's name without
    ``.toml``."""

    mode: Literal["safe", "confined", "unsafe"] = row(
        "safe",
        narrower=Towards(("unsafe", "confined", "safe")),
        enforced_by=GUEST,
        means="Cells may import and call anything; the OS layer confines them.",
    )
    """``safe`` checks the source of every cell. ``confined`` checks no source: cells may import and
    call anything, and no cell runs unless the OS layer confines files, network and processes.
    ``unsafe`` checks no source either, and runs even without that confinement; it must be permitted
    with ``--allow-unsafe``."""

    backend: Literal["auto", "landlock", "bubblewrap", "seatbelt", "docker", "noop"] = row(
        "auto",
        narrower=_OPERATORS,
    )
    """The mechanism of the OS layer. ``auto`` chooses the strongest backend that works on this
    machine. It tries ``bubblewrap`` (the locks of ``landlock``, and namespaces), ``landlock``,
    ``seatbelt`` and ``noop`` (no OS layer) in that order. ``docker`` (the locks of ``landlock``, in
    a container) is used only if you name it."""

    on_unsupported: Literal["warn", "error", "ignore"] = row(
        "warn",
        narrower=Towards(("ignore", "warn", "error")),
        for_cells=False,
    )
    """What happens if this machine does not enforce all of the policy. ``warn`` shows the gaps on
    the first cell, ``error`` runs no cell, and ``ignore`` does not show them."""

    require: Names = row(CONFINEMENT, narrower=Way.more, for_cells=False)
    """Capabilities (names of fields below) that must be enforced. If one of them is not, no cell
    runs."""

    container_engine: Literal["auto", "docker", "podman", "nerdctl"] = row(
        "auto",
        narrower=_OPERATORS,
        only_with=("backend", ("docker",)),
    )
    """The container engine of backend ``docker``. ``auto`` uses the first one that is installed."""

    container_runtime: str = row(
        "",
        narrower=_OPERATORS,
        only_with=("backend", ("docker",)),
    )
    """The engine's name for the OCI runtime. If empty, the engine's default runtime is used."""

    container_image: str = row(
        "",
        narrower=_OPERATORS,
        only_with=("backend", ("docker",)),
    )
    """The container image. It must be present on this machine, because cellblock pulls no image. If
    empty, the image that ``cellblock image build`` makes is used."""

    admission: Literal["any", "approved", "template"] = row("any", narrower=_ADMITTED)
    """The cells that may run at all. ``any`` admits every cell. ``approved`` admits only the exact
    texts that ``cellblock approve`` has approved. ``template`` admits only cells that name a
    template and give its state as JSON."""

    approval: Approval = row(
        Approval(),
        narrower=_ADMITTED,
        only_with=("admission", ("approved",)),
    )
    """The place where approvals are kept. In a policy file it is the table ``[approval]``."""

    approvals: Literal["never", "prompt"] = row(
        "never",
        narrower=Never(
            "a question restricts calls but permits imports, so only the policy file sets it"
        ),
    )
    """Whether the user is asked. With ``prompt``, the front end asks about each import that is not
    on the allowlist, about each call of a tool, an operation or a language model, and, when the
    session starts, about anything that needs ``--allow-unsafe``. With ``never``, nobody is asked:
    the policy alone decides."""

    templates: Templates = row(
        Templates(),
        narrower=_ADMITTED,
        only_with=("admission", ("template",)),
    )
    """The available templates. In a policy file it is the table ``[templates]``."""

    audit: Audit = row(
        Audit(),
        narrower=Never("the audit log records cells, so cells can't change it"),
        for_cells=False,
    )
    """The audit log. In a policy file it is the table ``[audit]``."""

    allowed_modules: Names = row(
        (),
        narrower=Way.fewer,
        enforced_by=GUEST,
        shown=Shown.language,
        only_with=("mode", ("safe",)),
        means="Cells may import these.",
    )
    """Top-level packages that cells may import in addition to the allowlist of record. Cells can
    use all of such a package, so you trust it with everything that the process may do."""

    magics: Names = row(
        ALLOWED_MAGICS,
        narrower=Way.fewer,
        enforced_by=GUEST,
        shown=Shown.language,
        only_with=("mode", ("safe",)),
        means="Cells may use these magics.",
    )
    """Line and cell magics that cells may use. The names have no percent signs."""

    preload: Names = row((), narrower=_LOADED, for_cells=False)
    """Modules that are imported once, when the kernel starts. The start takes longer, and cells
    that use the modules are faster. The import is confined as cells are and runs in an empty
    folder, so it finds no settings of the project or the user, such as ``./matplotlibrc``."""

    preload_when_idle: Names = row((), narrower=_LOADED, for_cells=False)
    """Modules that are imported while a kernel waits for its launch or its first cell, so that a
    first cell that names one of them need not wait for the import. Modules that are not installed,
    or that cells may not import, are left out. The imported modules take memory for at most five
    minutes, unless the first cell uses them."""

    pre_imported: Names = row(("json", "math", "re", "asyncio"), narrower=_LOADED)
    """Modules that cells can use without importing them. Each is bound to its name before the first
    cell."""

    tools: Names = row(
        (),
        narrower=Way.fewer,
        enforced_by=GUEST,
    )
    """Your own functions that cells may call, as ``module:function``. They run in a process apart
    from the cells, which imports them from the installed packages."""

    mcp: dict[str, McpServer] = row(default_factory=dict, narrower=_GRANTED)
    """MCP servers whose tools cells may call, as ``NAME_TOOL``. In a policy file each server is a
    table ``[tools.mcp.NAME]`` with the keys ``command`` or ``url``, ``env``, ``token_env`` and
    ``tools``. The list ``tools`` above is then written as ``tools.functions``."""

    tool_timeout: Seconds | None = row(
        30.0,
        narrower=Way.lower,
        only_with=(("tools", "mcp"), "any"),
    )
    """One call of a tool takes at most this many seconds."""

    tool_timeouts: dict[str, Seconds] = row(
        default_factory=dict,
        narrower=Way.lower_each,
        only_with=(("tools", "mcp"), "any"),
    )
    """A table with the limits, in seconds, of tools for which ``tool_timeout`` does not hold. The
    keys are the tools' names."""

    tool_max_calls: Count | None = row(
        100_000,
        narrower=Way.lower,
        only_with=(_CALLED, "any"),
    )
    """One cell may make at most this many calls of tools."""

    tool_max_in_flight: InFlight = row(
        1_024,
        narrower=Way.lower,
        enforced_by=GUEST,
        only_with=(_CALLED, "any"),
    )
    """At most this many calls of tools run at once."""

    tool_max_bytes: ToolBytes = row(
        MIB,
        narrower=Way.lower,
        enforced_by=GUEST,
        only_with=(_CALLED, "any"),
    )
    """The arguments of one call have at most this many bytes, and so has its result."""

    llm: Llm = row(
        Llm(),
        narrower=_GRANTED,
        only_with=("llm.base_url", "any"),
    )
    """The language models that cells may call. In a policy file it is the table ``[llm]``."""

    ops: Annotated[Any, OperationsField()] = row(None, narrower=_GRANTED)
    """Operations of the host that cells may call. In a policy file each granted operation is a
    table: ``[ops.read_file]``."""

    credentials: dict[str, Credential] = row(
        default_factory=dict,
        narrower=Way.fewer_tables,
        host="the host adds each key to requests of ops.http over TLS; no guest gets a key",
        shown=Shown.first,
        only_with=("credentials", "any"),
        words=words,
    )
    """Secret keys that cells use and never see. In a policy file each of them is a table,
    ``[credentials.NAME]``, with ``hosts``, ``header``, ``prefix`` and ``value``. A narrowing lists
    the names of the credentials that remain: ``["NAME"]``."""

    packages: Names = row(
        (),
        narrower=Never("they are installed before the first cell, and allow nothing by themselves"),
    )
    """Requirements that are installed before the first cell. ``[ops.install]`` names the index and
    the packages that are allowed. Only wheels are installed."""

    artifact_export_paths: Names = row(
        (),
        narrower=_COPIED,
        only_with=("artifact_export_paths", "any"),
    )
    """Glob patterns for files that are copied out after the cell that wrote them. A pattern starts
    in the folder that cells run in, or with ``{scratch}`` or ``{project}``; ``**`` stands for any
    number of folders. The files must be beneath a write root."""

    artifact_folder: str = row(
        "{project}/artifacts",
        narrower=_COPIED,
        only_with=("artifact_export_paths", "any"),
    )
    """The folder that these files are copied to. Cells can't write there."""

    filesystem_read_roots: Names = row(
        (),
        narrower=Beneath(
            # Every writable path is also readable.
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
    """Folders and files that cells can read. The interpreter, its libraries and site-packages, time
    zones and locales are always readable, so you need not list them."""

    filesystem_write_roots: Names = row(
        ("{scratch}",),
        narrower=Beneath(("filesystem_write_roots",), "can be written"),
        enforced_by=LOCKS,
        gap="a cell can change any file that you can",
        stays=_OPEN_FILES,
        must_exist=True,
        shown=Shown.first,
    )
    """Folders that cells can write in. ``{scratch}`` is private to the kernel, and is deleted when
    the kernel ends."""

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
    """Folders beneath read roots that look writable to cells. Whatever cells write there is stored
    in a layer above the folders. The folders themselves change only when the user keeps a change
    (``%changes``, ``cellblock changes``). The layer counts towards ``scratch_max_bytes``."""

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
    """Paths that cells can never read, even below a read root. They need not exist. ``**/NAME``
    denies every file and folder of that name beneath read roots, except one that a root names
    itself. ``@secrets`` stands for the names under which projects usually keep secrets."""

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
    """``false`` lets cells reach nothing outside, ``true`` the whole network. A list of
    ``host:port`` lets libraries and programs connect to these addresses by TCP."""

    ports: Literal["any"] | tuple[Port, ...] = row(
        (),
        narrower=Way.ports,
        gap="servers that cells start can't be reached",
        remedy=(
            "use backend bubblewrap or landlock, on a machine that permits user namespaces; "
            "cellblock doctor says what forbids them"
        ),
        remedy_if_partial="open pages only where cells know nothing secret, or leave ports empty",
        asked=lambda policy: bool(policy.ports),
        shown=Shown.used,
    )
    """Ports of HTTP servers in cells that you can open in your browser, at an address that
    ``%ports`` shows. It is a list of numbers, or ``"any"`` for every port that a cell listens at.
    It can't be combined with ``network_access = true``, because cells then listen in your own
    network."""

    port_hosts: Names = row(
        (),
        narrower=Way.fewer,
        host="the host passes on only requests to these hosts and to each port's own address",
        for_cells=False,
        only_with=("ports", "any"),
    )
    """Names of Jupyter servers that may also reach these ports, through jupyter-server-proxy. Write
    each name as a browser sends it: ``hub.example.org``. A cell's page that is opened in this way
    has the origin and the cookies of that server, so it can do there all that you can."""

    devices: Names = row(
        (),
        narrower=Way.devices,
        enforced_by=LOCKS,
        gap="cells have other devices than the policy lists, or lack some of them",
        remedy=(
            "use backend bubblewrap or landlock, and Linux 6.10 or later; check that the driver is "
            "loaded, and that you may open the device yourself"
        ),
        remedy_if_partial=(
            "check that the drivers of missing devices are loaded, and that you may open the "
            "devices; leave devices empty if you do not trust cells with a driver"
        ),
        asked=lambda policy: bool(policy.devices),
        stays="devices that were open before stay open",
        shown=Shown.used,
        means="Cells may use these devices; no limit counts the memory in a device.",
    )
    """Devices that cells may use. ``"nvidia"`` stands for all GPUs of NVIDIA's driver,
    ``"nvidia:0"`` for one of them, and ``"dri"`` for the devices that render. A path below /dev
    names a character device, such as ``"/dev/kfd"``. No limit counts the memory in a device, or the
    memory that a driver pins for the device. A process that is using a device is not copied, so
    there are no snapshots of it."""

    subprocess_execution: bool = row(
        False,
        narrower=Way.off,
        enforced_by=LOCKS,
        gap="a cell can start programs",
        asked=lambda policy: not policy.subprocess_execution,
        shown=Shown.first,
        means="Cells may start programs, which are confined like the cells.",
    )
    """Whether cells may start processes."""

    package_installation: bool = row(
        False,
        narrower=Way.off,
        gap="a cell can install packages",
        remedy="list what notebooks need in packages, or grant ops.install",
    )
    """Whether cells may install packages themselves, as pip does. No backend supports ``true``, so
    it is shown as a gap. Use ``packages`` or ``ops.install``: with these the host installs
    packages."""

    env_var_access: Names = row(
        (),
        narrower=Way.fewer,
        enforced_by=GUEST,
        gap="a cell can read the host's environment",
        shown=Shown.first,
    )
    """Environment variables that are passed on to cells. All others are removed, with these
    exceptions. HOME, LANG, PATH, PYTHONDONTWRITEBYTECODE and TMPDIR always have the sandbox's own
    values, and so has USER unless you pass it on. SHELL is passed on if cells may start that
    program. The cells of a kernel have JPY_PARENT_PID, JPY_SESSION_NAME and the variables for
    terminals as under ipykernel."""

    display: Literal["text", "sanitized", "isolated"] = row(
        "sanitized",
        narrower=Towards(("isolated", "sanitized", "text")),
        host={
            "text": "the host passes on plain text only",
            "sanitized": "the host passes on output only after sanitising it",
            "isolated": (
                "as sanitized; output with scripts runs in nested frames without origin or network"
            ),
        },
        shown=Shown.language,
    )
    """The kinds of output that reach the page. ``text`` shows plain text only. ``sanitized`` also
    shows rich output, from which everything that runs or loads has been removed. ``isolated``
    also shows interactive HTML, in frames of its own."""

    widget_modules: Names = row(
        (),
        narrower=Way.fewer,
        host="the host passes on only the widgets of these modules",
    )
    """Front-end modules whose widgets cells may show. The host cleans the widgets of ipywidgets
    itself key by key. Any other module that you name here receives a cell's messages unchanged, and
    runs in the page. The field has no effect if ``display`` is ``text``."""

    comm_targets: Names = row(
        (),
        narrower=Way.fewer,
        host="the host passes on only comms to these targets",
    )
    """Comm targets through which cells and front-end extensions may exchange messages. The targets
    of widgets don't belong here. The host limits the size of these messages, and does not clean
    them."""

    snapshots: Literal["auto", "always", "off"] = row(
        "auto",
        narrower=Never("snapshots protect your variables, so no cell may switch them off"),
        gap="a killed cell costs the variables",
        remedy=_FORKS,
        lacked=True,
        asked=lambda policy: policy.snapshots != "off",
    )
    """Whether snapshots of the guest are kept, from which the state before a killed cell is
    restored. ``auto`` takes no snapshot while memory is short. It also pauses for a while when two
    snapshots in a row, of a guest of at least 256 MiB, took more than 0.25 s each. The first pause
    is shown on standard error. ``always`` never pauses. With ``off``, a killed cell costs the
    variables."""

    undo_depth: Depth = row(
        3,
        narrower=Way.lower,
        gap="%undo has nothing to go back to",
        remedy=_FORKS,
        lacked=True,
        asked=lambda policy: policy.snapshots != "off" and policy.undo_depth > 0,
    )
    """``%undo`` can go back over at most this many cells. Each of them may keep a copy of the
    guest."""

    max_branches: Depth = row(
        8,
        narrower=Way.lower,
        gap="there are no checkpoints",
        remedy=_FORKS,
        lacked=True,
        asked=lambda policy: policy.snapshots != "off" and policy.max_branches > 0,
    )
    """A session may keep at most this many checkpoints and branches together. A sandbox may also
    have at most this many forks at a time, forks of its forks included."""

    timeout: Seconds | None = row(
        60.0,
        narrower=Way.lower,
        host="the host kills the guest",
        shown=Shown.first,
        means="A cell may run for at most this many seconds.",
    )
    """One cell may run for at most this many seconds."""

    idle_timeout: Seconds | None = row(
        None,
        narrower=Way.lower,
        gap="an idle kernel keeps its memory",
        remedy="let the server cull idle kernels (MappingKernelManager.cull_idle_timeout)",
        lacked=True,
        shown=Shown.limits,
    )
    """The kernel ends after this many seconds without a cell."""

    cpu_seconds: Count | None = row(
        None,
        narrower=Way.lower,
        gap="a cell can keep the processor busy until its timeout",
        remedy_if_partial=(
            "set subprocess_execution to false, or timeout, which ends such cells too"
        ),
        shown=Shown.limits,
    )
    """One cell may use at most this many seconds of processor time, all its threads and processes
    together."""

    memory_max_bytes: Memory | None = row(
        GIB,
        narrower=Way.lower,
        enforced_by=LOCKS,
        gap="a cell can use up the machine's memory",
        remedy="run the kernel in a cgroup with memory.max",
        shown=Shown.first,
    )
    """One process of the guest may allocate at most this many bytes of memory, including the
    interpreter's own. The least value is 32 MiB. An allocation beyond the limit raises MemoryError.
    A guest can get memory in other ways too. It is killed if all its processes and its /dev/shm
    together exceed the limit by an eighth, and by at least 64 MiB."""

    max_processes: Count | None = row(
        128,
        narrower=Way.lower,
        enforced_by=LOCKS,
        gap="a cell can start any number of threads",
        remedy="run the kernel as an unprivileged user, or in a cgroup with pids.max",
        shown=Shown.limits,
    )
    """The guest may have at most this many threads and processes at once. If the OS kernel has no
    seccomp listeners, all other threads and processes of the user count as well."""

    max_open_files: Count | None = row(
        256,
        narrower=Way.lower,
        enforced_by=LOCKS,
        gap="a cell can open any number of files",
        stays=_OPEN_FILES,
        shown=Shown.limits,
    )
    """One process may have at most this many files open at once."""

    max_file_size: Annotated[int, Range(KIB)] | None = row(
        64 * MIB,
        narrower=Way.lower,
        enforced_by=LOCKS,
        gap="a cell can fill the disk",
        shown=Shown.limits,
    )
    """A file that cells write may have at most this many bytes. The least value is 1 KiB, which a
    guest needs to start."""

    stack_max_bytes: Annotated[int, Range(MIB)] | None = row(
        None,
        narrower=Way.lower,
        enforced_by=LOCKS,
        gap="a cell's recursion can take a larger stack",
        shown=Shown.limits,
    )
    """The stack of a process's first thread may have at most this many bytes, and so may the stack
    of each thread of a program that a cell starts. The least value is 1 MiB. The stack is never
    larger than the kernel's own. A process that needs more crashes. The stack of each further
    thread counts as memory in full, so more threads fit if stacks are small."""

    scratch_max_bytes: Bytes | None = row(
        256 * MIB,
        narrower=Way.lower,
        gap="a cell can fill the disk with many files",
        remedy="put the folder for temporary files on a disk with a quota",
        shown=Shown.limits,
    )
    """The scratch folder may take at most this many bytes on disk. Each file counts as at least
    4 KiB."""

    stdout_max_bytes: Bytes | None = row(
        MIB,
        narrower=Way.lower,
        host="the host leaves out the rest, and shows how much that is",
    )
    """At most this many bytes of standard output are shown for one cell: the beginning and the
    end."""

    stderr_max_bytes: Bytes | None = row(
        MIB,
        narrower=Way.lower,
        host="the host leaves out the rest, and shows how much that is",
    )
    """At most this many bytes of standard error are shown for one cell: the beginning and the
    end."""

    display_max_bytes: Bytes | None = row(
        8 * MIB,
        narrower=Way.lower,
        host="the host leaves out the rest",
    )
    """At most this many bytes of rich output are shown for one cell: its first and its last
    displays."""

    undo_max_bytes: Bytes | None = row(
        512 * MIB,
        narrower=Way.lower,
        host="the host ends the oldest copies",
        for_cells=False,
    )
    """The copies for ``%undo`` may hold at most this many bytes that they do not share with the
    guest. The oldest copies are ended first."""

    forks_max_bytes: Bytes | None = row(
        4 * GIB,
        narrower=Way.lower,
        host="the host kills the guest whose cell takes them over the limit",
    )
    """A sandbox and its forks together may hold at most this many bytes of memory. Shared memory
    counts once, and the number is an estimate. The cell that takes them over the limit is
    stopped."""

    output_kept_max_bytes: Annotated[int, Range(0)] | None = row(
        64 * MIB,
        narrower=Way.lower,
        host="the host writes no more",
        for_cells=False,
    )
    """The host keeps at most this many bytes of text on disk, from cells that printed more than is
    shown. ``%output`` pages through the text until the kernel ends. At most half of the bytes are
    for one cell, and hold the beginning of its text. The text of the oldest cells is removed first.
    0 keeps nothing."""

    artifact_max_bytes: Bytes | None = row(
        64 * MIB,
        narrower=_COPIED,
        host="the host does not copy a larger file",
        only_with=("artifact_export_paths", "any"),
    )
    """A file that is copied out may have at most this many bytes."""

    artifacts_max_bytes: Bytes | None = row(
        512 * MIB,
        narrower=_COPIED,
        host="the host copies no further file",
        only_with=("artifact_export_paths", "any"),
    )
    """All files together that one session copies out may have at most this many bytes."""

    @classmethod
    def preset(cls, name: str = "safe", /, **changes: Any) -> Policy:
        """Return a shipped preset, or the preset and backend of a tier, with ``changes`` applied.

        ``changes`` are the keys of a policy file, ``add={"allowed_modules": ["mylib"]}`` included.
        Raises PolicyError, as for a file, which names each wrong key and its remedy.
        """
        from cellblock.policy.load import preset_policy  # noqa: PLC0415 - it imports this

        return preset_policy(name, changes)

    def as_dict(self) -> dict[str, Any]:
        """Return all fields in their order. Tuples stay tuples, and each table is a dict."""
        return {name: plain(getattr(self, name)) for name in FIELDS} | {
            "ops": plain(self.ops) or {}
        }

    @property
    def operations(self) -> Operations | None:
        """The granted operations, or None if ``ops`` grants none."""
        section: Operations | None = self.ops
        return section

    def secret_variables(self) -> dict[str, str]:
        """Return the host's environment variables that hold secrets, each with a description.

        Cells get none of these variables, neither by ``env_var_access`` nor through a program.
        """
        named = {self.llm.key_env: "the key of language models"}
        named |= {server.token_env: f"the token of {name}" for name, server in self.mcp.items()}
        for name, credential in self.credentials.items():
            named[named_by(credential.value, "env")] = f"the credential {name}"
        return {variable: description for variable, description in named.items() if variable}

    def secret_files(self) -> dict[str, str]:
        """Return the paths of files that hold secrets. The keys are the fields that name them."""
        paths = {
            f"credentials.{name}.value": named_by(credential.value, "file")
            for name, credential in self.credentials.items()
        }
        return {field: path for field, path in paths.items() if path}

    def package_library(self) -> str | None:
        """Return the folder of the packages that ``ops.install`` installs, which cells may read.

        Return None if the policy does not grant ``ops.install``.
        """
        install = self.operations.install if self.operations is not None else None
        return None if install is None else f"{install.store()}/lib"

    def replace(self, **changes: Any) -> Policy:
        """Return a copy with ``changes``. Like the class itself, it checks nothing."""
        return dataclasses.replace(self, **changes)

    def error(self, message: str, key: str, value: object, remedy: str) -> PolicyError:
        """Return the error for a field's value, or for a part of the value."""
        return PolicyError(message, file=self.name, key=key, value=repr(value), remedy=remedy)

    def digest(self) -> str:
        """Return the SHA-256, in hex, of the canonical JSON of all fields.

        Equal policies have equal digests.
        """
        canonical = json.dumps(self.as_dict(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()

    @property
    def required(self) -> frozenset[str]:
        """The capabilities that must be enforced: ``require``, and those of mode ``confined``."""
        return frozenset((*self.require, *(CONFINEMENT if self.mode == "confined" else ())))

    def enforced_capabilities(self, backend: Enforcer) -> tuple[str, ...]:
        """Return the capabilities that ``backend`` enforces here without holes.

        Their status is verified or asserted. A backend is, for example,
        ``backends.named("landlock")``.
        """
        enforcement = backend.enforcement(self)
        return tuple(name for name, each in enforcement.items() if each.holds)

    def unenforced_capabilities(self, backend: Enforcer) -> tuple[str, ...]:
        """Return all other capabilities, including those that are enforced only in part."""
        enforcement = backend.enforcement(self)
        return tuple(name for name, each in enforcement.items() if not each.holds)

    @property
    def has_budget(self) -> bool:
        """Whether cells have a budget per session, such as tokens.

        Each further session would start with a full budget.
        """
        operations = self.operations.granted() if self.operations is not None else ()
        return self.llm.granted or "write_file" in operations

    def rules(self, file: str = "") -> Rules:
        """Return the part of this policy that the language layer needs.

        ``file`` is the policy's file as the operator named it, or a preset's name. Remedies show
        it.
        """
        extends = base_of(file or self.name)
        write_file = self.operations.write_file if self.operations is not None else None
        modules = allowlist.MODULES  # only mode safe uses them
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
            write_root=write_file.roots[0].removesuffix("?") if write_file is not None else "",
            file="" if extends else file,
            extends=extends,
            admission=self.admission != "any",
        )

    def _written_beneath_read(self) -> str:
        """Return the first write root that lies beneath a read root, relative to the read root.

        Return an empty text if there is none. Roots may be unexpanded, as in a policy file:
        ``{project}/work?``.
        """
        for root in self.filesystem_write_roots:
            for read_root in self.filesystem_read_roots:
                # The checkout is the project or a folder above it.
                base = read_root.replace("{checkout}", "{project}").rstrip("/")
                if root.startswith(f"{base}/"):
                    return root[len(base) + 1 :].removesuffix("?")
        return ""


#: The rows by field name, in the order of the fields.
ROWS: Final[dict[str, Row]] = rows_of(Policy)
FIELDS: Final = tuple(ROWS)
_TYPES: Final = {field.name: str(field.type) for field in dataclasses.fields(Policy)}

#: Fields that may be "none" in a file, for no limit. It is a text because TOML has no null.
OPTIONAL_FIELDS: Final = tuple(name for name in FIELDS if _TYPES[name].endswith("| None"))

#: Fields whose values are lists.
LISTS: Final = tuple(name for name in FIELDS if _TYPES[name] == "Names")

#: Fields that are lists of paths, and whether these paths must exist.
PATHS: Final = {name: row.must_exist for name, row in ROWS.items() if row.must_exist is not None}

#: The fields that something enforces, in the order of the fields.
CAPABILITIES: Final = tuple(name for name, row in ROWS.items() if row.is_capability)

#: The capabilities that can have a gap. A backend must declare each of them, else it can't be
#: imported. The host alone enforces the other capabilities, so they hold on every machine.
DECLARED: Final = tuple(name for name, row in ROWS.items() if row.gap)


# --- how far a backend enforces a field -----------------------------------------------------------


class Status(StrEnum):
    """How far a capability holds on this machine."""

    verified = "verified"
    """A probe ran in a guest that was started in the usual way: the forbidden attempt failed, and
    the permitted control succeeded."""

    asserted = "asserted"
    """The mechanism is in place, and not every probe was run here."""

    partial = "partial"
    """The capability holds, except for the listed holes."""

    unenforced = "unenforced"
    """Nothing enforces the capability."""

    unavailable = "unavailable"
    """This machine lacks the mechanism, or the guest could not take the lock."""


@dataclass(frozen=True, slots=True)
class Enforcement:
    """How one backend enforces one capability on this machine.

    ``locks`` names the locks that the guest must take for this declaration to hold. ``at_gate`` is
    the mechanism of a guest's gate, which has no holes: it replaces ``mechanism`` for a guest that
    reports a gate. ``contradicted`` says that a probe disproved the declaration.
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
        """Whether the capability is enforced without holes, so there is nothing to disclose."""
        return self.status in (Status.verified, Status.asserted)


@dataclass(frozen=True, slots=True)
class Gap:
    """The difference between the policy and the enforcement of one capability, as shown to users.

    ``contradicted`` says that a probe disproved what the backend declares. ``matters`` says that a
    cell can do something that the policy forbids; such a gap is shown on a session's first cell.
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
    """The part of a backend that a policy needs, to learn what is enforced on this machine."""

    def enforcement(self, policy: Policy) -> Mapping[str, Enforcement]:
        """Return the enforcement of each capability on this machine.

        If the backend does not work here, no capability holds.
        """
