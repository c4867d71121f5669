# Print to an object that is a real file.
print("x", file=open("@@WDIR@@/x", "w"))
