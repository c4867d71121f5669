"""A kernel in a world with a secret, and checks whether an attack got hold of the secret.

``Prey`` is the world; ``Door`` is the kernel as an attack uses it.
"""

from __future__ import annotations

import json
import secrets
import sys
import time
from typing import TYPE_CHECKING, Any

from support import reading
from support.kernels import UNSAFE, Kernel, World, argv_for

if TYPE_CHECKING:
    from collections.abc import Callable

#: Stock ipykernel, in which an attack must succeed, or its test would prove nothing.
STOCK = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
#: The same, without the 200 ms for which it holds back printed text.
PROMPT_STOCK = [
    sys.executable,
    "-c",
    (
        "from ipykernel.iostream import OutStream; OutStream.flush_interval = 0.01; "
        "from runpy import run_module; run_module('ipykernel_launcher', run_name='__main__')"
    ),
    "-f",
    "{connection_file}",
]
#: Without -E and -P, so that Python's variables and the notebook's folder have effect.
LOOSE = [part for part in argv_for("safe") if part not in ("-E", "-P")]
ARGVS = {"safe": argv_for("safe"), "unsafe": UNSAFE, "stock": STOCK, "loose": LOOSE}
#: A cell's class that records its subscripts and its subclasses; ``names()`` returns the records.
RECORDER = """
class Base:
    seen = []
    def __class_getitem__(cls, item):
        cls.seen.append(item)
        return cls
    def __init_subclass__(cls, **_):
        Base.seen.append(getattr(cls, "leak", None))
def names(): return [x.__name__ for x in Base.seen if x is not None and x is not int]
"""
VARIABLES = ("CANARY", "AWS_SECRET_ACCESS_KEY", "OPENAI_API_KEY")


class Prey:
    """A world with one secret in many places. The file ``mark`` must not be made by anybody."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.token = f"canary-{secrets.token_hex(12)}"
        self.mark = world.home / "mark"
        home = world.home
        self.secret = home / ".ssh" / "id_rsa"
        self.places = {
            "ssh": self.secret,
            "aws": home / ".aws" / "credentials",
            "dotenv": world.work / ".env",
            "named": home / "Documents" / f"{self.token}.txt",
            "script": world.work / f"{self.token}.py",
            "server": world.root / "run" / "jpserver-1.json",
        }
        for path in self.places.values():
            path.parent.mkdir(exist_ok=True)
            world.give(path.parent)
            path.write_text(f"KEY = '{self.token}'\n")
            world.give(path)

    @property
    def environment(self) -> dict[str, str]:
        """The variables of the kernel's own environment, which have the secret."""
        return dict.fromkeys(VARIABLES, self.token)

    def module(self, name: str) -> str:
        """Return a module's source, which writes to ``mark`` when it is run."""
        return f"open({str(self.mark)!r}, 'a').write({name!r} + '\\n')\n"


