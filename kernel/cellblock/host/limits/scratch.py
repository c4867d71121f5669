"""How much is in the scratch folder: a walk over hostile folders in bounded steps."""

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


#: Entries that one look takes, some 4 µs each.
ENTRIES: Final = 4_000
#: Bytes that are gone from the disk and not found, from which the whole folder is walked at once;
#: or this part of the limit. Entries that such a walk takes, and how many there are in one look.
UNFOUND, UNFOUND_PART = 16 << 20, 8
AT_ONCE, WALKS_AT_ONCE = 100_000, 4
#: Looks after which that is done again, where it found no more: twice as many each time.
MOST_WAITED: Final = 64
#: Times as long as it took to ask what is removed, for which nobody asks again.
ASK_PART: Final = 20
#: Removed folders that a session may keep. A process that ends frees those that it keeps, and no
#: signal cuts that short: on ext4 each takes 2 to 3 ms. Honest programs keep a handful.
MOST_REMOVED: Final = 1_000
#: What a folder is forgiven at most, in times of what kills a cell at once.
MOST_FORGIVEN: Final = 4
#: Bytes that an entry counts as at least: files without number fill a disk too.
LEAST: Final = 4_096
#: Folders within folders that are followed; what lies deeper counts as too much.
DEEPEST: Final = 64
#: Folders not yet entered that are remembered; more count as too much.
MOST_FOLDERS: Final = 100_000
#: What counts as too much whatever the limit is.
ENDLESS: Final = 2**60
#: Of ``st_blocks`` (stat(2)).
_BLOCK: Final = 512


#: What there may be too much of: folders that can't be measured, too.
Excess = Literal["deep", "files", "folders", "locked", "scratch"]


class Removed(NamedTuple):
    """What processes keep of removed files and folders, at most."""

    bytes: int = 0
    #: Folders, and those in which they and the files were.
    folders: int = 0


class ForksFolder(NamedTuple):
    """The folder of a fork, which lies in its parent's scratch folder: a name and what it names."""

    name: str
    device: int
    inode: int


