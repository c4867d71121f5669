# An instance holds the warnings module.
import warnings
s = warnings.catch_warnings()._module.sys
@@LOOTS@@
