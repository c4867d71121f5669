# A pretty printer of the cell's is handed what is in the dictionary of any object.
import functools, io, pprint
class Printer(pprint.PrettyPrinter):
    def _format_namespace_items(self, items, *_):
        canary(dict(items)["__globals__"].__get__(functools.update_wrapper))
Printer()._pprint_simplenamespace(type(lambda: 0), io.StringIO(), 0, 0, {}, 0)
