# An alias that goes by the name of what typing has among its globals, taken apart by copy.
import copy, typing
alias = typing.List[int]
alias._name, alias.__args__ = "__builtins__", ("open",)
canary(copy.copy(alias))
