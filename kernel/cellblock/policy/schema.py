"""Checks an operator's policy: ``parse`` its types by pydantic, then ``check`` its names.

This module is only imported for operators' files, and pydantic only for values that it has not
accepted before. A kernel under a shipped preset starts without both; the tests check the presets
(ADR 0019).
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import pkgutil
import re
import sys
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Literal

from cellblock.analysis.allowlist import GROUPS
from cellblock.analysis.magic_table import MAGICS, of_name
from cellblock.errors import PolicyError, together
from cellblock.policy import devices, headers, network
from cellblock.policy.credentials import Credential, source_parts
from cellblock.policy.mcp_servers import McpServer
from cellblock.policy.model import (
    CAPABILITIES,
    FIELDS,
    OPTIONAL_FIELDS,
    SECTIONS,
    TABLES,
    Policy,
)
from cellblock.policy.operations import OPERATIONS, Operations, operation_problems
from cellblock.policy.vocabulary import (
    FIXED_ENVIRONMENT,
    HOST_TARGETS,
    MAX_DEVICES,
    MAX_NAME,
    MAX_PORTS,
    SIZE_PATTERN,
    WIDGET_TARGETS,
    closest,
    is_of_server,
    is_size,
    tool_name,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from pydantic import TypeAdapter
    from pydantic_core import ErrorDetails

    from cellblock.policy.operations import Problem


#: pydantic's words for types, and those of TOML.
_WORDS = (
    ("a valid array", "a list"),
    ("a valid integer", "a whole number"),
    ("a valid string", "a text"),
    ("a valid boolean", "true or false"),
    ("an object", "a table"),
    ("a valid ", "a "),
)
#: Shown in place of a value that may be a secret.
_MASK: Final = "•••"
_EXPECTED = {
    "network_access": "true, false or a list of host:port texts",
    "ports": 'a list of numbers from 1024 to 65535, or "any"',
}


def parse(values: Mapping[str, object], *, file: str) -> Policy:
    """Check the types of ``values`` (TOML values by field) and make the policy.

    Raises PolicyError with all mistakes, one for each key. Paths are not checked.
    """
    from pydantic import ValidationError  # noqa: PLC0415 - slow

    try:
        # By JSON: only for JSON input, strict pydantic accepts a list for a tuple.
        return _adapter().validate_json(json.dumps(values, default=str))
    except ValidationError as failure:
        details = failure.errors(include_url=False)
        errors = [_explained(detail, values, file) for detail in details]
        raise together(
            list({error.key: error for error in reversed(errors)}.values())[::-1]
        ) from None


#: Fields with a table for each name: the section in a file, and the class of a table.
_NAMED_TABLES: Final[dict[str, tuple[str, type]]] = {
    "mcp": ("tools.mcp", McpServer),
    "credentials": ("credentials", Credential),
}


@cache
def _adapter() -> TypeAdapter[Policy]:
    from pydantic import TypeAdapter  # noqa: PLC0415 - slow

    return TypeAdapter(Policy)


def _refused_key_and_known(loc: tuple[int | str, ...]) -> tuple[str, tuple[str, ...] | None]:
    """Return the key of a value that pydantic refuses, and the known keys if it is not one."""
    top = str(loc[0])
    if top not in FIELDS:
        return top, FIELDS
    if top not in SECTIONS or len(loc) == 1:
        return top, None
    second, *rest = map(str, loc[1:])
    if top in _NAMED_TABLES:
        section, table = _NAMED_TABLES[top]
        key, known_keys = f"{section}.{second}", _field_names(table)
        return (
            (f"{key}.{rest[0]}", None if rest[0] in known_keys else known_keys)
            if rest
            else (key, None)
        )
    known_keys = tuple(OPERATIONS) if top == "ops" else _field_names(TABLES[top])
    if second not in known_keys or top != "ops" or not rest:
        return f"{top}.{second}", None if second in known_keys else known_keys
    known_keys = _field_names(OPERATIONS[second])
    return f"{top}.{second}.{rest[0]}", None if rest[0] in known_keys else known_keys


def _field_names(table: type) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(table))


def json_schema() -> dict[str, Any]:
    """Return the JSON schema of a policy, field docs and defaults included."""
    schema = _adapter().json_schema()
    # pydantic leaves out a default that is made by a factory.
    schema["properties"]["tool_timeouts"]["default"] = {}
    schema["properties"]["mcp"]["default"] = {}
    schema["properties"]["credentials"]["default"] = {}
    schema["properties"]["ops"]["default"] = {}  # it is None, which a file can't have
    for table in (schema, *schema["$defs"].values()):
        for name, field in table["properties"].items():
            if is_size(name):
                _allow_size(field)
    return schema


def _allow_size(field: dict[str, Any]) -> None:
    """Extend the schema of a number of bytes by sizes with a unit."""
    number = {key: field.pop(key) for key in ("type", "minimum", "maximum") if key in field}
    choices = field.setdefault("anyOf", [number])
    choices.append({"type": "string", "pattern": SIZE_PATTERN})


def _explained(detail: ErrorDetails, values: Mapping[str, object], file: str) -> PolicyError:
    """Return the PolicyError for an error of pydantic's."""
    if not detail["loc"]:  # the input is not valid JSON: a file's name in bytes has a surrogate
        message = "not text"
        remedy = "Rename the file and the folders that it names, in UTF-8."
        return PolicyError(message, file=ascii(file), key="name", remedy=remedy)
    key, known_keys = _refused_key_and_known(detail["loc"])
    if known_keys is not None:
        table, _, name = key.rpartition(".")
        if table and name in (*FIELDS, "add", "extends"):
            remedy = f"Put {name} above the first [table]: lines below [{table}] are that table's."
        else:
            remedy = closest(name, known_keys, what="keys")
        return PolicyError("no such key", file=file, key=key, remedy=remedy)
    expected = _EXPECTED.get(key) or detail["msg"].removeprefix("Input should be ")
    for pydantic_text, our_text in _WORDS:
        expected = expected.replace(pydantic_text, our_text)
    if is_size(key.rpartition(".")[2]):
        expected = expected.replace("a whole number", 'a size, as in "8 GiB"')
    limit = ', or "none" for no limit' if key in OPTIONAL_FIELDS else ""
    value = detail["input"] if key not in _EXPECTED else values[key]
    if detail["loc"][0] == "credentials":
        value = _MASK  # it may be the secret itself
    remedy = f"It should be {expected}{limit}."
    return PolicyError("wrong value", file=file, key=key, value=repr(value), remedy=remedy)


