import os, tempfile
from pathlib import Path
with tempfile.TemporaryDirectory() as folder:
    Path(folder, "below").mkdir()
    Path(folder, "below", "x").write_text("x")
with tempfile.NamedTemporaryFile("w+") as named, tempfile.TemporaryFile() as nameless, tempfile.SpooledTemporaryFile(10) as spooled:
    named.write("x"); named.flush()
    assert Path(named.name).read_text() == "x"
    nameless.write(b"x"); spooled.write(b"x" * 100)
fd, path = tempfile.mkstemp()
os.close(fd); os.unlink(path)
assert Path.home().is_dir() and os.access(tempfile.gettempdir(), os.W_OK)
