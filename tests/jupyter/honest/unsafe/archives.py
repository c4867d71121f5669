import bz2, gzip, lzma, shutil, tarfile, zipfile, zlib
from pathlib import Path
top = Path("work/archives"); top.mkdir(); (top / "in").mkdir(); (top / "in/x").write_text("x" * 1000)
for kind in ("zip", "tar", "gztar", "bztar", "xztar"):
    shutil.unpack_archive(shutil.make_archive(str(top / "packed"), kind, top / "in"), top / f"out-{kind}")
    assert (top / f"out-{kind}/x").read_text() == "x" * 1000
with zipfile.ZipFile(top / "z.zip", "w", zipfile.ZIP_DEFLATED) as z:
    z.writestr("a/b", "c"); z.write(top / "in/x")
with zipfile.ZipFile(top / "z.zip") as z:
    assert z.testzip() is None; z.extractall(top / "zip")
with tarfile.open(top / "t.tar.gz", "w:gz") as t:
    t.add(top / "in", "in")
with tarfile.open(top / "t.tar.gz") as t:
    t.extractall(top / "tar", filter="data")
for module in (bz2, gzip, lzma):
    with module.open(top / "c", "wt") as f:
        f.write("x")
    assert module.open(top / "c", "rt").read() == "x"
