"""How much the scratch folder holds: a walk over hostile folders in bounded steps.

- ``Scratch`` walks the folders in steps, and knows what a cell is to blame for.
- ``ScratchWatch`` has it look in a thread, because a guest can lock its folders. The monitor owns
  one.
- ``removed_by`` finds files and folders that processes keep after they were removed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import random
import re
import stat
import time
from itertools import chain, islice
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from cellblock.backends.plan import scratch_end
from cellblock.descriptors import closing, open_folder
from cellblock.host.limits.processes import MAX_PROCESSES
from cellblock.host.limits.reading import Reading
from cellblock.host.services.changes import MOST_ENTRIES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence


#: Entries of the walk that one look takes, some 4 µs each.
ENTRIES: Final = 4_000
#: Bytes that are gone from the disk without having been found in the folders, from which on the
#: whole folder is walked at once; or this part of the limit, if that is more.
UNFOUND = 16 << 20
UNFOUND_PART = 8
#: Entries that such a walk takes, and how many such walks there are in one look.
AT_ONCE = 100_000
WALKS_AT_ONCE = 4
#: Most looks from one search for unfound bytes (walks at once) to the next. The number begins at 1
#: in each cell, and doubles with each search.
MOST_WAITED: Final = 64
#: How many times as long as asking for removed files took nobody asks again.
ASK_PART: Final = 20
#: Removed folders that a session may keep. When a process ends it frees those that it keeps, which
#: takes 2 to 3 ms each on ext4, and no signal cuts that short. Honest programs keep a handful.
MOST_REMOVED: Final = 1_000
#: What is forgiven at most, as a multiple of the size at which a cell is killed at once.
MOST_FORGIVEN: Final = 4
#: Bytes that an entry counts as at least, because very many empty files fill a disk, too.
LEAST: Final = 4_096
#: Levels of folders that are followed. Deeper folders count as too much.
DEEPEST: Final = 64
#: Folders that a walk remembers in order to enter them. More count as too much.
MOST_FOLDERS: Final = 100_000
#: Bytes that count as too much whatever the limit is.
ENDLESS: Final = 2**60
#: Bytes of a block in ``st_blocks`` (stat(2)).
_BLOCK: Final = 512


#: Why a cell is stopped: too many bytes ("scratch"), entries, removed folders or levels of folders,
#: or folders that can't be measured ("locked").
Excess = Literal["deep", "files", "folders", "locked", "scratch"]


class Removed(NamedTuple):
    """The removed files and folders that processes keep, at most."""

    bytes: int = 0
    #: Removed folders, and the folders in which these and the removed files were.
    folders: int = 0


class ForksFolder(NamedTuple):
    """The folder of a fork, which lies in its parent's scratch folder, by name and identity."""

    name: str
    device: int
    inode: int


