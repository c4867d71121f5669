confined = "ENOTSUP"
def attack(w):
    entries = [(1, 6, -1), (2, 6, 65534), (4, 4, -1), (16, 6, -1), (32, 4, -1)]
    value = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *e) for e in entries)
    os.setxattr(w.secret, "system.posix_acl_access", value)
