confined = "EPERM"
machine = "x86_64"
def attack(w):
    # mov eax, 58 (vfork); syscall; test eax, eax; jnz; mov eax, 60 (exit); xor edi, edi; syscall; ret
    pop = b"\x5a"  # the return address is kept from the child
    code = pop + b"\xb8\x3a\x00\x00\x00\x0f\x05\x85\xc0\x75\x09\xb8\x3c\x00\x00\x00\x31\xff\x0f\x05\x52\xc3"
    checked(run_code(code))
