# A module's name in full width.
import ｏｓ as o
@@LOOT@@
