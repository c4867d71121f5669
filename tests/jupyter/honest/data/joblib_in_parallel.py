import joblib
assert joblib.Parallel(n_jobs=2)(joblib.delayed(abs)(-n) for n in range(20)) == list(range(20))
assert joblib.Parallel(n_jobs=2, prefer="threads")(joblib.delayed(abs)(-n) for n in range(9)) == list(range(9))
assert joblib.Parallel(n_jobs=2, backend="threading")(joblib.delayed(abs)(-n) for n in range(9)) == list(range(9))
joblib.dump({"a": list(range(1000))}, "work/model.joblib", compress=3)
assert joblib.load("work/model.joblib")["a"][-1] == 999
memory = joblib.Memory("work/cache", verbose=0)
