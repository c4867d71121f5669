"""Secrets: the one place that reads a credential, a model's key or a server's token.

Worker processes of the host call ``read_secret``; a value stays in the worker that read it, and no
error contains it. A policy names a secret as ``policy.credentials`` describes.
"""

from __future__ import annotations

import os
from typing import Final

from cellblock.descriptors import closing, open_unlinked, read_regular
from cellblock.policy.credentials import source_parts

#: Bytes of the longest secret: an HTTP header must hold it.
MAX_SECRET: Final = 8_192


class NoSecretError(Exception):
    """A secret can't be read or sent: ``message`` says why, ``remedy`` what to do.

    Cells are shown both, so neither contains a path on this machine.
    """

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy


def read_secret(source: str) -> str:
    """Return the secret that ``env:NAME`` or ``file:PATH`` names. Raises NoSecretError.

    White space around it is removed: files end with a newline. It must be one line of printable
    ASCII, since it is sent in an HTTP header.
    """
    kind, place = source_parts(source)
    secret = _from_environment(place) if kind == "env" else _from_file(place)
    if not secret:
        raise NoSecretError("its file is empty", "Put the key there.")
    if not (secret.isascii() and secret.isprintable()) or len(secret) > MAX_SECRET:
        problem = "the host's key can't be sent: it is not one line of ASCII"
        raise NoSecretError(problem, "Put the key there, and nothing else.")
    return secret


def _from_environment(name: str) -> str:
    secret = os.environ.get(name, "").strip()
    if not secret:
        problem = f"the host's environment has no {name}"
        raise NoSecretError(problem, f"Set {name} where the kernel is started, and restart it.")
    return secret


def _from_file(path: str) -> str:
    try:
        # No link is followed here: the policy's loader resolved the path, once.
        with closing(open_unlinked(path, os.O_RDONLY | os.O_NONBLOCK)) as fd:
            content = read_regular(fd, MAX_SECRET + 3)
    except OSError as exc:
        raise NoSecretError(f"its file can't be read: {exc.strerror}", "Mend that.") from None
    if content is None:
        raise NoSecretError("its file is not a regular file", "Put the key in a file.")
    # latin-1 decodes any bytes; read_secret refuses a text that is not ASCII.
    return content.decode("latin-1").strip()