class Scratch:
    """The bytes on disk beneath ``folders`` and ``layers``, together, against ``limit``.

    More than ``MOST_ENTRIES`` files in layers exceed the limit, however small they are, because
    the host lists them. A folder in ``forks`` lies in one of ``folders``, but does not count here:
    it counts for its own fork, whose monitor measures it. If a cell moves such a folder away, the
    folder is no longer known by its name, and counts here.

    If a folder was too full before a cell, the cell is to blame only if it grows further;
    otherwise no cell could clear it up. A walk finds out how full the folder was. Bytes that the
    disk gained during that walk are not forgiven, because the cell may have written them.

    A cell could move files so that the walk misses them, or keep removed files open. So the used
    space of the file system is compared with what the walk found. The difference alone proves
    nothing, because other programs write there as well. But if it is large, the folders are walked
    at once, each time in another order. For bytes that are still not found, ``removed`` is called,
    which looks for removed files. It is also called while the file system has many more files and
    folders than before, because removed folders take little space, but freeing them takes long.
    """

    def __init__(
        self,
        folders: Sequence[str],
        limit: int | None,
        layers: Sequence[str] = (),
        removed: Callable[[], Removed] = Removed,
        forks: Callable[[], frozenset[ForksFolder]] = frozenset,
    ) -> None:
        self._folders = folders
        self._layers = layers
        self._removed = removed
        self._forks = forks
        self._places = (*folders, *layers)
        self.limit = 2 * ENDLESS if limit is None else limit
        #: Entries of layers, counted by this walk so far and by the last walk.
        self._counted_files = self._files = 0
        #: The bytes that were there when the cell began; None until a walk has found that out.
        self._floor: int | None = 0
        #: ``size`` when what was there was last forgiven.
        self._size_forgiven = 0
        #: Bytes in use on the file systems then.
        self._used_forgiven = 0
        #: How many more bytes the file systems have in use since then, as of the last look.
        self._gained = 0
        self._walk: Iterator[int] | None = None
        self._counted = 0
        #: The bytes in the folders, as far as they are known.
        self.size = 0
        #: Whether the last complete walk found more than the one before.
        self.grew = False
        #: Bytes of the file systems in use beside those that were found: the least that was seen.
        self._beside = _used(self._places)
        #: The least number of files and folders that the file systems were seen to have.
        self._least_entries = _entries_used(self._places)
        #: Bytes of removed files when these were last asked for, but no more than are unfound now.
        self._nameless = 0
        #: Removed folders when these were last asked for, but no more than the file systems gained.
        self._removed_folders = 0
        #: When ``removed`` may be called again (``time.monotonic``).
        self._ask_due = 0.0
        #: Entries read so far, which shows whether a look makes progress.
        self.entries = 0
        #: Looks to wait until the next walk at once, and how many that were the last time.
        self._wait = 0
        self._waited = 0

    def begin(self) -> None:
        """Begin a cell, which is to blame for what comes from now on."""
        self._floor = 0
        self._wait = self._waited = self._removed_folders = 0
        self._ask_due = 0.0
        if self.size > self.limit:
            self.forgive()

    def forgive(self) -> None:
        """Forgive what is there now. The next walk finds out how much that is."""
        self._floor = self._walk = None
        self._size_forgiven = self.size
        self._used_forgiven = _used(self._places)
        self._gained = 0

    def look(self) -> None:
        """Go on with the walk, or begin the next."""
        if self._floor is None:
            self._step(AT_ONCE)  # the sooner it ends, the less can be written meanwhile
        elif self._unfound() <= max(UNFOUND, min(self.limit, ENDLESS) // UNFOUND_PART):
            self._step(ENTRIES)
        elif self._wait > 0:
            self._wait -= 1
            self._step(ENTRIES)
        else:
            self._search()
        if time.monotonic() >= self._ask_due:
            self._ask_removed()

    def _search(self) -> None:
        """Walk at once, several times if bytes stay unfound; then look for removed files.

        A walk under way is completed first. If each search began another walk, one of more than
        ``AT_ONCE`` entries would never be completed.
        """
        largest_size = 0
        for _ in range(WALKS_AT_ONCE):
            self._step(AT_ONCE)
            largest_size = max(largest_size, self.size)
            if self._unfound() <= UNFOUND or self.full or self._walk is not None:
                break
        self.size = max(self.size, largest_size)
        self._ask_removed()
        self._waited = min(max(1, 2 * self._waited), MOST_WAITED)
        self._wait = self._waited

    def _ask_removed(self) -> None:
        """Call ``removed`` if there may be many removed files or folders, and count them."""
        lacking = self._unfound() + self._nameless
        gained = self._gained_entries()
        if lacking <= UNFOUND and gained <= MOST_REMOVED:
            removed = Removed()
        else:
            began = time.monotonic()
            removed = self._removed()
            ended_at = time.monotonic()
            self._ask_due = ended_at + ASK_PART * (ended_at - began)
        nameless = min(lacking, removed.bytes) if lacking > UNFOUND else 0
        self.size += nameless - self._nameless
        self._nameless, self._removed_folders = nameless, min(gained, removed.folders)

    def _gained_entries(self) -> int:
        """Return how many files and folders the file systems have gained since they had least.

        If a file system does not count them there may be any number.
        """
        entries = _entries_used(self._places)
        if entries is None or self._least_entries is None:
            return ENDLESS
        self._least_entries = min(self._least_entries, entries)
        return entries - self._least_entries

    def _unfound(self) -> int:
        """Return how many bytes the file systems have gained that were not found in the folders."""
        return _used(self._places) - self._beside - self.size

    def _step(self, entries: int) -> None:
        """Go on with the walk for so many entries, or begin one; take its result at its end."""
        if self._walk is None:
            forks = self._forks()
            own = (_sizes(folder, forks) for folder in self._folders)
            walks = (*own, *map(self._staged_sizes, self._layers))
            self._walk = chain.from_iterable(walks)
            self._counted = 0
            self._counted_files = 0
        steps = 0
        for size in islice(self._walk, entries):
            self._counted += size
            self.entries += 1
            steps += 1
        total = max(self._counted, self._counted_files * self.limit // MOST_ENTRIES)
        self._files = max(self._files, self._counted_files)
        used = _used(self._places)
        self._gained = used - self._used_forgiven
        if steps == entries:
            self.size = max(self.size, total)
            return
        self._files = self._counted_files
        beside = used - total
        self._beside = min(self._beside, beside)
        self._nameless = min(self._nameless, beside - self._beside)
        size = total + self._nameless
        self.grew = size > self.size
        self.size = size
        self._walk = None
        if self._floor is None:
            self._ask_removed()
            gained = max(0, self._gained - UNFOUND)
            # Bounded, because a cell can move its files so that a walk finds them many times.
            most = MOST_FORGIVEN * scratch_end(self.limit)
            self._floor = min(self.size, max(self._size_forgiven, self.size - gained), most)

    def _staged_sizes(self, folder: str) -> Iterator[int]:
        for size in _sizes(folder):
            self._counted_files += 1
            yield size

    @property
    def why(self) -> Excess:
        """What there is too much of, if ``full``."""
        if self._removed_folders > MOST_REMOVED:
            return "folders"
        if self._files > MOST_ENTRIES:
            return "files"
        return "deep" if self.limit < ENDLESS <= self.size else "scratch"

    @property
    def full(self) -> bool:
        """Whether there is too much in the folders, for which the cell is to blame."""
        if self._removed_folders > MOST_REMOVED:
            return True
        if self._floor is None:
            # What was there before the cell is not known yet. Blame the cell only for more than the
            # disk had room for between the limit and the size at which it is killed at once.
            room = scratch_end(self.limit) - self.limit
            return self.size > self.limit and self._gained > room
        return self.size > max(self.limit, self._floor)

    @property
    def is_past_forgiving(self) -> bool:
        """Whether the folders hold so much that every cell would be stopped, whatever it does."""
        return self.size > MOST_FORGIVEN * scratch_end(self.limit)

    @property
    def far(self) -> bool:
        """Whether there is so much that waiting for the cell to end would make it worse."""
        if self._removed_folders > MOST_REMOVED:
            return True
        return self.full and self.size > scratch_end(max(self.limit, self._floor or 0))


#: Seconds that the event loop waits for a look that it has begun. A look takes 16 ms at most,
#: unless the whole folder is walked at once or something holds it up.
PATIENCE: Final = 0.02
#: A folder counts as one that can't be measured if for this many seconds, and at this many looks, a
#: look reads fewer entries than these. A slow disk reads 200 entries a second.
STUCK = 10.0
STUCK_LOOKS = 5
STUCK_ENTRIES = 500


class Found(NamedTuple):
    """The result of a look at the scratch folder."""

    size: int = 0
    grew: bool = False
    #: What there is too much of, or None; and whether waiting would make it worse.
    excess: Excess | None = None
    far: bool = False
    #: Whether every cell would be stopped.
    is_past_forgiving: bool = False


class ScratchWatch:
    """Looks at the scratch folder in a thread, because a guest can lock its folders.

    Removing a folder in which millions of names were looked up is a single call of the OS kernel.
    It takes half a minute, can't be killed, and keeps the folder around it locked. So each look has
    a thread, one at a time, and nothing else touches ``scratch`` meanwhile. The result of the last
    look counts until the next one is done. If hardly an entry is read for ``STUCK`` seconds, the
    folder can't be measured, and the cell is stopped as for a folder that is too full.
    """

    def __init__(self, scratch: Scratch, clock: Callable[[], float]) -> None:
        self._scratch = scratch
        self._clock = clock
        self._reading = Reading[Found]()
        #: Calls of ``scratch`` that the next look makes first, in its thread.
        self._first: list[Callable[[], None]] = []
        #: Whether a cell began after the look under way, for whose result it is not to blame then.
        self._late = False
        self.found = Found()
        #: How many looks were asked for since the one under way made progress, how many entries it
        #: had read then, and when that was.
        self._unanswered = 0
        self._entries = 0
        self._since = 0.0

    def begin(self) -> None:
        """Begin a cell, which is to blame for what comes from now on."""
        self._first = [self._scratch.begin]
        self._forget()

    def forgive(self) -> None:
        """Forgive what is there at the next look."""
        self._first.append(self._scratch.forgive)
        self._forget()

    def _forget(self) -> None:
        self._late = True
        self._unanswered = 0
        self.found = self.found._replace(excess=None, far=False)

    def look(self) -> Found:
        """Look, and return the result; that of the look before, if this one takes its time."""
        if not self._reading.is_under_way:
            self._take_answer()
            self._begin_look()
        if self._take_answer():
            self._unanswered = 0
        elif self._is_stuck() and self._scratch.limit < ENDLESS:
            self.found = self.found._replace(excess="locked")
        return self.found

    def _begin_look(self) -> None:
        first = self._first
        self._first = []
        self._late = False

        def look() -> Found:
            scratch = self._scratch
            for prepare in first:
                prepare()
            scratch.look()
            excess = scratch.why if scratch.full else None
            past = scratch.is_past_forgiving
            return Found(scratch.size, scratch.grew, excess, scratch.far, past)

        self._reading.begin(look, PATIENCE)

    def _take_answer(self) -> bool:
        if (answer := self._reading.take()) is None:
            return False
        self.found = answer._replace(excess=None, far=False) if self._late else answer
        return True

    def _is_stuck(self) -> bool:
        """Return whether the look under way has read hardly anything for long."""
        now_seconds = self._clock()
        entries = self._scratch.entries
        if not self._unanswered or entries >= self._entries + STUCK_ENTRIES:
            self._unanswered = 0
            self._entries = entries
            self._since = now_seconds
        self._unanswered += 1
        return self._unanswered > STUCK_LOOKS and now_seconds - self._since >= STUCK

    @property
    def is_under_way(self) -> bool:
        """Whether the last look has not ended yet."""
        return self._reading.is_under_way

    def take(self) -> Found:
        """Return the last result, also that of a look that has ended since."""
        self._take_answer()
        return self.found

    @property
    def is_filling(self) -> bool:
        """Whether the folder grows, and is more than half full."""
        return self.found.grew and self.found.size > self._scratch.limit // 2


def _sizes(folder: str, forks: Collection[ForksFolder] = ()) -> Iterator[int]:
    """Yield the bytes on disk of each entry beneath ``folder``, but not of those in ``forks``.

    Each level is entered by the descriptor of the one above, so that a folder which is moved, or
    replaced by a link, leads nowhere else.
    """
    #: For each level, its descriptor and the folders in it that were not entered yet.
    stack: list[tuple[int, list[str]]] = []
    waiting = 0
    name = folder
    try:
        while True:
            try:
                fd = open_folder(name, stack[-1][0] if stack else None)
            except PermissionError:
                yield ENDLESS  # cells took rights away meanwhile, so that nobody could look
                return
            except OSError:
                fd = -1  # the folder is gone
            if fd >= 0:
                folders = list[str]()
                stack.append((fd, folders))
                with contextlib.suppress(OSError):
                    # From a folder's time of access, a cell could see how far the walk is.
                    fcntl.fcntl(fd, fcntl.F_SETFL, os.O_NOATIME)
                yield from _entries(fd, folders, forks if len(stack) == 1 else ())
                waiting += len(folders)
                random.shuffle(folders)
            while stack and not stack[-1][1]:
                os.close(stack.pop()[0])
            if not stack:
                return
            if waiting > MOST_FOLDERS or len(stack) > DEEPEST:
                yield ENDLESS
                return
            waiting = waiting - 1
            name = stack[-1][1].pop()
    finally:
        for fd, _ in stack:
            os.close(fd)


def _entries(fd: int, folders: list[str], forks: Collection[ForksFolder]) -> Iterator[int]:
    """Yield the bytes on disk of each entry of a folder, and add the names of its folders.

    What can't be looked at though it is there, counts as ENDLESS.
    """
    with contextlib.suppress(FileNotFoundError), os.scandir(fd) as dir_entries:
        for entry in dir_entries:
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            except OSError:
                yield ENDLESS
                return
            links = max(1, status.st_nlink)
            if stat.S_ISDIR(status.st_mode):
                subfolder = ForksFolder(entry.name, status.st_dev, status.st_ino)
                if subfolder not in forks:
                    folders.append(entry.name)
                links = 1
            yield max(LEAST, status.st_blocks * _BLOCK // links)


def _systems(folders: Iterable[str]) -> Iterator[os.statvfs_result]:
    """Return the file systems that these folders are on, each once."""
    systems = dict[int, os.statvfs_result]()
    for folder in folders:
        with contextlib.suppress(OSError):
            system = os.statvfs(folder)
            systems[system.f_fsid] = system
    return iter(systems.values())


def _used(folders: Iterable[str]) -> int:
    """Return the bytes in use of the file systems that these folders are on."""
    return sum((each.f_blocks - each.f_bfree) * each.f_frsize for each in _systems(folders))


def _entries_used(folders: Iterable[str]) -> int | None:
    """Return how many files and folders the file systems of these folders have.

    A removed one counts until the last process that keeps it has let it go. Return None if one of
    the file systems does not count them, such as Btrfs.
    """
    systems = tuple(_systems(folders))
    if not all(each.f_files for each in systems):
        return None
    return sum(each.f_files - each.f_ffree for each in systems)


#: Finds in /proc/PID/maps the mapped files that were removed: their inodes and last names.
_REMOVED_MAPPING: Final = re.compile(rb"^\S+ \S+ \S+ \S+ (\d+) +(/.*) \(deleted\)$", re.MULTILINE)


#: Bytes that are read at once.
_READ_SIZE: Final = 1 << 16
#: How many bytes of lists of mappings, and how many descriptors, one search for removed files reads
#: at most; that takes a quarter of a second. A cell can have a hundred thousand times as much.
MOST_MAPPED: Final = 16 << 20
MOST_OPENED: Final = 20_000
#: How many parts of a removed file's path count as one removed folder. Most of the folders are
#: still there: a package that is replaced while it is in use has some hundred files, eight folders
#: deep.
PARENTS_PART: Final = 10


def removed_by(pids: Iterable[int], largest: int | None, folders: Iterable[str]) -> Removed:
    """Return the removed files and folders that processes keep open, mapped or as working folder.

    Only those that were last beneath one of ``folders`` count: a library that the user replaces
    while a cell uses it was not made by the cell. The size of a file that is mapped, and neither
    open nor run, is unknown, so it counts as the ``largest`` that a file may be. Processes that
    this user may not look into count nothing. If looking would take too long, the bytes are
    ``ENDLESS``, and the folders are those of some of the processes, others each time.

    A removed file or folder keeps the folders that it was in, which may be removed as well; nobody
    can ask which of them are. So a removed folder counts as often as its path has parts beneath
    ``folders``, and a removed file counts for a part of those (``PARENTS_PART``).
    """
    beneath = tuple(os.fsencode(f"{os.path.realpath(folder)}/") for folder in folders)
    order = list(pids)
    random.shuffle(order)
    opened = dict[tuple[int, int], int]()
    depths = dict[tuple[int, int], int]()
    budget = MOST_OPENED
    for pid in order:
        links = _links(pid)
        for link in links[: max(0, budget)]:
            with contextlib.suppress(OSError):
                status = os.stat(link)
                if status.st_nlink or not (depth := _depth_of(link, beneath)):
                    continue
                file = status.st_dev, status.st_ino
                if stat.S_ISDIR(status.st_mode):
                    depths[file] = depth
                else:
                    opened[file] = status.st_blocks * _BLOCK
                    depths[file] = (depth - 1) // PARENTS_PART
        budget -= len(links)
    is_all = budget >= 0
    mapped = dict[int, int]()
    budget = MOST_MAPPED
    for pid in order:
        maps = _maps(pid, budget)
        for inode, name in _REMOVED_MAPPING.findall(maps):
            if depth := _depth(name, beneath):
                mapped[int(inode)] = (depth - 1) // PARENTS_PART
        budget -= len(maps)
        if budget < 0:
            is_all = False
            break
    closed = mapped.keys() - {inode for _, inode in opened}
    removed_bytes = sum(opened.values()) + len(closed) * (ENDLESS if largest is None else largest)
    kept_folders = sum(depths.values()) + sum(mapped[inode] for inode in closed)
    return Removed(removed_bytes if is_all else ENDLESS, kept_folders)


def _links(pid: int) -> list[str]:
    """Return the links in /proc to a process's open files, program and working folders, shuffled.

    Each thread may have a working folder of its own. The first thread shows no files after it has
    ended, even if others go on.
    """
    links = list[str]()
    with contextlib.suppress(OSError):
        tasks = [f"/proc/{pid}/task/{task}" for task in os.listdir(f"/proc/{pid}/task")]
        links += (f"{task}/cwd" for task in tasks)
        for task in tasks[:MAX_PROCESSES]:
            with contextlib.suppress(OSError):
                if fds := os.listdir(f"{task}/fd"):
                    # The file of a program that unmaps itself is kept by the link exe alone.
                    links += (f"{task}/exe", *(f"{task}/fd/{fd}" for fd in fds))
                    break
    random.shuffle(links)
    return links


def _depth_of(link: str, beneath: Sequence[bytes]) -> int:
    """Return how deep, in parts of its path, the target of a link in /proc is in these folders.

    Return 0 if it is beneath none of them, and ``ENDLESS`` if the path is too long for the OS
    kernel to tell. Raises OSError.
    """
    try:
        return _depth(os.readlink(os.fsencode(link)), beneath)
    except OSError as exc:
        if exc.errno == errno.ENAMETOOLONG:
            return ENDLESS
        raise


def _depth(path: bytes, beneath: Sequence[bytes]) -> int:
    depths = (path.count(b"/", len(each)) + 1 for each in beneath if path.startswith(each))
    return max(depths, default=0)


def _maps(pid: int, most: int) -> bytes:
    """Return a process's list of mappings, cut after about ``most`` bytes.

    The first thread shows none after it has ended, even if others go on.
    """
    with contextlib.suppress(OSError):
        for task in islice(os.listdir(f"/proc/{pid}/task"), MAX_PROCESSES):
            with contextlib.suppress(OSError):
                if maps := _read_until(f"/proc/{pid}/task/{task}/maps", most):
                    return maps
    return b""


def _read_until(path: str, most: int) -> bytes:
    """Read a file until its end, or until more than ``most`` bytes were read. Raises OSError."""
    content = bytearray()
    with closing(os.open(path, os.O_RDONLY | os.O_CLOEXEC)) as fd:
        while len(content) <= most and (chunk := os.read(fd, _READ_SIZE)):
            content += chunk
    return bytes(content)
