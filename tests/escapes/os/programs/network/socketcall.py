# The 32-bit call that makes all the others, through its gate: int 0x80.
confined = "EPERM"
machine = "x86_64"
def attack(w):
    # push rbx; mov eax, edi; mov ebx, esi; mov ecx, edx; int 0x80; pop rbx; ret
    code = b"\x53\x89\xf8\x89\xf3\x89\xd1\xcd\x80\x5b\xc3"
    address = mapped(4096, 3, 0x62)  # MAP_32BIT
    ctypes.memmove(address, struct.pack("III", 2, 1, 0), 12)
    checked(run_code(code, 102, 1, address))