class Door:
    """A kernel under attack, with the requests that attacks use."""

    def __init__(self, kernel: Kernel, prey: Prey, argv: list[str]) -> None:
        self.kernel, self.prey, self.argv = kernel, prey, argv
        self.secret, self.mark, self.token = str(prey.secret), str(prey.mark), prey.token

    def run(self, code: str, **extra: Any) -> tuple[dict, list[dict]]:
        """Run a cell."""
        return self.kernel.run(code, **extra)

    def said(self, code: str) -> str:
        """Return what a cell prints."""
        return reading.stream(self.run(code)[1])

    def read(self, place: str) -> None:
        """Run cells that print the file at one of the prey's places."""
        path = str(self.prey.places[place])
        self.run(f"print(open({path!r}).read())")
        self.run(f"import os; print(os.read(os.open({path!r}, os.O_RDONLY), 100))")

    def open_comm(self, **content: Any) -> None:
        """Open a comm on shell; return when the kernel has handled it."""
        opened = {"comm_id": "c", "target_name": "t", "data": {}} | content
        self.kernel.until_idle(self.kernel.send("comm_open", opened))

    def value(self, expression: str, name: str = "x", **extra: Any) -> dict:
        """Return the result of one user expression."""
        extra = {"user_expressions": {name: expression}, **extra}
        return self.run("None", **extra)[0].get("user_expressions", {}).get(name, {})

    def ask(self, kind: str, channel: str = "shell", /, **content: Any) -> dict:
        """Return the content of the reply to a request; raises TimeoutError after 30 s.

        Stock ipykernel imports jedi at its first completion, which takes seconds under load.
        """
        mid = self.kernel.send(kind, content, channel)
        return self.kernel.reply(mid, channel, 30)["content"]

    def debug(self, command: str, **arguments: Any) -> list[dict]:
        """Send a debugger's request, after ``initialize``, on control and shell; return replies.

        A kernel without a debugger does not reply. The reply to a request sent after it ends the
        wait.
        """
        places = {"pathFormat": "path", "linesStartAt1": True, "columnsStartAt1": True}
        client = {"clientID": "t", "adapterID": "", **places}
        replies = []
        for channel in ("control", "shell"):
            for seq, name, told in ((1, "initialize", client), (2, command, arguments)):
                request = {"type": "request", "seq": seq, "command": name, "arguments": told}
                asked = self.kernel.send("debug_request", request, channel)
            behind, heard = self.kernel.send("kernel_info_request", {}, channel), None
            while heard != behind:
                message = self.kernel.recv(channel)
                heard = message["parent_header"].get("msg_id")
                if heard == asked:
                    replies.append(message["content"])
        return replies

    def complete(self, code: str) -> list[str]:
        """Press Tab at the end of ``code``."""
        return self.ask("complete_request", code=code, cursor_pos=len(code)).get("matches", [])

    def recorded(self, code: str, cell: str = "") -> bool:
        """Press Tab at the end of ``code``; return whether that ran code of a cell's class."""
        self.run(RECORDER + cell)
        self.complete(code)
        return "'" in self.value("names()")["data"]["text/plain"]

    def inspect(self, code: str, detail: int = 1) -> str:
        """Return the help for ``code``."""
        content = self.ask("inspect_request", code=code, cursor_pos=len(code), detail_level=detail)
        return json.dumps(content.get("data", {}))

    def history(self, kind: str, **content: Any) -> str:
        """Return the reply to a request for history, as text."""
        asked = {"hist_access_type": kind, "output": False, "raw": True} | content
        return str(self.ask("history_request", **asked))

    def forge(self, change: Callable[[list[bytes]], object]) -> bool:
        """Sign a cell, ``change`` the frames, send them; return whether the cell ran."""
        session = self.kernel.session
        content = {"code": "print('FOR' + 'GED')", "silent": False}
        made = (session.msg_header("execute_request"), {}, {}, content)
        parts = [session.pack(part) for part in made]
        frames = [b"<IDS|MSG>", session.sign(parts), *parts]
        change(frames)
        self.kernel.shell.send_multipart(frames)
        self.run("None")
        return "FORGED" in self.heard()

    def heard(self) -> str:
        """Return all that the front end received, after waiting for messages on their way."""
        # Stock ipykernel holds back what was printed for 200 ms.
        while self.kernel.iopub.poll(400 if self.argv == STOCK else 60):
            self.kernel.recv("iopub")
        return "\n".join(json.dumps(_text(msg)) for _, msg in self.kernel.log)

    def loot(self, said: object) -> list[str]:
        """Return the signs of success: the attack's own result, messages with secrets, the mark."""
        found = [f"it got {said!r}"[:300]] if said else []
        heard = self.heard()
        found += ["the secret reached the front end"] if self.token in heard else []
        found += ["the key reached the front end"] if self.kernel.info["key"] in heard else []
        if self.prey.mark.exists():
            found.append(f"marked by {self.prey.mark.read_text()[:100]!r}")
            self.prey.mark.unlink()
        self.kernel.log.clear()
        return found

    def answers(self) -> bool:
        """Return whether the kernel still runs cells, within 5 seconds."""
        began = time.monotonic()
        reply, _ = self.run("6 * 7")
        return reply["status"] == "ok" and time.monotonic() - began < 5


def _text(msg: dict) -> dict:
    return {part: msg[part] for part in ("metadata", "content")}


def wait_ready(kernel: Kernel) -> Kernel:
    """Wait until any kernel, also stock ipykernel, runs cells. Raises TimeoutError."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and kernel.proc.poll() is None:
        mid = kernel.send("kernel_info_request", {})
        try:
            kernel.reply(mid, timeout=1)
            kernel.until_idle(mid, timeout=0.5)
        except TimeoutError:
            continue
        return kernel
    raise TimeoutError(kernel.stderr())


def module_beside_notebook(name: str) -> Callable[[Prey], dict[str, Any]]:
    """Return a preparation that puts a module into the notebook's folder, to shadow a real one."""

    def prepare(prey: Prey) -> dict[str, Any]:
        prey.world.write(f"{name}.py", prey.module(name))
        return {}

    return prepare


def cause_more_imports(door: Door) -> None:
    """Send requests for which a kernel imports more modules than at its start."""
    door.run("%time 1")
    door.ask("is_complete_request", code="%time 1")
    door.ask("complete_request", code="import zm", cursor_pos=9)


def after_other_kernels(policy: str) -> Callable[[Prey], dict[str, Any]]:
    """Return a preparation that runs a secret cell in kernels that end before the attack."""

    def prepare(prey: Prey) -> dict[str, Any]:
        for kind in (policy, "stock"):
            kernel = wait_ready(Kernel(ARGVS[kind], world=prey.world))
            kernel.run(f"key = '{prey.token}'")
            kernel.close()
        return {}

    return prepare
