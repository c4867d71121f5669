# Each of logging's styles hands the dictionary of what it formats to a template of the cell's.
import functools, logging
function = type(lambda: 0)
class Template:
    def take(self, values):
        canary(values["__globals__"].__get__(functools.update_wrapper))
        return {}
    __mod__ = __or__ = take
    def substitute(self, *_, **values): self.take(values)
    format = substitute
for sign, name in (("%", "_fmt"), ("{", "_fmt"), ("$", "_tpl"), ("%", "_defaults")):
    style = logging.Formatter(style=sign)._style if sign != "{" else logging.Formatter("{a}", style="{", validate=False)._style
    setattr(style, name, Template())
    try: style._format(function)
    except Exception as error: print(repr(error))