# --- names that must mean something, which types can't express ------------------------------------

#: Names that an engine's command line does not read as options.
_RUNTIME: Final = r"([\w/][\w./-]{0,200})?"
_IMAGE: Final = r"([a-z0-9][\w./:@-]{0,300})?"
#: The most characters of an approval's scope, a glob pattern and a model's name.
_MAX_SCOPE, _MAX_PATTERN, _MAX_MODEL = 200, 1_000, 200
_TOOL: Final = re.compile(r"[^\W\d][\w.]*:[^\W\d][\w.]*")
_SERVER: Final = re.compile(r"[a-z][a-z0-9_]{0,39}")
_VARIABLE: Final = re.compile(r"[^\W\d]\w*|")
#: A browser's ``Host``: a name or an address, and a port.
_HOST_HEADER: Final = re.compile(
    r"(?:[a-z0-9._-]{1,253}|\[[0-9a-f:.]{2,45}\])(?::[1-9][0-9]{0,4})?"
)
_AS_IMPORTED: Final = "Give a name as in an import statement."


def check(policy: Policy, *, file: str, known_modules: Collection[str], here: bool) -> None:
    """Raise PolicyError with all problems of the policy's values, such as unknown names.

    With ``here``, cells will run on this machine. Then the modules that the policy names must be
    installed, except ``known_modules``, and so must the packages that the host needs under it.
    """
    problems = chain(
        _module_problems(policy, known_modules) if here else (),
        _word_problems(policy),
        _access_problems(policy),
        _tool_problems(policy, here=here),
        _server_problems(policy, here=here),
        _llm_problems(policy, here=here),
        operation_problems(policy.operations or Operations(), policy.packages, here=here),
        _credential_problems(policy),
    )
    wrong = [
        PolicyError(
            message,
            file=file,
            key=key,
            value="" if value is None else repr(value),
            remedy=remedy,
        )
        for key, message, value, remedy in problems
    ]
    if wrong:
        raise together(wrong)


