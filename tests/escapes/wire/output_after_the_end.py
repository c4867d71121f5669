# what comes after a reply is shown under the cell that it came after
# ends: ok
later(send, text("late"), seconds=0.2)
