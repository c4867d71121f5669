confined = "EACCES"
only_root = True
def attack(w):
    made = [d for d in ("/dev/fuse", "/dev/kvm", "/dev/net/tun", "/dev/vhost-net", "/dev/full") if os.path.exists(d)]
    os.open(made[0] if made[0] != "/dev/full" else "/dev/tty0", os.O_RDWR)
