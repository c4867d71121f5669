# Takes a descriptor for reading, and makes the disk busy.
confined = "EPERM"
def attack(w):
    call("sync_file_range", os.open(w.readable + "/file", os.O_RDONLY), 0, 0, 2)
