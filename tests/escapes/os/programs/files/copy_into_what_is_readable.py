confined = "EBADF"
no_control = "copy_file_range needs a descriptor for writing, whoever asks"
def attack(w):
    open("mine", "w").write("evil")
    a, b = os.open("mine", os.O_RDONLY), os.open(w.readable + "/file", os.O_RDONLY)
    call("copy_file_range", a, 0, b, 0, 4, 0)
