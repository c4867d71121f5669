# A page of a file, a huge one too, stays while a byte of it is under way, whatever becomes of the file.
confined = "EINVAL"
def attack(w):
    reading, writing = os.pipe()
    with open("large", "w+b") as file:
        file.write(bytes(1 << 21))
        file.flush()
        os.sendfile(writing, file.fileno(), 0, 1)
    os.unlink("large")