class Scratch:
    """The bytes on disk beneath ``folders``, together, against ``limit``.

    What is beneath ``layers`` counts too, and each file there at least as much as makes
    ``MOST_ENTRIES`` of them too many, for the host lists them. What is in one of ``forks``, folders
    in ``folders``, counts for that fork alone, which has it looked at: as long as it is there by
    its name. Whoever moves it away has it counted.

    A folder that was too full before a cell is the cell's fault only if it grows further: else
    nobody could clear it up. A walk finds out how full it was, and what the disk gained during that
    walk is not forgiven: the cell may have written it.

    A cell could move files behind the walk's back, or have files that are in no folder any more. So
    what the file system has less of is looked at, too. That proves nothing, for others write there,
    but where more is gone than was found, the folder is walked at once, in another order each time;
    what is not found then either, ``removed`` may know. It is also asked while the file system has
    many more files and folders than it had: removed folders take little of it, and long to free.
    """

    def __init__(
        self,
        folders: Sequence[str],
        limit: int | None,
        layers: Sequence[str] = (),
        removed: Callable[[], Removed] = Removed,
        forks: Callable[[], frozenset[ForksFolder]] = frozenset,
    ) -> None:
        self._folders, self._layers, self._removed = folders, layers, removed
        self._forks = forks
        self._places = (*folders, *layers)
        self.limit = 2 * ENDLESS if limit is None else limit
        #: Entries of layers, of this walk and of the last one.
        self._counted_files = self._files = 0
        #: What there was when the cell began; None until a walk has found that out.
        self._floor: int | None = 0
        #: What was known to be there when it was forgiven, and what the disk had in use then; and
        #: what the disk has gained since.
        self._size_forgiven = self._used_forgiven = self._gained = 0
        self._walk: Iterator[int] | None = None
        self._counted = 0
        #: As far as it is known.
        self.size = 0
        #: Whether the last whole walk found more than the one before.
        self.grew = False
        #: What is used of the file systems beside what was found: the least that was seen.
        self._beside = _used(self._places)
        #: The least number of files and folders that the file systems were seen to have.
        self._least_entries = _entries_used(self._places)
        #: Of removed files, when it was last asked, and no more than the disk still lacks.
        self._nameless = 0
        #: Removed folders, when it was last asked, and no more than the file systems have gained.
        self._removed_folders = 0
        #: When it may be asked again (``time.monotonic``).
        self._ask_due = 0.0
        #: Entries read so far: says whether a look gets on.
        self.entries = 0
        #: Looks to wait until it is asked again where the rest is; how many that were last.
        self._wait, self._waited = 0, 0

    def begin(self) -> None:
        """Begin a cell, which answers for what comes."""
        self._floor = 0
        self._wait = self._waited = self._removed_folders = 0
        self._ask_due = 0.0
        if self.size > self.limit:
            self.forgive()

    def forgive(self) -> None:
        """Count what comes from now on; the next walk finds out what there is."""
        self._floor = self._walk = None
        self._size_forgiven, self._used_forgiven = self.size, _used(self._places)
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
        """Walk at once, as often as more is gone than was found; then ask for what has no name.

        A walk under way is brought to its end first: one of more than ``AT_ONCE`` entries would
        have none, if each search began another.
        """
        found = 0
        for _ in range(WALKS_AT_ONCE):
            self._step(AT_ONCE)
            found = max(found, self.size)
            if self._unfound() <= UNFOUND or self.full or self._walk is not None:
                break
        self.size = max(self.size, found)
        self._ask_removed()
        self._waited = min(max(1, 2 * self._waited), MOST_WAITED)
        self._wait = self._waited

    def _ask_removed(self) -> None:
        """Learn what is removed, where that may be much."""
        lacking = self._unfound() + self._nameless
        gained = self._gained_entries()
        if lacking <= UNFOUND and gained <= MOST_REMOVED:
            found = Removed()
        else:
            began = time.monotonic()
            found = self._removed()
            ended = time.monotonic()
            self._ask_due = ended + ASK_PART * (ended - began)
        nameless = min(lacking, found.bytes) if lacking > UNFOUND else 0
        self.size += nameless - self._nameless
        self._nameless, self._removed_folders = nameless, min(gained, found.folders)

    def _gained_entries(self) -> int:
        """Return how many more files and folders the file systems have than at the least.

        Where one does not count them there may be any number.
        """
        entries = _entries_used(self._places)
        if entries is None or self._least_entries is None:
            return ENDLESS
        self._least_entries = min(self._least_entries, entries)
        return entries - self._least_entries

    def _unfound(self) -> int:
        return _used(self._places) - self._beside - self.size

    def _step(self, entries: int) -> None:
        if self._walk is None:
            forks = self._forks()
            own = (_sizes(folder, forks) for folder in self._folders)
            walks = (*own, *map(self._staged_sizes, self._layers))
            self._walk, self._counted, self._counted_files = chain.from_iterable(walks), 0, 0
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
        self.grew, self.size, self._walk = size > self.size, size, None
        if self._floor is None:
            self._ask_removed()
            gained = max(0, self._gained - UNFOUND)
            # A cell can move what it has so that a walk finds it many times.
            most = MOST_FORGIVEN * scratch_end(self.limit)
            self._floor = min(self.size, max(self._size_forgiven, self.size - gained), most)

    def _staged_sizes(self, folder: str) -> Iterator[int]:
        for size in _sizes(folder):
            self._counted_files += 1
            yield size

    @property
    def why(self) -> Excess:
        """What there is too much of, if there is."""
        if self._removed_folders > MOST_REMOVED:
            return "folders"
        if self._files > MOST_ENTRIES:
            return "files"
        return "deep" if self.limit < ENDLESS <= self.size else "scratch"

    @property
    def full(self) -> bool:
        """Whether there is too much in it."""
        if self._removed_folders > MOST_REMOVED:
            return True
        if self._floor is None:  # what was there is not known yet; what came may be the cell's
            room = scratch_end(self.limit) - self.limit
            return self.size > self.limit and self._gained > room
        return self.size > max(self.limit, self._floor)

    @property
    def is_past_forgiving(self) -> bool:
        """Whether there is so much that every cell would be stopped, whatever it does."""
        return self.size > MOST_FORGIVEN * scratch_end(self.limit)

    @property
    def far(self) -> bool:
        """Whether there is so much that to wait would make it worse."""
        if self._removed_folders > MOST_REMOVED:
            return True
        return self.full and self.size > scratch_end(max(self.limit, self._floor or 0))


#: Seconds for which the loop waits for a look that it has begun: it takes 16 ms at most, unless the
#: whole folder is walked at once or something holds it up.
PATIENCE: Final = 0.02
#: Seconds in which a look reads fewer entries than ``STUCK_ENTRIES``, and how often it was then
#: asked for, from which the folder counts as one that can't be measured. A slow disk reads 200 a
#: second.
STUCK, STUCK_LOOKS, STUCK_ENTRIES = 10.0, 5, 500


class Found(NamedTuple):
    """What a look at the scratch folder has found."""

    size: int = 0
    grew: bool = False
    #: What there is too much of, and whether to wait would make it worse.
    excess: Excess | None = None
    far: bool = False
    #: Whether that will be so for every cell.
    is_past_forgiving: bool = False


