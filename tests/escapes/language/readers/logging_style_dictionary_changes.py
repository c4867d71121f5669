# A record's dictionary is another when a style asks for it again.
import logging, types
class Changes(types.GenericAlias):
    def __getattribute__(self, name):
        global asked
        asked += 1
        if asked >= most:
            del Changes.__getattribute__
        return own
own, lies = {}, Changes.__dict__["__getattribute__"]
class Template(str):
    def __mod__(self, values):
        if "__subclasses__" in values:
            print("ESCAPED", values["__subclasses__"](object)[:3])
        return ""
formatter = logging.Formatter("%(message)s")
formatter._style._fmt = Template("")
for most in range(4):
    asked, Changes.__getattribute__ = 0, lies
    if most == 0:
        del Changes.__getattribute__
    try:
        formatter._style._format(Changes(type, int))
    except AttributeError:
        pass
