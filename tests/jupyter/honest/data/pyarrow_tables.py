import pyarrow as pa
import pyarrow.compute as pc
t = pa.table({"a": list(range(100_000)), "s": [str(n % 7) for n in range(100_000)]})
assert pc.sum(t["a"]).as_py() == 4_999_950_000
assert t.group_by("s").aggregate([("a", "sum")]).num_rows == 7
assert t.sort_by([("a", "descending")])["a"][0].as_py() == 99_999
assert t.filter(pc.field("a") < 10).num_rows == 10
assert pa.total_allocated_bytes() > 0
