# closes every descriptor it has
# ends: protocol
os.closerange(0, 1024)
while True: pass
