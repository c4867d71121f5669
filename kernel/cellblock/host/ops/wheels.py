"""One wheel from an index, unpacked: by uv where that is installed, else by pip. In the worker.

Neither is asked to settle what else is needed (``--no-deps``): pip would fetch, and build, what a
wheel names by an address. Nothing is ever built: without ``--only-binary :all:`` both would run
what they download. No configuration of theirs counts, nor any variable.
"""

from __future__ import annotations

import contextlib
import email
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Final

from packaging.utils import is_normalized_name
from packaging.version import VERSION_PATTERN

from cellblock.host.ops.errors import OperationError
from cellblock.host.ops.shelf import Package
from cellblock.host.tools.answers import scrubbed
from cellblock.policy import installers
from cellblock.policy.requirements import canonical

if TYPE_CHECKING:
    from pathlib import Path

#: What they need of the environment: where they are, whom they trust, whom they go through.
_PASSED: Final = (
    "HOME", "HTTPS_PROXY", "HTTP_PROXY", "LANG", "LD_LIBRARY_PATH", "NO_PROXY", "PATH",
    "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR", "SSL_CERT_FILE", "TMPDIR", "https_proxy", "http_proxy",
    "no_proxy",
)  # fmt: skip
#: Seconds between looks at a process; what is cancelled stops within one.
_LOOK: Final = 0.05
_LONGEST: Final = 300
_VERSION: Final = re.compile(VERSION_PATTERN, re.VERBOSE | re.IGNORECASE)
#: What pip, then uv, says when it gave up on a connection: pip ends as if there were no package.
_UNREACHED: Final = (
    "Retry(total=0,", "Max retries exceeded", "error sending request", "tcp connect error",
    "operation timed out",
)  # fmt: skip
#: What uv, then pip, says of an index that answers, and not now, or not to us: 5xx, 401, 407, 408,
#: 429. Of some, uv says that there is no such package, and pip nothing but in its log.
_NOT_NOW: Final = re.compile(
    r"HTTP status server error \(|HTTP status client error \(4(?:01|07|08|29) |\(401 Unauthorized\)"
    r"|too many 5\d\d error responses|: 5\d\d Server Error|[: ]4(?:01|07|08|29) Client Error"
)
#: What both say of this machine: input and output, memory, descriptors, a full disk, a read-only
#: one, a quota (errno(3)); not of a file that is too large.
_OF_HERE: Final = re.compile(r"(?:\[Errno |\(os error )(5|12|23|24|28|30|122)[\])]")
#: Bytes of pip's log that are read; it is told early what of the index could not be had.
_LONGEST_LOG: Final = 2**20


def fetch(requirement: str, *, index: str, into: Path, most: int, deadline: float) -> Package:
    """Unpack the wheel that fits ``requirement`` best into a folder; return what it is.

    ``most`` bytes at most; ``folder`` of what is returned is empty. Raises OperationError.
    """
    with tempfile.TemporaryFile() as said, tempfile.NamedTemporaryFile() as log:
        command = _command(requirement, index, into, log.name)
        status = _run(command, said.fileno(), most, deadline)
        if status:
            said.seek(0)
            texts = (said.read(), log.read(_LONGEST_LOG))
            raise _failed(status, *(text.decode("utf-8", "replace") for text in texts))
    (into / ".lock").unlink(missing_ok=True)  # uv's own
    return _package(into)


def _command(requirement: str, index: str, into: Path, log: str) -> list[str]:
    shared = ["--no-deps", "--only-binary", ":all:", "--index-url", index, "--target", str(into)]
    if (uv := installers.uv()) is not None:
        own = ["--no-config", "--no-progress", "--link-mode", "copy", "--python", sys.executable]
        return [uv, "pip", "install", "--quiet", *own, *shared, requirement]
    if not installers.has_pip():
        raise OperationError("InstallError", "neither uv nor pip is there any more")
    own = ["--isolated", "--no-input", "--no-compile", "--disable-pip-version-check", "--log", log]
    pip = [sys.executable, "-I", "-m", "pip", "install", "--quiet", "--no-cache-dir"]
    return [*pip, *own, *shared, requirement]


def _run(command: list[str], said: int, most: int, deadline: float) -> int:
    """Return the exit status of a process of this one's group, which so ends with it."""
    passed = {name: os.environ[name] for name in _PASSED if name in os.environ}
    process = subprocess.Popen(  # noqa: S603 - what it is given was checked
        command,
        env=passed | {"PIP_CONFIG_FILE": os.devnull},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=said,
        cwd=tempfile.gettempdir(),
    )
    try:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (most, most))
        while process.poll() is None:
            if time.monotonic() > deadline:
                raise OperationError("TimeoutError", "it took too long ([ops.install] timeout)")
            time.sleep(_LOOK)
        return process.returncode
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def _failed(status: int, said: str, log: str) -> OperationError:
    """Return the error for what an installer says; of a kind in TRANSIENT unless the package's."""
    # Newer pips call answers of 5xx too many retries.
    answers = bool(_NOT_NOW.search(said))
    if not answers and any(sign in said for sign in _UNREACHED):
        return OperationError("ConnectError", "its index can't be reached, or does not answer")
    if answers or _NOT_NOW.search(log):
        return OperationError("ConnectError", "its index answers that it can't be had now")
    if found := _OF_HERE.search(said):
        return OperationError("OSError", f"this machine says: {os.strerror(int(found[1]))}")
    if status < 0 and status != -signal.SIGXFSZ:
        return OperationError("OSError", "what installs it was killed")
    return OperationError("InstallError", _why(said))


def _why(said: str) -> str:
    """Return what an installer says last of what went wrong, with what it says of its cause."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [n for n, line in enumerate(lines) if line.lower().startswith("error")] or [0]
    told = " ".join(lines[errors[-1] : errors[-1] + 2]) or "it failed without a word"
    return scrubbed(told.removeprefix("ERROR: ").removeprefix("error: "))[:_LONGEST]


def _package(folder: Path) -> Package:
    """Read what a wheel says of itself."""
    found = list(folder.glob("*.dist-info/METADATA"))
    if len(found) != 1:
        raise OperationError("InstallError", "it is not one wheel")
    said = email.message_from_string(found[0].read_text("utf-8", "replace"))
    name, version = canonical(str(said.get("Name", ""))), str(said.get("Version", "")).strip()
    # A folder is named for both, and whoever unpacked it may have read another line for them.
    if not is_normalized_name(name) or not _VERSION.fullmatch(version):
        raise OperationError("InstallError", "it is no wheel: its name or version is none")
    return Package(name, version, "", tuple(map(str, said.get_all("Requires-Dist", ()))))
