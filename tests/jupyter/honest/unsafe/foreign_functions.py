import ctypes, ctypes.util
libc = ctypes.CDLL(None)
@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int))
def order(a, b):
    return a[0] - b[0]
numbers = (ctypes.c_int * 4)(4, 1, 3, 2)
libc.qsort(numbers, 4, 4, order)
assert list(numbers) == [1, 2, 3, 4]
import cffi
ffi = cffi.FFI()
ffi.cdef("int abs(int);")
assert ffi.dlopen(None).abs(-3) == 3
