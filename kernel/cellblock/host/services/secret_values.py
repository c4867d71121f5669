"""The one place where the host reads a secret: a credential, a model's key, a server's token.

``policy.credentials`` has the form in which a policy says where it is. A value stays in the process
that read it, which is a worker; what goes wrong is said without it.
"""

from __future__ import annotations

import os
from typing import Final

from cellblock.descriptors import closing, open_unlinked, read_regular
from cellblock.policy.credentials import source_parts

#: Bytes of the longest secret: a header has to hold it.
MAX_SECRET: Final = 8_192


class NoSecretError(Exception):
    """A secret that can't be had, or can't be sent: what is wrong with it, and what to do.

    Cells are told, so neither says where on this machine a file is.
    """

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.message, self.remedy = message, remedy


def read_secret(source: str) -> str:
    """Return the secret that ``env:NAME`` or ``file:PATH`` names. Raises NoSecretError.

    White space around it is left out: files end with a newline. A secret goes into a header, so it
    is one line of printable ASCII.
    """
    kind, place = source_parts(source)
    found = _from_environment(place) if kind == "env" else _from_file(place)
    if not found:
        raise NoSecretError("its file is empty", "Put the key there.")
    if not (found.isascii() and found.isprintable()) or len(found) > MAX_SECRET:
        what = "the host's key can't be sent: it is no line of ASCII"
        raise NoSecretError(what, "Put the key there, and nothing else.")
    return found


def _from_environment(name: str) -> str:
    found = os.environ.get(name, "").strip()
    if not found:
        what = f"the host's environment has no {name}"
        raise NoSecretError(what, f"Set {name} where the kernel is started, and restart it.")
    return found


def _from_file(path: str) -> str:
    try:
        # The policy's loader followed links, once.
        with closing(open_unlinked(path, os.O_RDONLY | os.O_NONBLOCK)) as fd:
            content = read_regular(fd, MAX_SECRET + 3)
    except OSError as exc:
        raise NoSecretError(f"its file can't be read: {exc.strerror}", "Mend that.") from None
    if content is None:
        raise NoSecretError("its file is no regular one", "Put the key in a file.")
    # What is not ASCII is refused by its first such letter.
    return content.decode("latin-1").strip()
