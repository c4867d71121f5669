# A subclass chooses which name of sys is read.
from contextlib import redirect_stdout
class R(redirect_stdout):
    _stream = "modules"
r = R({})
with r:
    o = r._old_targets[0]["os"]
@@LOOT@@
