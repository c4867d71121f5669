import pandas as pd
df = pd.DataFrame({"year": [2023, 2024] * 50, "v": range(100)})
df.to_parquet("work/parts", partition_cols=["year"])
back = pd.read_parquet("work/parts", filters=[("year", "=", 2024)])
assert back.v.sum() == sum(range(1, 100, 2))
