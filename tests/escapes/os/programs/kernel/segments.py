# modify_ldt: 16-bit segments, and bugs (CVE-2015-5157).
confined = "EPERM"
machine = "x86_64"
def attack(w):
    call("modify_ldt", 0, space(64), 64)
