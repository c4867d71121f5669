import os, sqlite3
for mode in ("delete", "truncate", "persist", "memory", "wal", "off"):
    db = sqlite3.connect(f"work/{mode}.db", timeout=2)
    assert db.execute(f"pragma journal_mode={mode}").fetchone()[0] == mode
    db.execute("create table t(a integer primary key, b text)")
    with db:
        db.executemany("insert into t(b) values (?)", [(str(n),) for n in range(1000)])
    other = sqlite3.connect(f"work/{mode}.db")
    assert other.execute("select count(*) from t").fetchone()[0] == 1000
    other.close()
    for store in (0, 1, 2):
        db.execute(f"pragma temp_store={store}")
        db.execute("create temp table u as select * from t order by b desc")
        db.execute("drop table u")
    db.execute("vacuum")
    db.execute("attach database 'work/other.db' as o")
    db.close()
target = sqlite3.connect("work/backup.db")
sqlite3.connect("work/wal.db").backup(target)
assert target.execute("select count(*) from t").fetchone()[0] == 1000
db = sqlite3.connect("work/mapped.db")
db.execute("pragma mmap_size=1000000")
db.execute("create table t as select 1")
