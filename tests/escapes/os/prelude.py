# What every program in programs/*/ is run behind, in the guest and unconfined alike.
import ctypes, errno, fcntl, json, mmap, os, resource, signal, socket, struct, threading, time, types
from cellblock.guest.confine import arch, libc

MACHINE = arch.current()
C = ctypes.CDLL(None, use_errno=True)
AT_FDCWD, AT_EMPTY_PATH = -100, 0x1000

def call(name, *args):
    """Make a system call by name or number, around every library; raises OSError."""
    return libc.syscall(MACHINE.numbers[name] if isinstance(name, str) else name, *args)

def prctl(option, *args):
    return libc.prctl(option, *args)

def space(data, size=0):
    """A structure in memory: bytes, or a number of zero bytes."""
    data = bytes(data) if isinstance(data, int) else data
    return ctypes.create_string_buffer(data, max(len(data), size, 1))

def name(path):
    return space(os.fsencode(path) + b"\0")

def mapped(length, prot, flags, fd=-1, offset=0):
    """mmap(2) with these very flags; returns the address."""
    return call("mmap", None, length, prot, flags, fd & 0xFFFFFFFF, offset) & (2**64 - 1)

def limited():
    """Bound memory as the policy does, so that the control shows what the bound alone misses."""
    if resource.getrlimit(resource.RLIMIT_DATA)[1] == resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_DATA, (2 << 30, 2 << 30))

def run_code(code, *args):
    """Put machine code into an executable page and call it; returns its int."""
    page = mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | 0x20, prot=7)
    page[: len(code)] = code
    where = ctypes.addressof(ctypes.c_char.from_buffer(page))
    kept.append(page)
    kind = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_long] * len(args))
    return kind(where)(*args)

kept = []

def checked(value):
    """Take a raw result of the OS kernel's: -errno raises."""
    if -4096 < value < 0:
        raise OSError(-value, os.strerror(-value))
    return value

def outcome(attack, world):
    w = types.SimpleNamespace(**world)
    os.chdir(w.writable)
    try:
        value = attack(w)
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, f"{type(error).__name__}: {error}")
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    return "held" if value is False else "reached"
