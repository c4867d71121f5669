# moves what is on the channel by splice and tee, past read
# ends: any
libc = ctypes.CDLL(None, use_errno=True)
read, write = os.pipe()
for a, b in ((3, write), (read, 3), (read, 1)): libc.splice(a, None, b, None, 1 << 16, 2)
libc.vmsplice(1, None, 0, 0)
