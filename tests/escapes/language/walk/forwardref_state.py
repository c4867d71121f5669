# A slot that pickling would read.
# seen_until: 3.13
import typing
state = typing.ForwardRef("1").__getstate__()
for s in state:
    for k, v in (s or {}).items():
        canary(v)
