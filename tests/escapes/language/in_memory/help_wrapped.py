# A signature asks what an object says that it wraps.
# unseen: nothing is handed over
class A:
    def __call__(self):
        pass
    @property
    def __wrapped__(self):
        print("asked")
        return 3
    @property
    def __signature__(self):
        print("asked too")
        return None
help(A().__call__)
try:
    help(A())
except Exception as error:
    print(error)
