"""P2: the memory of the host, by process_vm_readv."""

POLICY = "unsafe"


CODE = """
import ctypes
class Vec(ctypes.Structure):
    _fields_ = [('base', ctypes.c_void_p), ('len', ctypes.c_size_t)]
libc = ctypes.CDLL(None, use_errno=True)
target = ctypes.create_string_buffer(b'x' * 16)
here = Vec(ctypes.addressof(target), 16)
there = Vec(ctypes.addressof(target), 16)
print('GOT', libc.process_vm_readv({pid}, ctypes.byref(here), 1, ctypes.byref(there), 1, 0))
"""


def attack(door):
    said = door.said(CODE.format(pid=door.kernel.proc.pid))
    return "GOT" in said and "GOT -1" not in said
