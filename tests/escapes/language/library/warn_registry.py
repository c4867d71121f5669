# The same from a frame that claims a file.
# unseen: it ends the process or breaks a module, and gets nothing
import warnings
__file__ = "@@NETRC@@"
warnings.warn("look")
