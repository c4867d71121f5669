"""``LabFront``: the front end's side of the comm of JupyterLab's extension."""

from __future__ import annotations

import base64
import hashlib
import hmac
import itertools
import json
import os
import time
from typing import TYPE_CHECKING, Any

from support.client import DEADLINE

if TYPE_CHECKING:
    from support.client import Client

TARGET = "cellblock.lab"
_numbers = itertools.count(1)


class LabFront:
    """The extension in one front end. ``told`` has the host's messages in their order."""

    def __init__(self, client: Client, name: str = "") -> None:
        self.client, self.name = client, name or f"lab-{next(_numbers)}"
        self.secret = os.urandom(32)
        self.told: list[dict[str, Any]] = []
        self._seen = 0
        data = {"version": 1, "secret": base64.b64encode(self.secret).decode()}
        content = {"comm_id": self.name, "target_name": TARGET, "data": data}
        self.opened = client.send("comm_open", content)

    def ask(self, kind: str, *, subshell: str | None = None, **fields: Any) -> str:
        """Send a request; return its id."""
        fields.setdefault("id", f"q{next(_numbers)}")
        header = self.client.session.msg_header("comm_msg")
        header |= {"subshell_id": subshell} if subshell else {}
        content = {"comm_id": self.name, "data": {"kind": kind, **fields}}
        self.client.send("comm_msg", content, header=header)
        return fields["id"]

    def until(self, kind: str, timeout: float = DEADLINE, **fields: Any) -> dict[str, Any]:
        """Return the next message of a kind that has these fields."""
        deadline = time.monotonic() + timeout
        while True:
            for one in self._next():
                if one["kind"] == kind and fields.items() <= one.items():
                    return one
            if time.monotonic() > deadline:
                raise TimeoutError(f"no {kind} with {fields}: {self.told[-5:]}")
            if self.client.iopub.poll(100):
                self.client.recv("iopub")

    def find(self, kind: str, **fields: Any) -> dict[str, Any]:
        """Return the first message of a kind with these fields, received already or to come."""
        for one in self.told:
            if one["kind"] == kind and fields.items() <= one.items():
                return one
        return self.until(kind, **fields)

    def answer(self, kind: str, reply: str = "done", **fields: Any) -> dict[str, Any]:
        """Send a request and return its answer."""
        return self.until(reply, id=self.ask(kind, **fields))

    def latest(self, kind: str) -> dict[str, Any]:
        """Ask for a view again, and return it."""
        assert self.answer("refresh", what=[kind])["ok"]
        return [one for one in self.told if one["kind"] == kind][-1]

    def _next(self) -> Any:
        """Yield the host's messages since the last call, after checking their code and number."""
        while self._seen < len(self.client.log):
            _, message = self.client.log[self._seen]
            self._seen += 1
            content = message["content"]
            if message["msg_type"] != "comm_msg" or content["comm_id"] != self.name:
                continue
            body, mac = content["data"]["body"], content["data"]["mac"]
            assert hmac.new(self.secret, body.encode(), hashlib.sha256).hexdigest() == mac
            one = json.loads(body)
            assert one["n"] == len(self.told), "a message is missing, or was told again"
            self.told.append(one)
            yield one
