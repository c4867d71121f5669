# The registry behind an abstract class.
# unseen: Python itself refuses it today
import abc, collections.abc
print("ESCAPED", collections.abc.Sized._abc_impl._abc_registry)
