import mmap
a = mmap.mmap(-1, 1 << 20)
a.write(b"abc"); a.seek(0)
assert a.read(3) == b"abc" and a.find(b"c", 0) == 2
a.resize(1 << 21); a.flush(); a.madvise(mmap.MADV_DONTNEED); a.close()
with open("work/mapped", "w+b") as f:
    f.truncate(8192)
    with mmap.mmap(f.fileno(), 8192) as m, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as r, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_COPY) as c:
        m[:2] = b"hi"; m.flush()
        c[:2] = b"no"
        assert r[:2] == b"hi"
