# A submodule bound on the package.
# unseen: what it reaches depends on what else was imported
import concurrent.futures
o = concurrent.futures.thread.os
@@LOOT@@
