import numpy as np, pandas as pd
df = pd.DataFrame({"k": list("abab") * 2500, "v": np.arange(10_000.0), "t": pd.date_range("2024", periods=10_000, freq="h", tz="Europe/Rome")})
assert df.groupby("k").v.mean().loc["b"] > df.groupby("k").v.mean().loc["a"]
assert df.merge(df.groupby("k").v.sum().rename("s"), on="k").shape == (10_000, 4)
assert len(df.set_index("t").v.resample("D").sum()) > 400
assert df.rolling(7, on="t").v.mean().notna().sum() > 9_000
assert df.pivot_table(index="k", values="v", aggfunc="max").shape == (2, 1)
assert df.query("v > 9_990").shape[0] == 9
assert df.eval("w = v * 2").w.iloc[-1] == 19_998
assert "9" in df.tail(1).to_html() and df.style.highlight_max("v").to_html()
assert df.describe().shape[0] >= 8 and df.sample(5, random_state=1).shape[0] == 5