def _word_problems(policy: Policy) -> Iterator[Problem]:
    """Yield problems with words of cellblock or of a container engine."""
    if not _is_label(policy.name, MAX_NAME):
        yield "name", "not a name", policy.name, f"Give 1 to {MAX_NAME} printable characters."
    if not re.fullmatch(_RUNTIME, policy.container_runtime):
        remedy = "Give a name that the engine knows, as in `docker info`."
        name = policy.container_runtime
        yield "container_runtime", "not the name of a runtime", name, remedy
    if not re.fullmatch(_IMAGE, policy.container_image):
        remedy = "Give a name as in `docker images`: name:tag."
        yield "container_image", "not the name of an image", policy.container_image, remedy
    for name in policy.require:
        if name not in CAPABILITIES:
            remedy = closest(name, CAPABILITIES, what="names")
            yield "require", "no such capability", name, remedy
    if not _is_label(policy.approval.scope, _MAX_SCOPE):
        remedy = "Give {project}, or 1 to 200 printable characters."
        yield "approval", "no scope", policy.approval.scope, remedy
    for name in policy.magics:
        if policy.admission != "any" and of_name(name).unchecked:
            remedy = 'Remove it, or let admission be "any".'
            yield "magics", "brings in code that nobody approved", name, remedy
        elif name not in MAGICS:
            remedy = "Write it without %." if "%" in name else closest(name, MAGICS, what="magics")
            yield "magics", "no such magic", name, remedy


def _is_label(text: str, most: int) -> bool:
    return text.isprintable() and 0 < len(text) <= most


def _module_problems(policy: Policy, known_modules: Collection[str]) -> Iterator[Problem]:
    can_install = policy.operations is not None and policy.operations.install is not None
    for name in policy.allowed_modules:
        if name in known_modules:
            continue
        if name.startswith("@"):
            remedy = closest(name, GROUPS, what="groups")
            yield "allowed_modules", "no such group", name, remedy
        elif "." in name:
            remedy = f"Give {name.partition('.')[0]}: packages come whole."
            yield "allowed_modules", "not a top-level package", name, remedy
        # With ops.install, the package may be installed while a kernel runs.
        elif not (can_install and name.isidentifier()):
            yield from _import_problems("allowed_modules", name)
    yield from _preload_problems(policy)
    for name in policy.pre_imported:
        if "." in name:
            remedy = "A dotted name binds no single name."
            yield "pre_imported", "not a top-level module", name, remedy
        yield from _import_problems("pre_imported", name)
        if policy.mode == "safe" and not policy.rules().allows_module(name):
            remedy = "Add it to allowed_modules."
            yield "pre_imported", "not an allowed module", name, remedy


def _preload_problems(policy: Policy) -> Iterator[Problem]:
    for name in policy.preload:
        yield from _import_problems("preload", name)
    for name in policy.preload_when_idle:  # modules that are not installed are left out later
        if not _is_module_name(name):
            yield "preload_when_idle", "not a module name", name, _AS_IMPORTED


def _import_problems(key: str, name: str) -> Iterator[Problem]:
    """Yield the problem if the first part of a dotted name isn't installed; nothing is imported."""
    top = name.partition(".")[0]
    if not _is_module_name(name):
        yield key, "not a module name", name, _AS_IMPORTED
    elif top not in sys.stdlib_module_names and not _is_installed(top):
        importable = {module.name for module in pkgutil.iter_modules()} | sys.stdlib_module_names
        near = closest(top, importable, what="modules")
        near = f"{near} " if near.startswith("Did") else ""
        yield key, "no such module here", name, f"{near}Install it, or remove the entry."


