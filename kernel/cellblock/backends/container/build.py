"""Making images without pulling anything, as an archive that every engine loads.

Source: the image archive of ``docker save`` (manifest.json, a configuration, layers by digest).
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import stat
import subprocess
import tarfile
import tempfile
from typing import IO, TYPE_CHECKING, Final

from cellblock.backends.container import contents, images
from cellblock.backends.container.engines import Engine, meaning
from cellblock.backends.container.wanted import HOLDS
from cellblock.errors import BackendError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_MACHINES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
#: Seconds that the engine may take; it takes some three a GiB, and for a base image a network's.
_PATIENCE: Final = 1800.0
_BLOCK: Final = 1 << 20


def build(engine: Engine, *, mounted: bool = False, base: str = "", name: str = "") -> str:
    """Make an image and return its name; one of that name is replaced.

    Without a ``name`` it gets the one that kernels look for. ``mounted`` makes the one that holds
    nothing. With a ``base``, which is pulled where it is not there, the files go on top of that.
    Raises BackendError.
    """
    name = name or (images.FRAME if mounted else images.own_name())
    held = () if mounted else contents.held_folders()
    try:
        with tempfile.TemporaryFile() as layer:
            write_layer(layer, () if mounted else contents.files(), links=not base)
            if base:
                _on_base(engine, base, name, layer, held)
            else:
                _load(engine, name, layer, held)
    except (OSError, subprocess.SubprocessError) as error:
        raise BackendError(f"no image was made: {error}") from None
    return name


def exists(engine: Engine, name: str) -> bool:
    """Say whether the engine has an image. Raises BackendError where it does not answer."""
    try:
        asked = engine.ask("image", "inspect", "--format", "{{.Id}}", name)
    except (OSError, subprocess.SubprocessError) as error:
        raise BackendError(f"{engine.name}: {error}") from None
    said = asked.stderr.decode(errors="replace")
    if asked.returncode and "o such" not in said and "not " not in said:
        raise BackendError(meaning(said))
    return asked.returncode == 0


def write_layer(layer: IO[bytes], paths: Iterable[str], *, links: bool = True) -> None:
    """Write files under their names here, owned by root, readable by all, times kept.

    Times, because compiled Python files hold those of their sources. Links to what is held are left
    out where a base image has its own.
    """
    with tarfile.open(fileobj=layer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        made = set[str]()
        if links:
            for at, target in contents.image_links():
                _add_parents(tar, at, made)
                _add_link(tar, at, target)
        for path in paths:
            _add_parents(tar, path, made)
            if path not in made:
                _add(tar, path)
                made.add(path)
        if not made:
            _add_folder(tar, "etc")  # a layer without an entry is none for some engines


def _add_parents(tar: tarfile.TarFile, path: str, made: set[str]) -> None:
    parts = path.split("/")[1:-1]
    for count in range(1, len(parts) + 1):
        folder = "/" + "/".join(parts[:count])
        if folder not in made and not os.path.islink(folder):  # noqa: PTH114
            _add_folder(tar, folder)
            made.add(folder)


def _add_folder(tar: tarfile.TarFile, folder: str) -> None:
    info = tarfile.TarInfo(folder.lstrip("/"))
    info.type, info.mode = tarfile.DIRTYPE, 0o755
    tar.addfile(info)


def _add_link(tar: tarfile.TarFile, at: str, target: str) -> None:
    info = tarfile.TarInfo(at.lstrip("/"))
    info.type, info.linkname = tarfile.SYMTYPE, target
    tar.addfile(info)


def _add(tar: tarfile.TarFile, path: str) -> None:
    """Add one file or link as it is; what can't be read is left out, as it is for guests."""
    with contextlib.suppress(OSError):
        status = os.lstat(path)
        if stat.S_ISDIR(status.st_mode):
            _add_folder(tar, path)
        elif stat.S_ISLNK(status.st_mode) and ".so" not in os.path.basename(path):  # noqa: PTH119
            _add_link(tar, path, os.readlink(path))  # noqa: PTH115
        elif stat.S_ISREG((status := os.stat(path)).st_mode):  # noqa: PTH116
            info = tarfile.TarInfo(path.lstrip("/"))
            info.mode, info.mtime = status.st_mode & 0o111 | 0o644, int(status.st_mtime)
            with open(path, "rb") as file:  # noqa: PTH123
                info.size = os.fstat(file.fileno()).st_size
                tar.addfile(info, file)


