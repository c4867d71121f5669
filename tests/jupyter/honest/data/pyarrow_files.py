import pyarrow as pa, pyarrow.csv as pc, pyarrow.parquet as pq, pyarrow.feather as pf, pyarrow.dataset as ds, pyarrow.json as pj
t = pa.table({"a": list(range(5000)), "g": [n % 3 for n in range(5000)]})
pq.write_table(t, "work/t.parquet", compression="zstd")
assert pq.read_table("work/t.parquet", memory_map=True).num_rows == 5000
assert pq.ParquetFile("work/t.parquet").metadata.num_rows == 5000
pc.write_csv(t, "work/t.csv")
assert pc.read_csv("work/t.csv").num_rows == 5000
pf.write_feather(t, "work/t.feather")
assert pf.read_table("work/t.feather", memory_map=True).num_rows == 5000
ds.write_dataset(t, "work/set", format="parquet", partitioning=["g"], existing_data_behavior="overwrite_or_ignore")
found = ds.dataset("work/set", format="parquet", partitioning=["g"])
assert found.to_table(filter=ds.field("g") == 1).num_rows == 1667
pq.write_to_dataset(t, "work/hive", partition_cols=["g"])
assert pq.read_table("work/hive").num_rows == 5000
with pa.OSFile("work/t.ipc", "wb") as sink, pa.ipc.new_file(sink, t.schema) as writer:
    writer.write_table(t)
with pa.memory_map("work/t.ipc") as source:
    assert pa.ipc.open_file(source).read_all().num_rows == 5000
with pa.create_memory_map("work/t.map", 4096) as made:
    made.write(b"abc")
from pyarrow import fs
local = fs.LocalFileSystem()
local.create_dir("work/made/below", recursive=True)
local.copy_file("work/t.csv", "work/made/below/t.csv")
local.move("work/made/below/t.csv", "work/made/t.csv")
assert any(f.base_name == "t.csv" for f in local.get_file_info(fs.FileSelector("work/made", recursive=True)))
local.delete_dir("work/made")