def _is_module_name(name: str) -> bool:
    return all(part.isidentifier() for part in name.split("."))


def _is_installed(top: str) -> bool:
    try:
        return importlib.util.find_spec(top) is not None
    except (ImportError, ValueError):
        return False


def _access_problems(policy: Policy) -> Iterator[Problem]:
    """Yield problems with what cells may reach: network, environment, comms, files."""
    addresses = () if isinstance(policy.network_access, bool) else policy.network_access
    wrong = list[str]()
    for entry in addresses:
        try:
            network.parse_address(entry)
        except network.AddressError as error:
            yield "network_access", error.message, entry, error.remedy
            wrong.append(entry)
    if not wrong:  # _port_problems parses the addresses again
        yield from _port_problems(policy)
    yield from _device_problems(policy)
    for name in policy.env_var_access:
        if name in FIXED_ENVIRONMENT:
            message, remedy = "always has a sandbox value", "Remove the entry."
            yield "env_var_access", message, name, remedy
        elif not name or "=" in name or not name.isprintable():
            remedy = "Give a name as in `env`, without $."
            yield "env_var_access", "not a variable name", name, remedy
    yield from _comm_problems(policy)
    for entry in policy.artifact_export_paths:
        parts, printable = entry.split("/"), entry.isprintable()
        if not printable or ".." in parts or not parts[-1] or len(entry) > _MAX_PATTERN:
            remedy = "Write one as in *.csv, plots/**/*.png or {scratch}/*.json."
            yield "artifact_export_paths", "not a pattern of files", entry, remedy


def _port_problems(policy: Policy) -> Iterator[Problem]:
    if not policy.ports:
        return
    if policy.network_access is True:
        message = "has no effect with network_access = true: cells listen in your own network"
        yield "ports", message, policy.ports, "List addresses, or remove ports."
    elif policy.ports != "any" and len(policy.ports) > MAX_PORTS:
        message = f"more than {MAX_PORTS} ports"
        yield "ports", message, len(policy.ports), 'List fewer, or set "any".'
    listed_ports = network.loopback_ports(policy.network_access)
    for port in () if policy.ports == "any" else policy.ports:
        if port in listed_ports:
            message = "is your own loopback's under network_access, so no cell can listen there"
            yield "ports", message, port, "Remove one of the two."
    for host in policy.port_hosts:
        if not _HOST_HEADER.fullmatch(host):
            remedy = "Write it as in a URL: hub.example.org, or 127.0.0.1:8888."
            yield "port_hosts", "not a host as a browser sends it", host, remedy


def _device_problems(policy: Policy) -> Iterator[Problem]:
    if len(policy.devices) > MAX_DEVICES:
        yield "devices", f"more than {MAX_DEVICES} entries", len(policy.devices), "List fewer."
    for entry in policy.devices[:MAX_DEVICES]:
        if (refusal := devices.problem(entry)) is not None:
            message, remedy = refusal
            yield "devices", message, entry, remedy


def _comm_problems(policy: Policy) -> Iterator[Problem]:
    for name in policy.comm_targets:
        if name in WIDGET_TARGETS:
            remedy = "Name modules in widget_modules instead."
            yield "comm_targets", "widgets' own target", name, remedy
        elif name.startswith(HOST_TARGETS):
            yield "comm_targets", "a target of the host's own", name, "Remove the entry."


def _tool_problems(policy: Policy, *, here: bool) -> Iterator[Problem]:
    for entry in policy.tools:
        if not _TOOL.fullmatch(entry):
            remedy = "Write module:function."
            yield "tools", "not the name of a function", entry, remedy
    if here:
        entries = filter(_TOOL.fullmatch, policy.tools)
        for module in dict.fromkeys(entry.partition(":")[0] for entry in entries):
            yield from _import_problems("tools", module)
    tools = set(map(tool_name, policy.tools))
    for name in policy.tool_timeouts:
        if name not in tools and not is_of_server(name, policy.mcp):
            remedy = closest(name, tools, what="tools")
            yield "tool_timeouts", "no such tool", name, remedy


