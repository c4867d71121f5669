# Modes can't be changed; asking for what they are already is no change.
import os
from pathlib import Path
file = Path("work/mode")
file.write_text("x")
os.chmod(file, 0o666 & ~0o022)
file.chmod(file.stat().st_mode)
with file.open() as opened:
    os.fchmod(opened.fileno(), os.fstat(opened.fileno()).st_mode & 0o777)
try:
    file.chmod(0o600)
except PermissionError as error:
    assert error.filename
else:
    raise AssertionError("chmod lies")
