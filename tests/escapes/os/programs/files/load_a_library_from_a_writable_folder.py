# Own code is no escape; a library beside the interpreter would outlive the kernel.
confined = "EACCES"
only_root = True
def attack(w):
    import sysconfig
    folder = sysconfig.get_path("purelib")
    os.close(os.open(folder + f"/{w.host}.pth", os.O_CREAT | os.O_WRONLY))
    os.unlink(folder + f"/{w.host}.pth")