class ScratchWatch:
    """Looks at the scratch folder in a thread, because a guest can lock its folders.

    To remove a folder in which millions of names were looked up is one call of the OS kernel's. It
    takes half a minute, can't be killed, and keeps the folder around it locked. So each look has a
    thread, one at a time, and nobody else touches ``scratch``. What the last look found counts
    until the next one is done. If hardly an entry is read for ``STUCK`` seconds, the folder can't
    be measured, and its cell is stopped, as for one without end.
    """

    def __init__(self, scratch: Scratch, clock: Callable[[], float]) -> None:
        self._scratch, self._clock = scratch, clock
        self._reading = Reading[Found]()
        #: What the next look does first.
        self._first: list[Callable[[], None]] = []
        #: Whether a cell began after the look did: it does not answer for what was before.
        self._late = False
        self.found = Found()
        #: Looks that were asked for since one got on, how far that was, and when.
        self._unanswered, self._entries, self._since = 0, 0, 0.0

    def begin(self) -> None:
        """Begin a cell, which answers for what comes."""
        self._first = [self._scratch.begin]
        self._forget()

    def forgive(self) -> None:
        """Count what comes from the next look on."""
        self._first.append(self._scratch.forgive)
        self._forget()

    def _forget(self) -> None:
        self._late, self._unanswered = True, 0
        self.found = self.found._replace(excess=None, far=False)

    def look(self) -> Found:
        """Look, and return what was found: by the last look, if this one takes its time."""
        if not self._reading.is_under_way:
            self._take_answer()
            self._begin_look()
        if self._take_answer():
            self._unanswered = 0
        elif self._is_stuck() and self._scratch.limit < ENDLESS:
            self.found = self.found._replace(excess="locked")
        return self.found

    def _begin_look(self) -> None:
        first, self._first, self._late = self._first, [], False

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
        """Return whether the look under way has read little for long, each time it was asked."""
        now, entries = self._clock(), self._scratch.entries
        if not self._unanswered or entries >= self._entries + STUCK_ENTRIES:
            self._unanswered, self._entries, self._since = 0, entries, now
        self._unanswered += 1
        return self._unanswered > STUCK_LOOKS and now - self._since >= STUCK

    @property
    def is_under_way(self) -> bool:
        """Whether the last look has not ended yet."""
        return self._reading.is_under_way

    def take(self) -> Found:
        """Return what was found, also by a look that has ended since."""
        self._take_answer()
        return self.found

    @property
    def is_filling(self) -> bool:
        """Whether the folder grows, and is more than half full."""
        return self.found.grew and self.found.size > self._scratch.limit // 2


