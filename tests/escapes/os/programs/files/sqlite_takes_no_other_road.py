# A library opens by itself, not through Python: the OS kernel is asked all the same.
confined = "OperationalError: unable to open database file"
def attack(w):
    import sqlite3
    sqlite3.connect(w.outside + "/made.db").execute("create table t(a)")
