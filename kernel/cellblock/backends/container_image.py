"""The image of backend ``docker``: an empty one, made here without pulling anything.

Everything that a guest sees is mounted from this machine, the interpreter too. An image is needed
only because engines start nothing without one (ADR 0121). It is loaded as an archive that every
engine reads (``docker save``: manifest.json, a configuration, layers by digest).
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import tarfile
from typing import TYPE_CHECKING, Final

from cellblock.backends.container_engine import EngineError, MissingImageError, explain
from cellblock.errors import BackendError

if TYPE_CHECKING:
    from cellblock.backends.container_engine import Engine

#: What ``cellblock image build`` makes, and what is started where a policy names no image.
EMPTY: Final = "cellblock:mounted"
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
#: Seconds that the engine has to load the image.
_LOAD_SECONDS: Final = 60.0


def build(engine: Engine, name: str = EMPTY) -> str:
    """Make an empty image and return its name; replace one that has this name.

    Raises BackendError.
    """
    try:
        loaded = engine.ask("load", seconds=_LOAD_SECONDS, stdin=_archive(name))
    except (OSError, subprocess.SubprocessError) as error:
        raise BackendError(f"no image was made: {error}") from None
    if loaded.returncode:
        raise BackendError(explain(loaded.stderr.decode(errors="replace")))
    return name


def exists(engine: Engine, name: str) -> bool:
    """Whether the engine has this image. Raises BackendError where the engine does not answer."""
    try:
        engine.image_id(name)
    except MissingImageError:
        return False
    except (EngineError, OSError, subprocess.SubprocessError) as error:
        raise BackendError(f"{engine.name}: {error}") from None
    return True


def _archive(name: str) -> bytes:
    """Return the archive of an image with one layer, which holds an empty folder.

    A layer without an entry is none for some engines.
    """
    folder = tarfile.TarInfo("etc")
    folder.type, folder.mode = tarfile.DIRTYPE, 0o755
    layer = _tar((folder, b""))
    machine = os.uname().machine
    config = {
        "architecture": _ARCHITECTURES.get(machine, machine),
        "os": "linux",
        "config": {},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        "history": [{"created_by": "cellblock image build"}],
    }
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    return _tar(
        (tarfile.TarInfo("layer.tar"), layer),
        (tarfile.TarInfo("config.json"), json.dumps(config).encode()),
        (tarfile.TarInfo("manifest.json"), json.dumps(manifest).encode()),
    )


def _tar(*entries: tuple[tarfile.TarInfo, bytes]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for info, content in entries:
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return made.getvalue()