def _sizes(folder: str, forks: Collection[ForksFolder] = ()) -> Iterator[int]:
    """Yield what each entry beneath ``folder`` takes of the disk, but for those in ``forks`` there.

    A descriptor a level, so that a folder that is moved, or made a link, leads nowhere else.
    """
    #: Of each level, its descriptor and the folders in it that are not yet entered.
    stack: list[tuple[int, list[str]]] = []
    waiting, name = 0, folder
    try:
        while True:
            with contextlib.suppress(OSError):
                fd, folders = open_folder(name, stack[-1][0] if stack else None), list[str]()
                stack.append((fd, folders))
                with contextlib.suppress(OSError):
                    # Who reads a folder's time of access would know how far the walk is.
                    fcntl.fcntl(fd, fcntl.F_SETFL, os.O_NOATIME)
                with os.scandir(fd) as found:
                    for entry in found:
                        with contextlib.suppress(OSError):  # it is gone
                            status = entry.stat(follow_symlinks=False)
                            links = max(1, status.st_nlink)
                            if stat.S_ISDIR(status.st_mode):
                                this = ForksFolder(entry.name, status.st_dev, status.st_ino)
                                if len(stack) > 1 or this not in forks:
                                    folders.append(entry.name)
                                links = 1
                            yield max(LEAST, status.st_blocks * _BLOCK // links)
                waiting += len(folders)
                random.shuffle(folders)
            while stack and not stack[-1][1]:
                os.close(stack.pop()[0])
            if not stack:
                return
            if waiting > MOST_FOLDERS or len(stack) > DEEPEST:
                yield ENDLESS
                return
            waiting, name = waiting - 1, stack[-1][1].pop()
    finally:
        for fd, _ in stack:
            os.close(fd)


def _systems(folders: Iterable[str]) -> Iterator[os.statvfs_result]:
    """Return the file systems that these are on, each once."""
    found = dict[int, os.statvfs_result]()
    for folder in folders:
        with contextlib.suppress(OSError):
            system = os.statvfs(folder)
            found[system.f_fsid] = system
    return iter(found.values())


def _used(folders: Iterable[str]) -> int:
    """Return the bytes that are taken of the file systems that these are on, each once."""
    return sum((each.f_blocks - each.f_bfree) * each.f_frsize for each in _systems(folders))


def _entries_used(folders: Iterable[str]) -> int | None:
    """Return how many files and folders those file systems have; None if one does not count them.

    As Btrfs does not. A removed one counts until the last process that keeps it has let it go.
    """
    systems = tuple(_systems(folders))
    if not all(each.f_files for each in systems):
        return None
    return sum(each.f_files - each.f_ffree for each in systems)


#: A file that is mapped and has no name any more, in /proc/PID/maps: its inode, and its last name.
_NAMELESS: Final = re.compile(rb"^\S+ \S+ \S+ \S+ (\d+) +(/.*) \(deleted\)$", re.MULTILINE)


#: Bytes that are read at once.
_PART: Final = 1 << 16
#: Bytes of lists of mappings and number of descriptors that are looked at at once: a quarter of a
#: second. A cell can have a hundred thousand times as much.
MOST_MAPPED: Final = 16 << 20
MOST_OPENED: Final = 20_000
#: Parts of a removed file's path of which one counts as a removed folder: most of them are still
#: there. A package that is replaced while it is in use has some hundred files, eight folders deep.
PARENTS_PART: Final = 10


def removed_by(pids: Iterable[int], largest: int | None, folders: Iterable[str]) -> Removed:
    """Return what processes keep of removed files and folders.

    Only what was last beneath one of ``folders`` counts: a library that the user replaces while a
    cell uses it was not made by the cell. The size of a file that is mapped, and neither open nor
    run, is unknown: it counts as the ``largest`` that there may be. Nothing for processes that this
    user may not look into; ``ENDLESS`` bytes for those that would take too long.

    Whatever is kept keeps the folders that it was in, which may be removed as well; which of them
    are, nobody can ask. So a removed folder counts as often as its path has parts there, and what
    was removed from a folder for a part of those. Of processes that would take too long some count,
    others each time.
    """
    beneath = tuple(os.fsencode(f"{os.path.realpath(folder)}/") for folder in folders)
    order = list(pids)
    random.shuffle(order)
    opened, depths = dict[tuple[int, int], int](), dict[tuple[int, int], int]()
    left = MOST_OPENED
    for pid in order:
        links = _links(pid)
        for link in links[: max(0, left)]:
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
        left -= len(links)
    is_all = left >= 0
    mapped, left = dict[int, int](), MOST_MAPPED
    for pid in order:
        maps = _maps(pid, left)
        for inode, name in _NAMELESS.findall(maps):
            if depth := _depth(name, beneath):
                mapped[int(inode)] = (depth - 1) // PARENTS_PART
        left -= len(maps)
        if left < 0:
            is_all = False
            break
    closed = mapped.keys() - {inode for _, inode in opened}
    found = sum(opened.values()) + len(closed) * (ENDLESS if largest is None else largest)
    kept_folders = sum(depths.values()) + sum(mapped[inode] for inode in closed)
    return Removed(found if is_all else ENDLESS, kept_folders)


def _links(pid: int) -> list[str]:
    """Return the links in /proc to what a process has open, runs and works in, in any order.

    Each thread may have a working folder of its own. The first thread shows nothing once it has
    ended, though others go on.
    """
    links = list[str]()
    with contextlib.suppress(OSError):
        tasks = [f"/proc/{pid}/task/{task}" for task in os.listdir(f"/proc/{pid}/task")]
        links += (f"{task}/cwd" for task in tasks)
        for task in tasks[:MAX_PROCESSES]:
            with contextlib.suppress(OSError):
                if fds := os.listdir(f"{task}/fd"):
                    # A program that unmaps itself is kept by the link exe alone.
                    links += (f"{task}/exe", *(f"{task}/fd/{fd}" for fd in fds))
                    break
    random.shuffle(links)
    return links


def _depth_of(link: str, beneath: Sequence[bytes]) -> int:
    """Return how deep what a link in /proc leads to was beneath one of some folders; else 0.

    ``ENDLESS`` where its path is too long for the OS kernel to tell. Raises OSError.
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
    """Return what a process has mapped: the beginning where that is more than ``most`` bytes.

    The first thread shows nothing once it has ended, though others go on.
    """
    with contextlib.suppress(OSError):
        for task in islice(os.listdir(f"/proc/{pid}/task"), MAX_PROCESSES):
            with contextlib.suppress(OSError):
                if maps := _read_until(f"/proc/{pid}/task/{task}/maps", most):
                    return maps
    return b""


def _read_until(path: str, most: int) -> bytes:
    """Read a file until its end, or until there is more than ``most`` of it. Raises OSError."""
    found = bytearray()
    with closing(os.open(path, os.O_RDONLY | os.O_CLOEXEC)) as fd:
        while len(found) <= most and (part := os.read(fd, _PART)):
            found += part
    return bytes(found)
