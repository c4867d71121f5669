"""Making images without pulling anything, as an archive that every engine loads.

Source: the image archive of ``docker save`` (manifest.json, a configuration, layers by digest).
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import stat
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from cellblock.backends import planner
from cellblock.backends.container_engine import HOLDS, LIBRARIES, Engine, Refused, meaning
from cellblock.errors import BackendError
from cellblock.policy.paths import links as found_links
from cellblock.policy.paths import within

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cellblock.backends.container_engine import Engine


# What an image of this interpreter holds: files by their names here, so that both sides agree.
#
# The interpreter, its library without what only developers run, what installers put on its path,
# what all of that links to (ldd(1)), and the system's small shared data. A library that is
# loaded by its name alone is not found this way: mounting (``images.FRAME``) has it.

#: Of the library: for developers, or another environment's packages.
_LEFT_OUT: Final = frozenset(
    {"test", "idlelib", "turtledemo", "ensurepip", "site-packages", "dist-packages"}
)
_ELSEWHERE: Final = ("/proc", "/sys")
#: Half of it all, and messages of programs that are not there.
_CATALOGUES: Final = "/usr/share/locale"
#: Loaded by the C library when a thread ends, and linked by nothing (pthread_cancel(3)).
_LOADED: Final = ("libgcc_s.so.1",)
_LINKED: Final = re.compile(r"^\s(?:\S+ => )?(/\S+) \(0x", re.MULTILINE)
#: Files that one ldd is given.
_AT_ONCE: Final = 200


def held_folders() -> tuple[str, ...]:
    """Return the roots that such an image stands for, links to them among them."""
    names = _names()
    canonical = planner.canonical([*names, os.path.realpath(sys.executable)])
    kept = [path for path in canonical if not any(within(path, other) for other in _ELSEWHERE)]
    return (*kept, *(at for at, _ in image_links()))


def image_links() -> tuple[tuple[str, str], ...]:
    """Return the links by which what is held is found, and what each says."""
    return tuple(found_links([sys.executable, *_names()]))


def files() -> Iterator[str]:
    """Yield the path of each file, folder and link to go in, once each; parents may be missing.

    Raises BackendError where ldd(1) is not there.
    """
    whole = sorted({path for root in _copied() for path in _beneath(root)})
    yield from whole
    native = [path for path in whole if path.endswith(".so") or ".so." in path]
    known = set(whole)
    for path in sorted(_contents_linked([os.path.realpath(sys.executable), *native])):
        if path not in known:
            yield path


def _names() -> list[str]:
    """Return what the interpreter needs, as it is spelled, but cellblock where it stands alone.

    That is mounted: its code has to be the host's.
    """
    ours = str(Path(__file__).resolve().parents[2])
    found = [path for path, _ in planner.SYSTEM]
    return [*found, *(path for path in planner.interpreter() if path != ours)]


def _copied() -> list[str]:
    """Return the roots that are copied, canonical."""
    library = os.path.realpath(sysconfig.get_path("stdlib"))
    program = os.path.realpath(sys.executable)
    # A prefix's whole lib folder may be the system's: of it, the library and the packages.
    prefixes = [f"{prefix}/lib" for prefix in (sys.prefix, sys.base_prefix)]
    others = [path for path in _names() if not LIBRARIES.fullmatch(path) and path not in prefixes]
    canonical = [os.path.realpath(path) for path in others if os.path.exists(path)]  # noqa: PTH110
    small = [path for path in canonical if not LIBRARIES.fullmatch(path)]
    left_out = (*_ELSEWHERE, _CATALOGUES)
    kept = [path for path in small if not any(within(path, each) for each in left_out)]
    return [library, program, *kept]


def _beneath(root: str) -> Iterator[str]:
    """Yield ``root`` and what is beneath it; links are not followed."""
    yield root
    if os.path.islink(root) or not os.path.isdir(root):  # noqa: PTH112, PTH114
        return
    is_library = root == os.path.realpath(sysconfig.get_path("stdlib"))
    with os.scandir(root) as entries:
        for entry in entries:
            if is_library and (entry.name in _LEFT_OUT or entry.name.startswith("config-")):
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from _beneath(entry.path)
            else:
                yield entry.path


def _contents_linked(binaries: list[str]) -> set[str]:
    """Return the libraries that ``binaries`` link to, by the name they are found under."""
    found: set[str] = set()
    for start in range(0, len(binaries), _AT_ONCE):
        try:
            ran = subprocess.run(  # noqa: S603 - of the system's
                ["/usr/bin/ldd", *binaries[start : start + _AT_ONCE]],
                capture_output=True,
                check=False,
                env={},
            )
        except OSError as error:
            raise BackendError(f"what the interpreter links to is not known: {error}") from None
        found.update(_LINKED.findall(ran.stdout.decode(errors="replace")))
    beside = {os.path.dirname(path) for path in found}  # noqa: PTH120
    found.update(path for path in _joined(beside, _LOADED) if os.path.exists(path))  # noqa: PTH110
    return {_where(path) for path in found}


def _joined(folders: Iterable[str], names: Iterable[str]) -> Iterator[str]:
    return (f"{folder}/{name}" for folder in folders for name in names)


def _where(path: str) -> str:
    folder, name = os.path.split(path)
    return f"{os.path.realpath(folder)}/{name}"


# Images: their names, and how the engine gets one without pulling anything.
#
# ``FRAME`` holds nothing: all of the interpreter is mounted from this machine, as it is now. The
# other holds what ``contents`` finds of this interpreter, and its name tells from what it was
# made.

#: Repository of both.
REPOSITORY: Final = "cellblock"
FRAME: Final = f"{REPOSITORY}:mounted"
#: Raised when the same interpreter would come out as another image.
_LAYOUT: Final = 1
_DIGITS: Final = 12
#: Seconds that the engine has to tell an image's id: a kernel's start waits for it.
_IMAGES_PATIENCE: Final = 2.0


def names(image: str) -> tuple[str, ...]:
    """Return what to look for, in order, for a policy's ``container_image``."""
    return (image,) if image else (own_name(), FRAME)


def identity(engine: Engine, wanted: tuple[str, ...]) -> str:
    """Return the id of the first image that is there. Raises Refused, OSError, SubprocessError."""
    for name in wanted:
        asked = engine.ask(
            "image", "inspect", "--format", "{{.Id}}", name, seconds=_IMAGES_PATIENCE
        )
        if asked.returncode == 0 and (found := asked.stdout.decode("ascii", "replace").strip()):
            return found
    raise Refused(f"no image {' or '.join(wanted)}: cellblock image build")


def own_name() -> str:
    """Return what the image of this interpreter and its packages, as they are now, is called."""
    facts = [_LAYOUT, sys.version, sys.prefix, sys.base_prefix, os.uname().machine]
    told = json.dumps([*facts, [_folder(path) for path in sys.path if path.startswith("/")]])
    return f"{REPOSITORY}:{hashlib.sha256(told.encode()).hexdigest()[:_DIGITS]}"


def _folder(path: str) -> list[object]:
    """Return what changes when something is installed there: distributions, with their versions."""
    try:
        entries = os.listdir(path)  # noqa: PTH208 - start-up
    except OSError:
        return [path]
    return [path, sorted(name for name in entries if name.endswith((".dist-info", ".egg-info")))]


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
    name = name or (FRAME if mounted else own_name())
    held = () if mounted else held_folders()
    try:
        with tempfile.TemporaryFile() as layer:
            write_layer(layer, () if mounted else files(), links=not base)
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
            for at, target in image_links():
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
        _put(engine, container, _linked(image_links()))
    except BackendError:
        for link in image_links():
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
