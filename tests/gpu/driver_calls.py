"""What a cell runs to use a GPU by CUDA's driver alone: no library is installed for it.

A cell gets this file's text. ``multiplied(n)`` multiplies two matrices in the GPU and returns what
came of it.
"""

import ctypes

#: One thread for each number of the product: its row is the block's, its column the thread's.
PTX = b"""
.version 6.4
.target sm_50
.address_size 64
.visible .entry matmul(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n)
{
    .reg .pred %p<2>;
    .reg .b32 %r<8>;
    .reg .f32 %f<4>;
    .reg .b64 %rd<10>;
    ld.param.u64 %rd1, [a];
    ld.param.u64 %rd2, [b];
    ld.param.u64 %rd3, [c];
    ld.param.u32 %r1, [n];
    cvta.to.global.u64 %rd1, %rd1;
    cvta.to.global.u64 %rd2, %rd2;
    cvta.to.global.u64 %rd3, %rd3;
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %tid.x;
    mov.f32 %f1, 0f00000000;
    mov.u32 %r4, 0;
next:
    setp.ge.u32 %p1, %r4, %r1;
    @%p1 bra done;
    mad.lo.u32 %r5, %r2, %r1, %r4;
    mul.wide.u32 %rd4, %r5, 4;
    add.u64 %rd5, %rd1, %rd4;
    ld.global.f32 %f2, [%rd5];
    mad.lo.u32 %r6, %r4, %r1, %r3;
    mul.wide.u32 %rd6, %r6, 4;
    add.u64 %rd7, %rd2, %rd6;
    ld.global.f32 %f3, [%rd7];
    fma.rn.f32 %f1, %f2, %f3, %f1;
    add.u32 %r4, %r4, 1;
    bra next;
done:
    mad.lo.u32 %r7, %r2, %r1, %r3;
    mul.wide.u32 %rd8, %r7, 4;
    add.u64 %rd9, %rd3, %rd8;
    st.global.f32 [%rd9], %f1;
    ret;
}
"""


class CudaError(Exception):
    """The number that a call of the driver's has answered."""


class Gpu:
    """A context of the first GPU's."""

    def __init__(self):
        self.library = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        device, self.context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuCtxCreate_v2", ctypes.byref(self.context), 0, device)

    def call(self, name, *arguments):
        """Call the driver. Raises CudaError."""
        if answer := getattr(self.library, name)(*arguments):
            raise CudaError(name, answer)

    def allocate(self, size):
        """Return the address of so many bytes in the GPU."""
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address

    def multiplied(self, left, right):
        """Return the product of two square matrices, each a list of numbers, row by row."""
        side = int(len(left) ** 0.5)
        kind = ctypes.c_float * len(left)
        size = ctypes.sizeof(kind)
        places = [self.allocate(size) for _ in range(3)]
        for place, numbers in zip(places, (left, right), strict=False):
            self.call("cuMemcpyHtoD_v2", place, kind(*numbers), ctypes.c_size_t(size))
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), PTX)
        self.call("cuModuleGetFunction", ctypes.byref(function), module, b"matmul")
        given = [*places, ctypes.c_uint(side)]
        pointers = (ctypes.c_void_p * 4)(*map(ctypes.addressof, given))
        shape = [side, 1, 1, side, 1, 1]
        self.call("cuLaunchKernel", function, *shape, 0, None, pointers, None)
        self.call("cuCtxSynchronize")
        product = kind()
        self.call("cuMemcpyDtoH_v2", product, places[2], ctypes.c_size_t(size))
        return list(product)
