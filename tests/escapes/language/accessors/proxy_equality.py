# A mapping proxy compares its own mapping with ours.
got = []
class E:
    def __eq__(self, other): got.append(other); return True
type(lambda: 0).__dict__ == E()
for d in got: print("ESCAPED", d["__globals__"])
