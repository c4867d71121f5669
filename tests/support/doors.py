"""A kernel with something to steal, and who looks whether it was stolen."""

from __future__ import annotations

import json
import secrets
import sys
import time
from typing import TYPE_CHECKING, Any

from support.kernels import UNSAFE, Kernel, World, argv_for

if TYPE_CHECKING:
    from collections.abc import Callable

#: Stock ipykernel and mode unsafe: where an attack that is worth its file succeeds.
STOCK = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
#: Without -E and -P, Python's variables and the notebook's folder count.
LOOSE = [part for part in argv_for("safe") if part not in ("-E", "-P")]
ARGVS = {"safe": argv_for("safe"), "unsafe": UNSAFE, "stock": STOCK, "loose": LOOSE}
VARIABLES = ("CANARY", "AWS_SECRET_ACCESS_KEY", "OPENAI_API_KEY")


class Prey:
    """A world with one secret in many places. ``mark`` is a file that nobody may make."""

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
        """What the kernel's own environment holds."""
        return dict.fromkeys(VARIABLES, self.token)

    def module(self, name: str) -> str:
        """Return a module's source: whoever runs it is marked."""
        return f"open({str(self.mark)!r}, 'a').write({name!r} + '\\n')\n"


class Door:
    """One kernel as an attack sees it."""

    def __init__(self, kernel: Kernel, prey: Prey, argv: list[str]) -> None:
        self.kernel, self.prey, self.argv = kernel, prey, argv
        self.secret, self.mark, self.token = str(prey.secret), str(prey.mark), prey.token

    def run(self, code: str, **extra: Any) -> tuple[dict, list[dict]]:
        """Run a cell."""
        return self.kernel.run(code, **extra)

    def value(self, expression: str, name: str = "x", **extra: Any) -> dict:
        """Return what one user expression came to."""
        extra = {"user_expressions": {name: expression}, **extra}
        return self.run("None", **extra)[0].get("user_expressions", {}).get(name, {})

    def ask(self, kind: str, channel: str = "shell", /, **content: Any) -> dict:
        """Return the content of the reply to a request, or nothing where none comes."""
        mid = self.kernel.send(kind, content, channel)
        try:
            return self.kernel.reply(mid, channel, 6)["content"]
        except TimeoutError:
            return {}

    def complete(self, code: str) -> list[str]:
        """Press Tab at the end of ``code``."""
        return self.ask("complete_request", code=code, cursor_pos=len(code)).get("matches", [])

    def inspect(self, code: str, detail: int = 1) -> str:
        """Return what help says of ``code``."""
        content = self.ask("inspect_request", code=code, cursor_pos=len(code), detail_level=detail)
        return json.dumps(content.get("data", {}))

    def forge(self, change: Callable[[list[bytes]], object]) -> bool:
        """Sign a cell, ``change`` the frames, send them; say whether it ran."""
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
        """Return everything that the front end received, waiting for what is on its way."""
        # Stock ipykernel holds back what was printed for 200 ms.
        while self.kernel.iopub.poll(400 if self.argv == STOCK else 60):
            self.kernel.recv("iopub")
        return "\n".join(json.dumps(_text(msg)) for _, msg in self.kernel.log)

    def loot(self, said: object) -> list[str]:
        """Return what was stolen: said by the attack, seen by the front end, or marked."""
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
        """Say whether the kernel still runs cells, soon."""
        began = time.monotonic()
        reply, _ = self.run("6 * 7")
        return reply["status"] == "ok" and time.monotonic() - began < 5


def _text(msg: dict) -> dict:
    return {part: msg[part] for part in ("metadata", "content")}


def wait_ready(kernel: Kernel) -> Kernel:
    """Return once a kernel of any make runs cells and is heard; raises TimeoutError."""
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
