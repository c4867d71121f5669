import polars as pl
df = pl.DataFrame({"k": ["a", "b"] * 500, "v": range(1000)})
df.write_csv("work/p.csv")
df.write_parquet("work/p.parquet")
df.write_ndjson("work/p.ndjson")
df.write_ipc("work/p.arrow")
assert pl.read_csv("work/p.csv").height == 1000
assert pl.scan_csv("work/p.csv").select(pl.col("v").sum()).collect().item() == 499_500
assert pl.scan_parquet("work/p.parquet").filter(pl.col("k") == "a").collect().height == 500
assert pl.scan_parquet("work/p*.parquet").collect(engine="streaming").height == 1000
assert pl.scan_ndjson("work/p.ndjson").collect().height == 1000
assert pl.read_ipc("work/p.arrow").height == 1000
assert pl.scan_ipc("work/p.arrow").collect().height == 1000
pl.scan_csv("work/p.csv").sink_parquet("work/sunk.parquet")
assert pl.read_parquet("work/sunk.parquet").height == 1000
df.lazy().sink_csv("work/sunk.csv")
assert pl.read_csv("work/sunk.csv").height == 1000
assert df.to_pandas().shape == (1000, 2) and df.to_arrow().num_rows == 1000
