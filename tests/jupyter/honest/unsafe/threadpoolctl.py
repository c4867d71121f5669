import numpy as np, threadpoolctl
np.ones((300, 300)) @ np.ones((300, 300))
assert any(pool["user_api"] == "blas" for pool in threadpoolctl.threadpool_info())
with threadpoolctl.threadpool_limits(1):
    np.ones((300, 300)) @ np.ones((300, 300))
