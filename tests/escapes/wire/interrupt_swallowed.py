# catches every interrupt: the second ends it
# interrupt: twice
# timeout: 60
# ends: interrupted
while True:
    try: time.sleep(60)
    except BaseException: pass
