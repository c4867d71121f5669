import os, shutil, stat
from pathlib import Path
top = Path("work/copies"); (top / "a/b").mkdir(parents=True)
(top / "a/b/file").write_text("x")
shutil.copy(top / "a/b/file", top / "one"); shutil.copy2(top / "a/b/file", top / "two"); shutil.copyfile(top / "a/b/file", top / "three")
shutil.copytree(top / "a", top / "c"); shutil.move(top / "c", top / "d"); shutil.rmtree(top / "d")
os.replace(top / "one", top / "four"); (top / "four").rename(top / "five"); os.link(top / "five", top / "six"); os.symlink("five", top / "seven")
assert (top / "seven").read_text() == "x" and (top / "seven").is_symlink()
assert (top / "five").samefile(top / "six") and (top / "five").stat().st_nlink == 2
assert sorted(p.name for p in top.rglob("*")) == ["a", "b", "file", "five", "seven", "six", "three", "two"]
assert shutil.disk_usage("work").total > 0
(top / "touched").touch(); (top / "touched").touch()
(top / "five").write_text("longer"); os.truncate(top / "five", 3)
assert (top / "five").read_text() == "lon"
with open(top / "five", "r+b") as f:
    f.seek(1); f.truncate(); f.flush(); os.fsync(f.fileno()); os.posix_fallocate(f.fileno(), 0, 4096)
