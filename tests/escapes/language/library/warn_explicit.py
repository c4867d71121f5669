# A warning that names a file to quote.
import warnings
warnings.warn_explicit("look", UserWarning, "@@NETRC@@", 2)
