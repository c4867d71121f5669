# hangs up and goes on running
# ends: protocol
os.close(3)
while True: time.sleep(1)
