import pandas as pd
df = pd.DataFrame({"a": range(100), "b": [str(n) for n in range(100)], "c": [n / 3 for n in range(100)]})
df.to_csv("work/a.csv", index=False)
df.to_csv("work/a.csv.gz", index=False)
df.to_csv("work/a.csv.xz", index=False)
df.to_csv("work/a.zip", index=False)
for name in ("a.csv", "a.csv.gz", "a.csv.xz", "a.zip"):
    assert pd.read_csv(f"work/{name}").shape == (100, 3), name
df.to_json("work/a.json", orient="records", lines=True)
assert pd.read_json("work/a.json", lines=True).shape == (100, 3)
df.to_parquet("work/a.parquet")
assert pd.read_parquet("work/a.parquet", columns=["a"]).a.sum() == 4950
df.to_feather("work/a.feather")
assert pd.read_feather("work/a.feather").equals(df)
df.to_pickle("work/a.pkl")
assert pd.read_pickle("work/a.pkl").equals(df)
df.to_markdown and df.to_latex and df.to_string()
chunks = pd.read_csv("work/a.csv", chunksize=30, engine="python")
assert sum(len(c) for c in chunks) == 100
assert pd.read_csv("work/a.csv", memory_map=True, engine="c").shape == (100, 3)
assert pd.read_csv("work/a.csv", engine="pyarrow").shape == (100, 3)
