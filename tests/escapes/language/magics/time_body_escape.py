# A shell escape in the body of %%time.
%%time
!uname -r | rev
