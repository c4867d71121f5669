confined = "EACCES"
def attack(w):
    print(os.listdir(w.outside + "/folder"))
