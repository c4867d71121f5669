# searches in vain without end, each of a path that is long to look at
# ends: any
# timeout: 20
import os
deep = os.getcwd() + "/a" * 450
for number in range(20_000):
    send({"type": "not_there", "kind": "folder", "name": f"{deep}{number}"})
    send({"type": "not_there", "kind": "variable", "name": f"\x1b[31m{number}\n"})
