# The same through an instance attribute.
# unseen: Python itself refuses it today
from contextlib import redirect_stderr
r = redirect_stderr({})
r._stream = "modules"
with r:
    pass
o = r._old_targets[0]["os"] if r._old_targets else r.__enter__()["os"]
@@LOOT@@
