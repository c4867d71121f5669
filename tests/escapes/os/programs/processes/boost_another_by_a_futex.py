# A priority-inheritance futex names its owner by number, and the OS kernel takes whom it finds:
# no permission is asked, and the owner's scheduling is changed.
confined = "ENOSYS"
unconfined = "ETIMEDOUT"
def attack(w):
    word = space(struct.pack("I", w.sentinel))
    soon = space(struct.pack("qq", int(time.time()), 0))
    call("futex", word, 6, 0, soon, 0, 0)
