# The namespace of a module.
import sys
import json
canary(vars(json)["codecs"])
