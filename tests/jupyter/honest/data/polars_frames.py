import polars as pl
df = pl.DataFrame({"k": ["a", "b"] * 5000, "v": range(10_000)})
assert df.group_by("k").agg(pl.col("v").sum()).sort("k")["v"].to_list() == [24_995_000, 25_000_000]
assert df.join(df.group_by("k").len(), on="k").height == 10_000
assert df.lazy().filter(pl.col("v") > 5).with_columns(w=pl.col("v").rolling_mean(3)).collect().height == 9994
assert df.sql("select k, max(v) m from self group by k order by k")["m"].to_list() == [9998, 9999]
assert df.sort("v", descending=True).head(1)["v"][0] == 9999
assert df.pivot(on="k", values="v", aggregate_function="max").width >= 2
