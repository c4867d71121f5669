# A helper that writes members into a module.
import enum
print("ESCAPED", enum.global_enum_repr.__globals__)
