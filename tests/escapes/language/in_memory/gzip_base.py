# The class behind the class.
import gzip
for kind in gzip.GzipFile.__mro__:
    try:
        kind("@@WDIR@@/b.gz", "w").close()
    except Exception as error:
        print(error)