def _server_problems(policy: Policy, *, here: bool) -> Iterator[Problem]:
    """Yield problems with ``[tools.mcp.NAME]``."""
    for name, server in policy.mcp.items():
        key = f"tools.mcp.{name}"
        if not _SERVER.fullmatch(name):
            remedy = "Cells see it: give lower-case letters, digits and _, a letter first."
            yield key, "not a name", name, remedy
        if bool(server.command) is bool(server.url):
            remedy = "Give command to start the server, or url if it runs already."
            yield key, "it needs exactly one of command and url", None, remedy
        if not server.tools:
            remedy = 'Name some of its tools, or tools = ["*"].'
            yield f"{key}.tools", "none is named", [], remedy
        for variable in (*server.env, *filter(None, [server.token_env])):
            if not _VARIABLE.fullmatch(variable):  # it may be the secret itself
                remedy = "Give its name as in `env`, without $."
                yield key, "not the name of a variable", "•••", remedy
            elif variable in policy.env_var_access and variable == server.token_env:
                remedy = "Take it out of env_var_access."
                yield f"{key}.token_env", "cells would be given the token", variable, remedy
        if server.url:
            yield from _address_problems(f"{key}.url", server.url, "token", server.token_env)
        if here and importlib.util.find_spec("mcp") is None:
            yield key, "mcp is not installed", None, "Install it: pip install 'cellblock[mcp]'."


#: The words for an address, and an example, by the secret that is sent there.
_ADDRESSES: Final = {
    "key": ("an endpoint's address", "https://api.openai.com/v1"),
    "token": ("an address", "https://mcp.example.org/mcp"),
}


def _address_problems(
    key: str, address: str, secret: Literal["key", "token"], variable: str
) -> Iterator[Problem]:
    """Yield problems with an address to which the host sends cells' texts, and maybe a secret.

    ``variable`` is the environment variable of the secret, empty without one.
    """
    url = network.split_url(address)
    if url is None:
        description, example = _ADDRESSES[secret]
        yield key, f"not {description}", address, f"Write it as in {example}."
    elif network.may_hold_secret(url):
        remedy = f"Give the {secret} by {secret}_env, and nothing behind the path."
        yield key, "it may be shown, so it holds no secret", "•••", remedy
    elif url.scheme == "http" and variable and not network.is_loopback(url.hostname or ""):
        message = f"the {secret} would cross the network in the clear"
        yield key, message, url.geturl(), f"Write https, or leave out the {secret}."


def _llm_problems(policy: Policy, *, here: bool) -> Iterator[Problem]:
    """Yield problems with ``[llm]``: its address, its models, and its key."""
    llm = policy.llm
    if not llm.granted:
        return
    address = "llm.base_url"
    yield from _address_problems(address, llm.base_url, "key", llm.key_env)
    if not llm.models:
        yield "llm.models", "none is named", [], "Name one at least, the default first."
    for name in llm.models:
        if not _is_label(name, _MAX_MODEL):
            remedy = "Name it as the endpoint does."
            yield "llm.models", "not the name of a model", name, remedy
    if llm.key_env and llm.key_env in policy.env_var_access:
        remedy = "Take it out of env_var_access."
        yield "llm.key_env", "cells would be given the key", llm.key_env, remedy
    if not _VARIABLE.fullmatch(llm.key_env):  # not shown, since it may be the key itself
        remedy = "Give its name as in `env`, without $; the key itself stands nowhere in a policy."
        yield "llm.key_env", "not the name of a variable", "•••", remedy
    if here and importlib.util.find_spec("openai") is None:
        remedy = "Install it: pip install 'cellblock[llm]'."
        yield address, "openai is not installed", llm.base_url, remedy
    if "llm" in map(tool_name, policy.tools):
        yield address, "a tool is named llm", llm.base_url, "Rename the tool."


