confined = "EACCES"
def attack(w):
    open("/proc/self/oom_score_adj", "w").write("1000")
