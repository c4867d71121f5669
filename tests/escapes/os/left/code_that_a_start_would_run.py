# Files that some interpreter, shell or library runs when it starts, in what is its home folder:
# whoever ran them without locks would leave a file where no guest can.
names = """.bashrc .profile .pythonrc.py .pythonstartup .pdbrc sitecustomize.py usercustomize.py .env
pyvenv.cfg setup.cfg ipython_config.py ipython_kernel_config.py .ipython/ipython_config.py
.ipython/profile_default/ipython_config.py .ipython/profile_default/ipython_kernel_config.py
.ipython/profile_default/startup/00.py .jupyter/jupyter_config.py .config/matplotlib/matplotlibrc
.local/lib/python3.11/site-packages/usercustomize.py .local/lib/python3.11/site-packages/left.pth""".split()
def leave(w):
    code = f"import os; open({w.outside + '/left'!r}, 'w').close()\n"
    for folder in {w.scratch, os.environ.get("IPYTHONDIR", w.scratch), w.writable}:
        for path in names:
            try:
                os.makedirs(os.path.dirname(f"{folder}/{path}"), exist_ok=True)
                open(f"{folder}/{path}", "w").write(code)
            except OSError:
                pass
def find(w):
    return os.path.exists(w.outside + "/left")
