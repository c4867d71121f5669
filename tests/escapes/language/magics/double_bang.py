# Two exclamation marks.
!!uname -r | rev
