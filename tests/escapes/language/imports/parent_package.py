# The parent of an allowed submodule.
# unseen: what it reaches depends on what else was imported
import urllib.parse, IPython.display
o = urllib.request.os
@@LOOT@@
