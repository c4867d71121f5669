# A packed file is written.
import gzip
with gzip.GzipFile("@@WDIR@@/a.gz", "w") as f:
    f.write(b"x")
