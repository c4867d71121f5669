# Names that the facade has not.
import sys
for name in ("_getframe", "settrace", "meta_path", "path_hooks", "__stdout__", "_current_frames", "addaudithook"):
    if (found := getattr(sys, name, None)) is not None:
        print("ESCAPED", name)
