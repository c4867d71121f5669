import sqlite3
import pandas as pd
df = pd.DataFrame({"a": range(10)})
with sqlite3.connect("work/pandas.db") as db:
    df.to_sql("t", db, index=False, if_exists="replace")
    assert pd.read_sql("select sum(a) s from t", db).s[0] == 45