# --- to the engine ----------------------------------------------------------------------------


def _load(engine: Engine, name: str, layer: IO[bytes], held: tuple[str, ...]) -> None:
    digest = _digest(layer)
    config = json.dumps(_config(digest, held)).encode()
    manifest = json.dumps(
        [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    ).encode()
    with _fed(engine, "load") as pipe, tarfile.open(fileobj=pipe, mode="w|") as tar:
        size = layer.seek(0, os.SEEK_END)
        layer.seek(0)
        for each, content, length in (
            ("layer.tar", layer, size),
            ("config.json", io.BytesIO(config), len(config)),
            ("manifest.json", io.BytesIO(manifest), len(manifest)),
        ):
            info = tarfile.TarInfo(each)
            info.size = length
            tar.addfile(info, content)


def _digest(layer: IO[bytes]) -> str:
    layer.seek(0)
    return hashlib.file_digest(layer, "sha256").hexdigest()  # type: ignore[arg-type]


def _config(digest: str, held: tuple[str, ...]) -> dict[str, object]:
    machine = os.uname().machine
    return {
        "architecture": _MACHINES.get(machine, machine),
        "os": "linux",
        "config": {"Labels": {HOLDS: json.dumps(held)}},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        "history": [{"created_by": "cellblock image build"}],
    }


def _on_base(engine: Engine, base: str, name: str, layer: IO[bytes], held: tuple[str, ...]) -> None:
    made = engine.ask("create", base, "/nothing", seconds=_PATIENCE)
    if made.returncode:
        raise BackendError(meaning(made.stderr.decode(errors="replace")))
    container = made.stdout.decode().split()[-1]
    try:
        _put_links(engine, container)
        _put(engine, container, layer)
        label = f"LABEL {HOLDS}={_quoted(json.dumps(held))}"
        done = engine.ask("commit", "--change", label, container, name, seconds=_PATIENCE)
        if done.returncode:
            raise BackendError(meaning(done.stderr.decode(errors="replace")))
    finally:
        engine.ask("rm", "--force", container)


def _put(engine: Engine, container: str, layer: IO[bytes]) -> None:
    with _fed(engine, "cp", "-", f"{container}:/") as pipe:
        layer.seek(0)
        while part := layer.read(_BLOCK):
            pipe.write(part)


def _put_links(engine: Engine, container: str) -> None:
    """Put the links in, but those that the base has a folder for."""
    try:
        _put(engine, container, _linked(contents.image_links()))
    except BackendError:
        for link in contents.image_links():
            with contextlib.suppress(BackendError):
                _put(engine, container, _linked((link,)))


def _linked(links: Iterable[tuple[str, str]]) -> IO[bytes]:
    layer, made = io.BytesIO(), set[str]()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for at, target in links:
            _add_parents(tar, at, made)
            _add_link(tar, at, target)
    return layer


def _quoted(text: str) -> str:
    """Return a text as an instruction's word, in which three characters mean something."""
    for character in '\\"$':
        text = text.replace(character, f"\\{character}")
    return f'"{text}"'


@contextlib.contextmanager
def _fed(engine: Engine, *words: str) -> Iterator[IO[bytes]]:
    """Yield what a command of the engine's reads. Raises BackendError where that fails."""
    with (
        tempfile.TemporaryFile() as said,
        subprocess.Popen(  # noqa: S603 - the engine, as it is found
            [engine.program, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=said,
            env=dict(engine.environment),
        ) as ran,
    ):
        assert ran.stdin is not None  # noqa: S101 - made so
        with contextlib.suppress(BrokenPipeError):
            yield ran.stdin
            ran.stdin.close()
        if ran.wait(_PATIENCE):
            said.seek(0)
            raise BackendError(meaning(said.read(_BLOCK).decode(errors="replace")))
