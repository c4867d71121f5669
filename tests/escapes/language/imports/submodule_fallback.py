# The interpreter looks for a missing name in sys.modules.
from concurrent.futures import process
o = process.os
@@LOOT@@