#: The name of a credential, and the longest prefix.
_CREDENTIAL: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}", re.ASCII)
_MAX_PREFIX: Final = 100


def _credential_problems(policy: Policy) -> Iterator[Problem]:
    """Yield problems with ``[credentials.NAME]``. No value that may be a secret is shown."""
    http = policy.operations.http if policy.operations is not None else None
    #: The credential that has a header of requests to an origin.
    owners: dict[tuple[network.Origin, str], str] = {}
    for name, credential in policy.credentials.items():
        key = f"credentials.{name}"
        if not _CREDENTIAL.fullmatch(name):
            remedy = "Give up to 40 letters, digits, _ and -, a letter first."
            yield "credentials", "not the name of a credential", name, remedy
        if http is None:
            yield key, "nothing sends it", None, "Grant [ops.http], with its hosts."
        if not credential.hosts:
            yield f"{key}.hosts", "none is named", [], "Name who is sent the key: host:port."
        yield from _header_problems(key, credential)
        yield from _source_problems(policy, f"{key}.value", credential.value)
        granted = [network.parse_host(entry) for entry in http.hosts] if http is not None else []
        for entry in credential.hosts:
            try:
                origins = network.origins_of(entry)
            except network.AddressError as error:
                yield f"{key}.hosts", error.message, entry, error.remedy
                continue
            yield from _listening_problems(policy, f"{key}.hosts", entry, origins)
            reached = any(admitting.admits(*origin) for origin in origins for admitting in granted)
            if not reached:
                remedy = "Add it to hosts of [ops.http], as https, or take it out here."
                yield f"{key}.hosts", "ops.http does not ask it over https", entry, remedy
            for origin in origins:
                owner = owners.setdefault((origin, headers.compared(credential.header)), name)
                if owner != name:
                    message = f"credential {owner} has this header for {entry}"
                    yield f"{key}.header", message, credential.header, "Leave one of them out."


def _listening_problems(
    policy: Policy, key: str, entry: str, origins: Sequence[network.Origin]
) -> Iterator[Problem]:
    """Yield the problem with a credential's host at which cells could listen themselves.

    With ``port_hosts``, the host passes requests for those names on to cells' servers.
    """
    hosts = [host.strip("[]") for _, host, _ in origins]
    is_here = any(map(network.is_loopback, hosts))
    if policy.network_access is True and is_here:
        remedy = "List addresses in network_access, or name a host that is not this machine."
        yield key, "cells could listen there, and be sent the key", entry, remedy
    served = {re.sub(r":\d+\Z", "", host).strip("[]").lower() for host in policy.port_hosts}
    if policy.port_hosts and (is_here or not served.isdisjoint(hosts)):
        remedy = "Leave port_hosts empty, or take this host out."
        yield key, "cells could serve there by port_hosts, and be sent the key", entry, remedy


def _header_problems(key: str, credential: Credential) -> Iterator[Problem]:
    if not headers.is_header(credential.header):
        remedy = "Give its name, as in Authorization or X-Api-Key."
        yield f"{key}.header", "not the name of a header", credential.header, remedy
    elif credential.header.lower() in headers.HOST_HEADERS | headers.FORWARDED_HEADERS:
        remedy = "Name the header that the server reads the key from."
        yield f"{key}.header", "a header that holds no key", credential.header, remedy
    if not headers.is_header("X", credential.prefix) or len(credential.prefix) > _MAX_PREFIX:
        remedy = f'Give up to {_MAX_PREFIX} printable ASCII characters, as "Bearer ".'
        yield f"{key}.prefix", "can't stand in a header", _MASK, remedy


def _source_problems(policy: Policy, key: str, source: str) -> Iterator[Problem]:
    try:
        kind, name = source_parts(source)
    except ValueError:
        remedy = "Write env:NAME or file:PATH; the key itself stands nowhere in a policy."
        yield key, "it does not say where the key is", _MASK, remedy
        return
    if kind == "env" and name in policy.env_var_access:
        yield key, "cells would be given the key", name, "Take it out of env_var_access."
