# What the old path of displays held besides.
from IPython.core import display
canary(display.os)
canary(display.mimetypes)
