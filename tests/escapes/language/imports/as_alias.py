# An alias hides the module's name.
import os as math
o = math
@@LOOT@@
