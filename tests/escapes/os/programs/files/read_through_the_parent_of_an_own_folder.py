confined = "EACCES"
def attack(w):
    os.mkdir("deep")
    os.chdir("deep")
    os.rename("../deep", "../moved")
    print(open("../../../outside/" + os.path.basename(w.outside) + "/file").read())
