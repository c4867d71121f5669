import dbm
with dbm.open("work/any-dbm", "c") as db:
    db["a"] = "1"
import shelve
with shelve.open("work/shelf") as shelf:
    shelf["a"] = [1, 2]
with shelve.open("work/shelf") as shelf:
    assert shelf["a"] == [1, 2]
